"""MLPerf endpoints: `result_summary.json`, times in nanoseconds.

Its TPOT divides by the tokens after the first chunk, as ours does. A run that was interrupted says
`complete: false`: it is invalid here.
"""

from __future__ import annotations

from collections.abc import Mapping

from experiments.records import AxisValue, ForeignNumber
from workbench.importers.cells import at, count, mapping, number, text
from workbench.importers.document import Document, Form
from workbench.importers.foreign import (
    Column,
    Family,
    Foreign,
    ForeignPoint,
    Format,
    leftovers,
    series,
    told,
)
from workbench.importers.speeds import speeds

NS = 1e-9
STATISTICS = {"avg": "mean", "median": "p50", "50": "p50", "50.0": "p50", "90": "p90",
              "90.0": "p90", "99": "p99", "99.0": "p99"}  # fmt: skip
FAMILIES = (
    Family(name="ttft", prefix="ttft_s", meaning="first chunk - issued", statistics=STATISTICS),
    Family(name="tpot", prefix="tpot_s", statistics=STATISTICS,
           meaning="(last - first chunk) / tokens after the first chunk, one value a request"),
    Family(name="latency", prefix="e2e_s", meaning="last chunk - issued", statistics=STATISTICS),
)  # fmt: skip
COLUMNS = (
    Column(key="tps", metric="output_tok_s", unit="tok/s", meaning="output tokens / window"),
    Column(key="qps", metric="request_s", unit="req/s", meaning="completed requests / window"),
    Column(key="n_samples_completed", metric="completed_requests", unit="requests",
           meaning="successful"),
    Column(key="n_samples_failed", metric="failed_requests", unit="requests",
           meaning="ended in an error"),
    Column(key="duration_ns", metric="duration_s", unit="s", scale=NS, meaning="of the window"),
)  # fmt: skip
SUMS = (("input_sequence_lengths", "prompt_tokens"), ("output_sequence_lengths", "output_tokens"))


def _recognises(document: Document) -> bool:
    found = mapping(document.value) if document.form is Form.JSON else {}
    return {"n_samples_issued", "n_samples_completed", "duration_ns"} <= found.keys()


def _read(document: Document) -> Foreign:
    report = mapping(document.value)
    done = count(report.get("n_samples_completed"))
    found = [*told(report, COLUMNS, done), *_statistics(report, done), *_sums(report)]
    found += speeds(found) if done != 0 else ()
    state = text(report.get("state")) or "not complete"
    duration_ns = number(report.get("duration_ns"))
    point = ForeignPoint(
        engine=_engine(report),
        workload=_load(report),
        numbers=(*found, *leftovers(report, (one.key for one in COLUMNS))),
        samples=done,
        failed=count(report.get("n_samples_failed")),
        invalid=f"the run is {state}" if report.get("complete") is False else None,
        duration_s=None if duration_ns is None else duration_ns * NS,
    )
    return Foreign(points=(point,), version=text(report.get("version")))


def _statistics(report: Mapping[str, object], done: int | None) -> list[ForeignNumber]:
    found: list[ForeignNumber] = []
    for family in FAMILIES:
        stats = mapping(report.get(family.name))
        shares = {**mapping(stats.get("percentiles"))}
        if "median" in stats:
            shares = {name: value for name, value in shares.items() if number(name) != 50}
        found += series(family.name, {**stats, **shares}, family, scale=NS, samples=done)
    return found


def _sums(report: Mapping[str, object]) -> list[ForeignNumber]:
    found: list[ForeignNumber] = []
    for name, metric in SUMS:
        column = Column(key=f"{name}.total", metric=metric, unit="tok", meaning="sum")
        total = at(report, name, "total")
        found += told({} if total is None else {column.key: total}, [column])
    return found


def _engine(report: Mapping[str, object]) -> dict[str, AxisValue]:
    paths = (("run_config", "model_params", "name"), ("run_config", "model"))
    model = next((told_ for path in paths if (told_ := text(at(report, *path)))), None)
    return {} if model is None else {"model": model}


def _load(report: Mapping[str, object]) -> dict[str, AxisValue]:
    pattern = mapping(at(report, "run_config", "settings", "load_pattern"))
    slots, rate = count(pattern.get("target_concurrency")), number(pattern.get("target_qps"))
    if slots is not None:
        return {"load": "closed", "batch_size": slots}
    return {} if rate is None else {"load": text(pattern.get("type")) or "poisson", "rate": rate}


FORMATS = (
    Format(name="mlperf-endpoints", tool="MLPerf endpoints", title="an MLPerf result summary",
           recognises=_recognises, read=_read, seen=False,
           expects="JSON with `n_samples_issued`, `n_samples_completed`, `duration_ns`"),
)  # fmt: skip
