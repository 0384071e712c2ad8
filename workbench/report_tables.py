"""Tables of points in text: each number with its interval and n, or why there is none."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from workbench.catalogue import METRICS
from workbench.columns import by_axes
from workbench.figures_headline import headline
from workbench.figures_text import MISSING, axis_words, number, samples, value_text
from workbench.words import WITHIN_RUN, interval_words, point_words

if TYPE_CHECKING:
    import pandas as pd

SHOWN = (
    "output_tok_s_device", "tok_s_user", "ttft_s_p50", "tpot_s_p50", "e2e_s_p50",
    "acceptance_length", "energy_j_token",
)  # fmt: skip
INTERVALS = (
    f"In brackets: {WITHIN_RUN}, and then do not cover run-to-run noise; n = samples. Requests "
    "that moved in one batch count once, and fewer than six such batches give no interval."
)
SECTIONS = (
    "front", "problems", "points", "definitions", "environment", "reproduce", "limits",
)  # fmt: skip
"""What a report is made of below its first screen, in this order. What differs between runs is on
the first screen, and cannot be left out."""
MOST_ROWS = 300
"""Of a table in a report; the rest is in points.csv."""
Row = tuple[str, ...]


class Measured(str):
    """`12.3 (11.9 to 12.8, n=64)`, whose two halves a page may set on two lines."""

    __slots__ = ("aside", "head")

    def __new__(cls, head: str, aside: str = "") -> Measured:
        """`aside` is the interval and n, or why there is no number; empty for nothing to say."""
        text = super().__new__(cls, f"{head} ({aside})" if aside else head)
        text.head, text.aside = head, aside
        return text


@dataclass(frozen=True, kw_only=True)
class Table:
    """Headers and rows of text; `note` says what the rows leave out because it is always so."""

    headers: Row
    rows: tuple[Row, ...]
    note: str = ""


def point_table(points: pd.DataFrame, *, most: int | None = None) -> Table:
    """One row a point, ordered by its axes: these, workload, state, repeats, metrics, intervals.

    What is the same for every point (one workload, one group, a metric that no point has) goes
    into the note instead of a column. Of more than `most` points the first are shown.
    """
    axes = [str(name) for name in points.columns if str(name).startswith("axis.")]
    axes += ["repeats"] if "repeats" in points.columns and _varies(points, "repeats") else []
    varying = [name for name in ("run_id", "group", "workload.name") if _varies(points, name)]
    leads = dict.fromkeys((*headline(points).columns, *SHOWN))
    shown = [name for name in leads if name in points.columns]
    metrics = [name for name in shown if points[name].notna().any()]
    plain = [*axes, *varying]
    headers = ["trial", *(_plain_header(name) for name in plain), "state"]
    headers += [METRICS[name].heading for name in metrics]
    rows = [
        (
            str(point["trial_id"]),
            *(value_text(point[name]) if _present(point[name]) else MISSING for name in plain),
            str(point["state"]),
            *(measured(point, name) for name in metrics),
        )
        for _, point in by_axes(points).head(len(points) if most is None else most).iterrows()
    ]
    notes = [f"{len(points) - len(rows):,} more points are in points.csv."]
    notes = notes if len(rows) < len(points) else []
    notes += [INTERVALS] if metrics else []
    notes += [_absent(points, name) for name in shown if name not in metrics]
    return Table(headers=tuple(headers), rows=tuple(rows), note=" ".join(notes))


def measured(point: pd.Series, metric: str) -> Measured:
    """`12.3 (11.9 to 12.8, n=64)`; a missing number is a dash with its reason."""
    value = point.get(metric)
    if not _present(value):
        reason = point.get(f"{metric}.reason")
        return Measured(MISSING, reason if isinstance(reason, str) else "")
    return Measured(number(value), _spread(point, metric))


def _spread(point: pd.Series, metric: str) -> str:
    """`11.9 to 12.8, n=64`; of several repeats with their number."""
    low, high, n = (point.get(f"{metric}.{part}") for part in ("low", "high", "n"))
    return spread_words(low, high, samples(n), int(point.get("repeats", 1)))


def spread_words(low: float | None, high: float | None, n: int | None, repeats: int) -> str:
    """`11.9 to 12.8, n=64`, or `11.9 to 12.8 over 3 repeats, n=192`."""
    spread = interval_words(low, high, repeats)
    over = f"over {repeats} repeats" if repeats > 1 else ""
    said = " ".join(words for words in (spread, over) if words)
    return ", ".join([*([said] if said else []), "n not told" if n is None else f"n={n}"])


def configuration(point: pd.Series) -> str:
    """The axes of a point in words, those that it has."""
    axes = [name for name in point.index if str(name).startswith("axis.")]
    return point_words({name: point[name] for name in axes})


def _present(value: object) -> bool:
    return value is not None and value == value


def _varies(points: pd.DataFrame, column: str) -> bool:
    return column in points.columns and points[column].nunique(dropna=False) > 1


def _plain_header(column: str) -> str:
    if column.startswith("axis."):
        return axis_words(column)
    return column.removesuffix(".name").removesuffix("_id")


def _absent(points: pd.DataFrame, metric: str) -> str:
    reasons = points.get(f"{metric}.reason")
    said = [] if reasons is None else sorted({r for r in reasons if isinstance(r, str)})
    why = f": {'; '.join(said)}" if said else ""
    return f"{METRICS[metric].label} is missing for every point{why}."
