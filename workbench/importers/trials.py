"""What each point of foreign files becomes: a trial, with the axes that vary among the points."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from experiments.quantiles import needed_samples
from experiments.records import (
    AxisValue,
    ForeignNumber,
    MetricValue,
    Point,
    TrialId,
    TrialRecord,
    TrialState,
)
from workbench.importers.document import Document
from workbench.importers.foreign import Foreign, ForeignPoint, Format
from workbench.lock import utc_now

UNKNOWN_DEVICES = "the number of devices is not told; say it with `workbench import --gpus N`"
PER_DEVICE = {"output_tok_s": "output_tok_s_device", "total_tok_s": "total_tok_s_device"}
DUPLICATE = "duplicate"  # the axis that keeps results of one configuration apart
SHARES = {"p1": 0.99, "p50": 0.5, "p90": 0.9, "p99": 0.99}
POOLED = ("icl_s", "itl_s")  # quantiles of gaps, of which a request has many


@dataclass(frozen=True, kw_only=True)
class Imported:
    """One file that was read, its format and what was found in it."""

    document: Document
    format: Format
    foreign: Foreign
    joined: tuple[Document, ...] = ()  # files of the same run that were taken into it


def records_of(batch: Sequence[Imported]) -> list[TrialRecord]:
    """One record a point of the files, with the axes that vary among them."""
    told = [(one, place, point) for one in batch for place, point in enumerate(one.foreign.points)]
    points = [point for _, _, point in told]
    axes = _axes(points)
    started = utc_now().isoformat(timespec="milliseconds")
    return [
        TrialRecord(
            trial_id=_trial_id(k, one.document, place),
            point=Point(axes=axes[k], engine=dict(points[k].engine),
                        workload=dict(points[k].workload)),
            repeat=points[k].repeat,
            state=_state(points[k]),
            reason=_reason(points[k]),
            started_utc=started,
            duration_s=points[k].duration_s or 0.0,
            window_s=None,
            metrics=_metrics(points[k], one.format.tool),
            labels=tuple(dict.fromkeys((f"imported from {one.format.tool}", *points[k].labels))),
            telemetry=points[k].telemetry,
            foreign=points[k].numbers,
        )
        for k, (one, place, _) in enumerate(told)
    ]  # fmt: skip


def _trial_id(order: int, document: Document, place: int) -> TrialId:
    """Trials of one instant are listed by their ids: so these keep the order of the files."""
    key = f"{document.sha256} {place}"
    return TrialId(f"{order:04d}-{hashlib.sha256(key.encode()).hexdigest()[:12]}")


def _axes(points: Sequence[ForeignPoint]) -> list[dict[str, AxisValue]]:
    """The settings that vary, by point; results of one configuration are numbered apart."""
    settings = [{**point.workload, **point.engine} for point in points]
    names = dict.fromkeys(name for found in settings for name in found)
    varying = [name for name in names if len({repr(found.get(name)) for found in settings}) > 1]
    axes = [{name: found.get(name) for name in varying} for found in settings]
    keys = [repr((axis, point.repeat)) for axis, point in zip(axes, points, strict=True)]
    if len(set(keys)) == len(keys):
        return axes
    seen: Counter[str] = Counter()
    for axis, key in zip(axes, keys, strict=True):
        seen[key] += 1
        axis[DUPLICATE] = seen[key]
    return axes


def _state(point: ForeignPoint) -> TrialState:
    if point.samples == 0:
        return TrialState.FAILED
    return TrialState.INVALID if point.invalid is not None else TrialState.OK


def _reason(point: ForeignPoint) -> str | None:
    if point.samples == 0:
        failed = "" if point.failed is None else f", {point.failed:,} failed"
        return f"no request succeeded{failed}"
    return point.invalid


def _metrics(point: ForeignPoint, tool: str) -> dict[str, MetricValue]:
    """Our metrics that the numbers of the file are, each with its basis."""
    if point.samples == 0:
        return {}
    found = {
        one.metric: _metric(one, one.metric, point.samples, tool)
        for one in point.numbers
        if one.metric is not None
    }
    return {**found, **_per_device(found, point.devices), **point.metrics}


def _metric(one: ForeignNumber, metric: str, samples: int | None, tool: str) -> MetricValue:
    """A quantile that its samples cannot carry is missing: the tool's number stays its own."""
    basis = f"{tool} {one.key}: {one.meaning}"
    if not isinstance(one.value, float):
        return MetricValue(value=None, n=0, reason=one.reason or "not told", basis=basis)
    share = None if metric.startswith(POOLED) else SHARES.get(metric.rpartition("_")[2])
    if share is not None and samples is not None and samples < needed_samples(share):
        reason = f"n={samples} is too few for it; the tool's number is kept as its own"
        return MetricValue(value=None, n=samples, reason=reason, basis=basis)
    return MetricValue(value=one.value, n=samples, basis=basis)


def _per_device(found: Mapping[str, MetricValue], devices: int | None) -> dict[str, MetricValue]:
    """Rates per device from whole rates, where the file has none of its own."""
    rates = {}
    for whole, each in PER_DEVICE.items():
        rate = found.get(whole)
        if rate is None or rate.value is None or each in found:
            continue
        if devices is None:
            rates[each] = MetricValue(value=None, n=0, reason=UNKNOWN_DEVICES, basis=rate.basis)
        else:
            basis = f"{rate.basis}; divided by {devices} devices"
            rates[each] = MetricValue(value=rate.value / devices, n=rate.n, basis=basis)
    return rates
