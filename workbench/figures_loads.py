"""The best configuration at every load, beside the next best, as a table."""

from __future__ import annotations

import pandas as pd

from workbench.catalogue import METRICS
from workbench.columns import words_of
from workbench.figures_ratios import levels, usable, varied
from workbench.figures_text import axis_phrase, samples, value_text

LOAD_AXES = tuple(f"axis.{name}" for name in (
    "batch_size", "concurrency", "rate", "time_scale", "token_budget"))  # fmt: skip
COLUMNS = (
    "load", "best", "value", "low", "high", "n", "repeats", "next", "next_value", "next_low",
    "next_high", "trial_id",
)  # fmt: skip


def load_axis(points: pd.DataFrame) -> str | None:
    """The axis that says how hard the engine is pressed; None where the plan varies none."""
    return next((name for name in LOAD_AXES if name in varied(points)), None)


def best_by_load(points: pd.DataFrame, metric: str) -> pd.DataFrame:
    """COLUMNS, a row for each value of the load: the best valid configuration and the next."""
    axis = load_axis(points)
    rows = usable(points, metric)
    if axis is None or rows.empty:
        return pd.DataFrame(columns=list(COLUMNS))
    others = [name for name in varied(points) if name != axis]
    found = []
    for value in levels(rows, axis):
        here = rows[words_of(rows[axis]) == value]
        least = str(METRICS[metric].direction) == "min"
        ordered = here.sort_values(metric, ascending=least, kind="stable")
        first, second = ordered.iloc[0], ordered.iloc[1] if len(ordered) > 1 else None
        found.append(
            {"load": axis_phrase(axis, value), **_named(first, metric, others)}
            | (_next(second, metric, others) if second is not None else {})
        )
    return pd.DataFrame(found, columns=list(COLUMNS))


def _named(row: pd.Series, metric: str, others: list[str]) -> dict[str, object]:
    return {
        "best": _words(row, others),
        "value": float(row[metric]),
        "low": float(row[f"{metric}.low"]),
        "high": float(row[f"{metric}.high"]),
        "n": samples(row[f"{metric}.n"]),
        "repeats": int(row.get("repeats", 1)),
        "trial_id": str(row["trial_id"]),
    }


def _next(row: pd.Series, metric: str, others: list[str]) -> dict[str, object]:
    found = _named(row, metric, others)
    return {
        "next": found["best"],
        "next_value": found["value"],
        "next_low": found["low"],
        "next_high": found["high"],
    }


def _words(row: pd.Series, others: list[str]) -> str:
    return ", ".join(axis_phrase(n, value_text(row[n])) for n in others) or "the only configuration"


def apart(row: pd.Series) -> str:
    """Whether best and next best are told apart, in words."""
    ends = [row["low"], row["high"], row["next_low"], row["next_high"]]
    if pd.isna(row["next_value"]):
        return "nothing beside it"
    if any(pd.isna(end) for end in ends):
        return "not known: no interval"
    return "yes" if row["low"] > row["next_high"] or row["high"] < row["next_low"] else "no"
