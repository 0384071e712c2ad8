"""A trial's numbers and settings as tables in words, for pages and notebooks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import pandas as pd
import yaml

from engine.config import describe_fields
from experiments.metric_specs import MetricSpec
from experiments.records import RequestRecord, TrialRecord
from workbench.catalogue import METRICS
from workbench.columns import words_of
from workbench.figures_text import (
    MISSING,
    axis_phrase,
    in_order,
    number,
    plural,
    samples,
    value_text,
)


@dataclass(frozen=True, kw_only=True)
class Best:
    """The best valid value of one metric and the trial that gave it; None = there is none."""

    spec: MetricSpec
    value: float | None
    low: float | None = None
    high: float | None = None
    n: int | None = 0  # None: not told
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
        n=samples(row[f"{metric}.n"]),
        repeats=int(row.get("repeats", 1)),
        trial_id=str(row["trial_id"]),
        where=cell_words(points, usable.loc[[place]])[0],
    )


def cell_words(points: pd.DataFrame, rows: pd.DataFrame) -> list[str]:
    """The cell of each of `rows` in words: the axes that vary in `points`, where it has them."""
    axes = [name for name in points if name.startswith("axis.")]
    varying = [name for name in axes if words_of(points[name]).nunique() > 1]
    return [
        ", ".join(axis_phrase(name, told) for name in varying
                  if (told := value_text(row[name])) != MISSING)
        for _, row in rows.iterrows()
    ]  # fmt: skip


def by_axes(points: pd.DataFrame) -> pd.DataFrame:
    """The rows in the order of their axes, then of their repeats; numbers before words."""
    axes = [name for name in points if name.startswith("axis.")]
    places = pd.DataFrame(
        {name: _places(words_of(points[name])) for name in axes}, index=points.index
    )
    places["repeat"] = points["repeat"]
    return points.loc[places.sort_values(list(places), kind="stable").index]


def _places(words: pd.Series) -> pd.Series:
    return words.map({text: place for place, text in enumerate(in_order(words.unique()))})


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
            "definition": found.basis or f"{spec.statistic} over {spec.basis}: {spec.definition}",
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


def point_plan(plan: Mapping[str, object], trial: TrialRecord) -> str:
    """The locked plan narrowed to the trial's point, as YAML that `workbench run` takes."""
    axes = [{"product": {name: [value] for name, value in trial.point.axes.items()}}]
    narrowed = {name: value for name, value in plan.items() if name not in ("search", "max_trials")}
    return yaml.safe_dump(
        {**narrowed, "axes": axes if trial.point.axes else []}, sort_keys=False, allow_unicode=True
    )


def conduct_table(trial: TrialRecord) -> pd.DataFrame:
    """fact, value, told: how the trial was measured; what was not done says so."""
    warm = [request for request in trial.requests if request.warm_up]
    rows = [
        ("attempts", str(trial.attempts), "more than one after a retry"),
        ("warm-up requests", f"{len(warm):,}", "sent before the measurement, part of no metric"),
        ("measured window", _window(trial), "on the clock of the trial"),
        ("idle power", _watts(trial.idle_power_w), "all devices, engine up, nothing in flight"),
        *_request_rows([request for request in trial.requests if not request.warm_up]),
        *_calibration_rows(trial),
    ]
    return pd.DataFrame(rows, columns=["fact", "value", "told"])


def _request_rows(requests: Sequence[RequestRecord]) -> list[tuple[str, str, str]]:
    """Failures by kind, and how many client processes and conversations sent the requests."""
    failed = Counter(r.error_kind or "of no kind" for r in requests if r.error is not None)
    kinds = ", ".join(f"{count:,} {kind.replace('_', ' ')}" for kind, count in failed.most_common())
    workers = len({request.worker for request in requests})
    told = [("failed requests", kinds or "none", "by the class of their error")]
    if workers > 1:
        told.append(("client processes", f"{workers:,}", "that sent the requests"))
    sessions = {request.session for request in requests if request.session is not None}
    if sessions:
        turns = f"{len(sessions):,}, {plural(len(requests), 'turn')}"
        told.append(("conversations", turns, "each turn follows the answer before it"))
    return told


def _window(trial: TrialRecord) -> str:
    if trial.window_s is None:
        return f"{MISSING} nothing was measured"
    start, end = trial.window_s
    return f"{number(start)} to {number(end)} s, {number(end - start)} s long"


def _watts(power_w: float | None) -> str:
    return f"{MISSING} not measured" if power_w is None else f"{number(power_w)} W"


def _calibration_rows(trial: TrialRecord) -> list[tuple[str, str, str]]:
    found = trial.calibration
    told = "the same load on a server that answers at once"
    if found is None:
        return [("client calibration", f"{MISSING} not asked for, or no client of its own", told)]
    lag = "closed loop" if found.lag_p99_s is None else f"{number(1000 * found.lag_p99_s)} ms"
    cpu = MISSING if found.client_cpu_percent is None else f"{number(found.client_cpu_percent)} %"
    overhead = f"{number(1000 * found.overhead_p50_s)} and {number(1000 * found.overhead_p99_s)} ms"
    return [
        ("client: requests, processes", f"{found.requests:,}, {found.processes}", told),
        ("client: achieved rate", f"{number(found.achieved_request_s)} req/s", told),
        ("client: overhead p50 and p99", overhead, "E2E of a request that costs nothing"),
        ("client: lag p99", lag, "sent after intended"),
        ("client: busy", cpu, "of one core"),
    ]


def _why_missing(points: pd.DataFrame, metric: str) -> str:
    told = points.loc[points["valid"], f"{metric}.reason"].dropna() if len(points) else []
    return str(next(iter(told), "no valid trial"))


def _number(value: object) -> float | None:
    return None if pd.isna(value) else float(str(value))
