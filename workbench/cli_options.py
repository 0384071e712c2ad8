"""Options and exit codes that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from workbench.errors import UsageError
from workbench.pareto import Axis

StoreOption = Annotated[Path, typer.Option("--store", help="Folder of the stored runs.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON as the last line.")]
WideOption = Annotated[
    bool, typer.Option("--wide", help="Intervals and everything else, wider than the terminal.")
]
MaxTrials = Annotated[int | None, typer.Option(help="Measure at most this many trials.")]
RepeatsOption = Annotated[
    int | None, typer.Option("--repeats", min=1, help="So many repeats, in place of the plan's.")
]
BudgetOption = Annotated[
    str | None,
    typer.Option("--budget", help="Begin no trial that would not end within it: 4h, 90m, 1h30m."),
]
WithoutOption = Annotated[
    list[str] | None,
    typer.Option("--without", metavar="ARM", help="Leave this arm of the plan out; repeatable."),
]
PricesOption = Annotated[
    Path | None,
    typer.Option("--prices", help="Your own price table, in the form of workbench/prices.yaml."),
]
EXIT_GATE, EXIT_PARTIAL = 3, 4
EXIT_UNDECIDED = EXIT_PARTIAL  # either way: no failure is shown, and no success


def axis_of(option: str, text: str) -> Axis:
    """`metric:max` or `metric:min` as an axis; UsageError for anything else."""
    metric, _, direction = text.rpartition(":")
    if not metric or direction not in ("max", "min"):
        raise UsageError(
            f"{text!r} does not say which way is better.",
            where=option,
            remedy="Write metric:max or metric:min, such as ttft_s_p50:min.",
        )
    return Axis(metric=metric, direction="max" if direction == "max" else "min")
