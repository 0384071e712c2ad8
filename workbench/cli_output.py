"""How the command line speaks: tables for people, one JSON line for programs, one red error."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from kernels.errors import WorkbenchError
from workbench.files import finite

if TYPE_CHECKING:
    import pandas as pd

    from workbench.fronts import Front

out = Console(highlight=False)
err = Console(stderr=True, highlight=False)


def say(text: str, *, style: str | None = None) -> None:
    """One line for a person; `text` is shown as it is, mark-up included."""
    out.print(escape(text), style=style, soft_wrap=True)


def say_json(document: object) -> None:
    """One line of JSON, the last one of a command under --json; no NaN."""
    out.out(json.dumps(finite(document), ensure_ascii=True, allow_nan=False, default=str))


def say_error(error: WorkbenchError) -> None:
    """What, where and what to do, in red on stderr; no traceback."""
    where = f"{escape(error.where)}: " if error.where else ""
    err.print(f"[bold red]error[/] [red]{where}{escape(error.what)}[/]", soft_wrap=True)
    if error.remedy:
        err.print(f"  {escape(error.remedy)}", soft_wrap=True)


def show_table(title: str, headers: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A table as wide as the terminal."""
    table = Table(title=escape(title), title_justify="left", header_style="bold")
    for header in headers:
        table.add_column(escape(header), overflow="fold")
    for row in rows:
        table.add_row(*(escape(str(cell)) for cell in row))
    out.print(table)


def show_front(points: pd.DataFrame, front: Front) -> None:
    """The front's points by x, how many points did not compete, and every label."""
    from experiments.metric_specs import METRICS
    from workbench.report_tables import measured

    axes = (front.x, front.y)
    named = {axis.metric: METRICS.get(axis.metric) for axis in axes}
    headers = [spec.heading if spec else name for name, spec in named.items()]
    for group, members in front.groups.items():
        rows = points[points["trial_id"].isin(members) & front.on_front]
        rows = rows.sort_values([front.x.metric, "trial_id"])
        title = "Pareto front" if len(front.groups) == 1 else f"Pareto front of {group}"
        show_table(
            title,
            ["configuration", *headers, "trial"],
            [
                (_marks(p), *(measured(p, a.metric) for a in axes), p["trial_id"])
                for _, p in rows.iterrows()
            ],
        )
    if front.groups:
        say(_legend(points))
    else:
        say("No valid point, so there is no front.")
    out_of_it = sum(reason is not None for reason in front.excluded)
    if out_of_it:
        say(f"{out_of_it} points did not compete (invalid, failed or not measured).")
    say_labels(points)


def say_labels(points: pd.DataFrame) -> None:
    """What must be said beside these numbers: `indicative` and the like."""
    said = dict.fromkeys(label for labels in points["labels"] for label in labels)
    for label in said:
        say(f"note: {label}", style="yellow")


def _marks(point: pd.Series) -> str:
    """The axes of a point as short as beside the points of a figure: `c16 d5 k44 dp1`."""
    from workbench.figures_text import axis_mark, value_text

    axes = [str(name) for name in point.index if str(name).startswith("axis.")]
    return " ".join(f"{axis_mark(name)}{value_text(point[name])}" for name in axes)


def _legend(points: pd.DataFrame) -> str:
    from workbench.figures_text import axis_mark, axis_words

    axes = [str(name) for name in points.columns if str(name).startswith("axis.")]
    return ", ".join(f"{axis_mark(name).strip()} = {axis_words(name)}" for name in axes)
