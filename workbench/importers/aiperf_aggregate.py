"""What AIPerf writes of several runs: confidence aggregates, sweeps, and collated requests.

An aggregate has for each metric and statistic of a run, as `time_to_first_token_p99`, the mean
over the runs with Student's interval. Means of means and of rates fill metrics, as those of our
own repeats; averaged quantiles and the intervals stay under their own names. Collated files pool
the requests of all runs but tell no unit: they fill none.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from experiments.records import AxisValue, ForeignNumber
from workbench.importers.aiperf import LATENCIES, SCALES, SINGLE
from workbench.importers.cells import at, axis, count, mapping, number, rows, text
from workbench.importers.document import Document, Form, refused
from workbench.importers.foreign import (
    Column,
    Family,
    Foreign,
    ForeignPoint,
    Format,
    derived,
    series,
    told,
)

OF_A_RUN = ("avg", "min", "max", "p1", "p5", "p10", "p25", "p50", "p75", "p90", "p95", "p99", "std")
UNITS = {"requests/sec": "req/s", "tokens/sec": "tok/s", "requests": "requests", "tokens": "tok",
         "sec": "s", "s": "s"}  # fmt: skip
FOLLOW = ("unit", "mean", "cv", "se", "t_critical")  # from the spread and the number of runs
LOADS = {"concurrency": "batch_size", "request_rate": "rate"}
UNITS_NOTE = (
    "A collated file tells no unit: its numbers fill no metric. Import the aggregate, or the "
    "summaries of the runs."
)
INTERVAL_NOTE = (
    "Numbers are means over runs. Quantiles that were averaged over runs fill no metric, and "
    "intervals over the runs (ci_low, ci_high) are kept under the tool's own names; the runs' own "
    "summaries have the quantiles."
)


def _aggregate(document: Document, kind: str) -> Mapping[str, object]:
    found = mapping(document.value) if document.form is Form.JSON else {}
    metadata = mapping(found.get("metadata"))
    same = metadata.get("aggregation_type") == kind and "num_profile_runs" in metadata
    return found if same and isinstance(found.get("metrics"), Mapping) else {}


def _is_confidence(document: Document) -> bool:
    return bool(_aggregate(document, "confidence"))


def _read_confidence(document: Document) -> Foreign:
    found = _aggregate(document, "confidence")
    metadata = mapping(found["metadata"])
    parameters = mapping(metadata.get("variation_values")) or _labelled(metadata)
    point = _point(mapping(found["metrics"]), metadata, parameters)
    return _foreign(document, [point], metadata, text(found.get("aiperf_version")))


def _labelled(metadata: Mapping[str, object]) -> dict[str, object]:
    """The settings of a label, `phases.profiling.concurrency=10, request_rate=2`."""
    pairs = (
        part.partition("=") for part in (text(metadata.get("variation_label")) or "").split(",")
    )
    return {name.strip(): value.strip() for name, equals, value in pairs if equals}


def _is_sweep(document: Document) -> bool:
    return bool(_combinations(document))


def _combinations(document: Document) -> list[tuple[Mapping[str, object], Mapping[str, object]]]:
    """Settings and metrics of each point; older files have one setting, its values as names."""
    found = mapping(document.value) if document.form is Form.JSON else {}
    cells = rows(found.get("per_combination_metrics"))
    if cells and all({"parameters", "metrics"} <= row.keys() for row in cells):
        return [(mapping(row.get("parameters")), mapping(row.get("metrics"))) for row in cells]
    name = text(at(found, "metadata", "parameter_name"))
    values = mapping(found.get("per_value_metrics")) if name else {}
    return [({str(name): value}, mapping(metrics)) for value, metrics in values.items()]


def _read_sweep(document: Document) -> Foreign:
    found = mapping(document.value)
    metadata = {**found, **mapping(found.get("metadata"))}
    points = [_point(metrics, metadata, named) for named, metrics in _combinations(document)]
    return _foreign(document, points, metadata, text(found.get("aiperf_version")))


def _foreign(
    document: Document,
    points: list[ForeignPoint],
    metadata: Mapping[str, object],
    version: str | None,
    note: str = INTERVAL_NOTE,
) -> Foreign:
    if not any(point.numbers for point in points):
        raise refused(document.path, "is an AIPerf aggregate without a number in it.")
    failed, notes = rows(metadata.get("failed_runs")), [note]
    if failed:
        names = ", ".join(str(text(one.get("label"))) for one in failed[:3])
        notes.append(f"{len(failed):,} runs failed and are in no number: {names}.")
    return Foreign(points=tuple(points), version=version, notes=tuple(notes))


def _point(
    metrics: Mapping[str, object], metadata: Mapping[str, object], parameters: Mapping[str, object]
) -> ForeignPoint:
    runs = _runs(metadata)
    done = _whole(at(metrics, "request_count_avg", "mean"))
    numbers = [one for name, cell in metrics.items() for one in _numbers(name, mapping(cell), runs)]
    return ForeignPoint(
        engine={},
        workload=_load(parameters),
        numbers=tuple(numbers),
        samples=done,
        failed=_whole(at(metrics, "error_request_count_avg", "mean")),
        invalid=_invalid(metadata),
        duration_s=number(at(metrics, "benchmark_duration_avg", "mean")),
    )


def _runs(metadata: Mapping[str, object]) -> int | None:
    """Of one point: a sweep tells how often each of its combinations was run."""
    if metadata.get("aggregation_type") == "confidence":
        return count(metadata.get("num_successful_runs"))
    return count(metadata.get("num_trials_per_value"))


def _whole(value: object) -> int | None:
    """A mean of counts as the count that at least half of the runs bear out."""
    found = number(value)
    return None if found is None else count(math.floor(found))


def _numbers(name: str, cell: Mapping[str, object], runs: int | None) -> Iterable[ForeignNumber]:
    """The mean over the runs, as the metric that it is; then the rest under the tool's name."""
    tag, _, statistic = name.rpartition("_")
    over = "over the runs" if runs is None else f"over {runs:,} runs"
    unit = text(cell.get("unit")) or ""
    if tag and statistic in OF_A_RUN and "mean" in cell:
        yield from _mean(name, tag, statistic, cell, f"mean {over} of each run's")
    family = Family(name=name, prefix=None, meaning=f"{name} {over}", statistics={})
    rest = {n: value for n, value in cell.items() if n not in FOLLOW}
    yield from series(name, rest, family, unit=unit)


def _mean(
    name: str, tag: str, statistic: str, cell: Mapping[str, object], words: str
) -> Iterable[ForeignNumber]:
    unit = text(cell.get("unit")) or ""
    column = _column(tag, statistic, unit)
    found = column or Column(key="", unit=unit, meaning=f"{statistic} of {tag.replace('_', ' ')}")
    whole = Column(key=f"{name}.mean", metric=found.metric, unit=found.unit, scale=found.scale,
                   meaning=f"{words} {found.meaning}")  # fmt: skip
    yield from told({whole.key: cell["mean"]}, [whole])


def _column(tag: str, statistic: str, unit: str) -> Column | None:
    """The metric of ours that a mean or rate of a run is; an averaged quantile is none."""
    if tag in SINGLE and statistic == "avg":
        metric, ours, meaning = SINGLE[tag]
        told_ = Column(key="", metric=metric, unit=ours, meaning=meaning)
        return told_ if UNITS.get(unit) == ours else None
    family = next((one for one in LATENCIES if one.name == tag), None)
    scale = SCALES.get(unit)
    if family is None or scale is None or statistic != "avg":
        return None
    return Column(key="", metric=f"{family.prefix}_mean", unit="s", scale=scale,
                  meaning=f"mean of {family.meaning}")  # fmt: skip


def _load(parameters: Mapping[str, object]) -> dict[str, AxisValue]:
    """What was varied, by the last part of its name: `phases.profiling.concurrency`."""
    found: dict[str, AxisValue] = {}
    for path, value in parameters.items():
        name = path.rpartition(".")[2]
        cell = axis(number(value)) if number(value) is not None else axis(value)
        if name and cell is not None:
            found[LOADS.get(name, name)] = cell
    if "rate" in found:
        return {**found, "load": "rate"}
    return {**found, "load": "closed"} if "batch_size" in found else found


def _invalid(metadata: Mapping[str, object]) -> str | None:
    if metadata.get("submission_valid") is not False:
        return None
    reasons = metadata.get("submission_invalid_reasons")
    told_ = ", ".join(filter(None, map(text, reasons))) if isinstance(reasons, list) else ""
    return f"AIPerf calls it no valid submission: {told_ or 'no reason told'}"


def _is_collated(document: Document) -> bool:
    return bool(_aggregate(document, "detailed"))


def _read_collated(document: Document) -> Foreign:
    found = _aggregate(document, "detailed")
    metrics = mapping(found["metrics"])
    done = count(at(metrics, "request_latency", "combined", "count"))
    numbers = [
        one
        for name, cell in metrics.items()
        for one in series(
            name,
            mapping(mapping(cell).get("combined")),
            Family(name=name, prefix=None, meaning=f"{name} of all requests", statistics={}),
            unit="",
        )
    ]
    if done is not None:
        column = Column(key="", metric="completed_requests", unit="requests",
                        meaning="successful, of all runs")  # fmt: skip
        numbers.append(derived("request_latency.combined.count", done, column))
    point = ForeignPoint(engine={}, workload={}, numbers=tuple(numbers), samples=done)
    version = text(found.get("aiperf_version"))
    return _foreign(document, [point], mapping(found["metadata"]), version, UNITS_NOTE)


FORMATS = (
    Format(name="aiperf-aggregate", tool="AIPerf", title="an AIPerf aggregate of several runs",
           recognises=_is_confidence, read=_read_confidence, seen=False,
           expects="JSON with `metadata` (`aggregation_type` confidence) and `metrics`"),
    Format(name="aiperf-sweep", tool="AIPerf", title="an AIPerf sweep",
           recognises=_is_sweep, read=_read_sweep, seen=False,
           expects="JSON with `per_combination_metrics` or `per_value_metrics`"),
    Format(name="aiperf-collated", tool="AIPerf", title="AIPerf's collated requests of all runs",
           recognises=_is_collated, read=_read_collated, seen=False,
           expects="JSON with `metadata` (`aggregation_type` detailed) and `metrics`"),
)  # fmt: skip
