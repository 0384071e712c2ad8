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
EXIT_GATE, EXIT_PARTIAL, EXIT_INTERRUPTED = 3, 4, 130
