"""A trial's numbers and settings as tables in words, for pages and notebooks."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import pandas as pd

from engine.config import describe_fields
from experiments.metric_specs import MetricSpec
from experiments.records import TrialRecord
from workbench.catalogue import METRICS
from workbench.figures_text import axis_phrase, value_text


@dataclass(frozen=True, kw_only=True)
class Best:
    """The best valid value of one metric and the trial that gave it; None = there is none."""

    spec: MetricSpec
    value: float | None
    low: float | None = None
    high: float | None = None
    n: int = 0
    repeats: int = 1  # that the value is the mean of
    trial_id: str | None = None
    where: str = ""  # the trial's cell in words
    reason: str = ""  # why there is none


def best(points: pd.DataFrame, metric: str) -> Best:
    """The best of the valid rows of `Run.points()` by the metric's own direction."""
    spec = METRICS[metric]
    if metric not in points:
        return Best(spec=spec, value=None, reason="not measured in this run")
    usable = points[points["valid"] & points[metric].notna()]
    if usable.empty:
        return Best(spec=spec, value=None, reason=_why_missing(points, metric))
    values = usable[metric]
    place = values.idxmin() if spec.direction == "min" else values.idxmax()
    row = usable.loc[place]
    return Best(
        spec=spec,
        value=float(row[metric]),
        low=_number(row[f"{metric}.low"]),
        high=_number(row[f"{metric}.high"]),
        n=int(row[f"{metric}.n"]),
        repeats=int(row.get("repeats", 1)),
        trial_id=str(row["trial_id"]),
        where=cell_words(points, usable.loc[[place]])[0],
    )


def cell_words(points: pd.DataFrame, rows: pd.DataFrame) -> list[str]:
    """The cell of each of `rows` in words: the axes that vary in `points`."""
    axes = [name for name in points if name.startswith("axis.")]
    varying = [name for name in axes if points[name].map(value_text).nunique() > 1]
    return [
        ", ".join(axis_phrase(name, value_text(row[name])) for name in varying)
        for _, row in rows.iterrows()
    ]


def metric_table(trial: TrialRecord) -> pd.DataFrame:
    """name, metric (its label), value, low, high, n, unit, definition, reason; as in METRICS."""
    rows = [
        {
            "name": name,
            "metric": spec.label,
            "value": found.value,
            "low": found.low,
            "high": found.high,
            "n": found.n,
            "unit": spec.unit,
            "definition": f"{spec.statistic} over {spec.basis}: {spec.definition}",
            "reason": found.reason or "",
        }
        for name, spec in METRICS.items()
        if (found := trial.metrics.get(name)) is not None
    ]
    columns = ("name", "metric", "value", "low", "high", "n", "unit", "definition", "reason")
    return pd.DataFrame(rows, columns=list(columns))


def configuration_table(trial: TrialRecord, chosen: Collection[str] = ()) -> pd.DataFrame:
    """part, field, value, default, mark (empty for a default), sentence.

    `chosen` names the engine fields that the plan gives. mark: `axis` for what the plan varies,
    `set` for what it gives, `resolved` for what the engine made of a default such as auto.
    """
    known = {described.name: described for described in describe_fields()}
    rows = []
    for name, value in sorted(trial.point.engine.items()):
        described = known.get(name)
        default = described.default if described else None
        same = described is not None and not described.required and value == default
        given = "set" if name in chosen else "resolved"
        mark = "axis" if name in trial.point.axes else "" if same else given
        rows.append(
            {
                "part": "engine",
                "field": name,
                "value": value_text(value),
                "default": value_text(default),
                "mark": mark,
                "sentence": described.sentence if described else "",
            }
        )
    for name, value in sorted(trial.point.workload.items()):
        mark = "axis" if name in trial.point.axes else ""
        row = {"part": "workload", "field": name, "value": value_text(value), "mark": mark}
        rows.append(row | {"default": "", "sentence": ""})
    columns = ("part", "field", "value", "default", "mark", "sentence")
    return pd.DataFrame(rows, columns=list(columns))


def _why_missing(points: pd.DataFrame, metric: str) -> str:
    told = points.loc[points["valid"], f"{metric}.reason"].dropna() if len(points) else []
    return str(next(iter(told), "no valid trial"))


def _number(value: object) -> float | None:
    return None if pd.isna(value) else float(str(value))
