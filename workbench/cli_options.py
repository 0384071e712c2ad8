"""Options and exit codes that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

StoreOption = Annotated[Path, typer.Option("--store", help="Folder of the stored runs.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON as the last line.")]
WideOption = Annotated[
    bool, typer.Option("--wide", help="Intervals and everything else, wider than the terminal.")
]
MaxTrials = Annotated[int | None, typer.Option(help="Measure at most this many trials.")]
BudgetOption = Annotated[
    str | None,
    typer.Option("--budget", help="Begin no trial that would not end within it: 4h, 90m, 1h30m."),
]
EXIT_GATE, EXIT_PARTIAL, EXIT_INTERRUPTED = 3, 4, 130
