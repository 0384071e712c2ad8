"""llm-d Benchmark Reports, versions 0.1 to 0.2.1, as YAML or JSON; one measurement a file.

What a latency means depends on the tool that measured it, which the report names. Of this
workbench's own reports TPOT and ITL are ours; of others TPOT is taken for that of all tokens but
one, and ITL fills no metric.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from experiments.records import AxisValue, ForeignNumber
from workbench.importers.cells import at, axis, count, mapping, number, rows, text, texts
from workbench.importers.document import Document, Form
from workbench.importers.foreign import (
    Column,
    Family,
    Foreign,
    ForeignPoint,
    Format,
    series,
    told,
)
from workbench.importers.speeds import TPOT, speeds

OURS = "inference-workbench"
LOAD = ("scenario", "load")
STATISTICS = {"mean": "mean", "p50": "p50", "p90": "p90", "p99": "p99"}
SCALES = {"s": 1.0, "ms": 1e-3, "s/token": 1.0, "ms/token": 1e-3}
DURATION = re.compile(r"PT(?:(\d+(?:\.\d+)?)H)?(?:(\d+(?:\.\d+)?)M)?(?:(\d+(?:\.\d+)?)S)?")
RATES = {
    "output_token_rate": ("output_tok_s", "tok/s"),
    "input_token_rate": ("input_tok_s", "tok/s"),
    "total_token_rate": ("total_tok_s", "tok/s"),
    "request_rate": ("request_s", "req/s"),
    "output_tokens_per_sec": ("output_tok_s", "tok/s"),
    "input_tokens_per_sec": ("input_tok_s", "tok/s"),
    "total_tokens_per_sec": ("total_tok_s", "tok/s"),
    "requests_per_sec": ("request_s", "req/s"),
}


def _report(document: Document) -> Mapping[str, object]:
    return mapping(document.value) if document.form in (Form.JSON, Form.YAML) else {}


def _recognises(document: Document) -> bool:
    found = _report(document)
    aggregate = at(found, "results", "request_performance", "aggregate")
    older = mapping(found.get("metrics"))
    return {"version", "scenario"} <= found.keys() and (
        isinstance(aggregate, Mapping) or {"requests", "latency", "throughput"} <= older.keys()
    )


def _read(document: Document) -> Foreign:
    report = _report(document)
    older = mapping(report.get("metrics"))
    found = older or mapping(at(report, "results", "request_performance", "aggregate"))
    tool = _tool(report)
    total, failures = (count(at(found, "requests", name)) for name in ("total", "failures"))
    incomplete = count(at(found, "requests", "incomplete")) or 0
    done = None if total is None else max(0, total - (failures or 0) - incomplete)
    numbers = [*_latencies(found, tool, done), *_rates(found, done), *_counts(found, done)]
    numbers += speeds(numbers) if done != 0 else ()
    ours = tool == OURS
    point = ForeignPoint(
        engine=_engine(report) | (_arm(report) if ours else {}),
        workload=_load(report),
        numbers=tuple(numbers),
        samples=done,
        failed=failures,
        devices=_devices(report),
        repeat=(count(at(report, *LOAD, "native", "config", "repeat")) or 0) if ours else 0,
        labels=texts(at(report, "run", "keywords")) if ours else (),
        duration_s=_duration(report),
    )
    version = f"{tool} in Benchmark Report {text(str(report.get('version')))}"
    return Foreign(points=(point,), version=version)


def _tool(report: Mapping[str, object]) -> str:
    paths = (("scenario", "load", "standardized", "tool"), ("scenario", "load", "name"))
    return next((found for path in paths if (found := text(at(report, *path)))), "an unknown tool")


def _families(tool: str) -> tuple[Family, ...]:
    """What the latencies of a report mean, by the tool that measured them."""
    ours = tool == OURS
    tpot = "(E2E - TTFT) / (output tokens - tokens of the first chunk)" if ours else TPOT
    itl = "a gap counts once a token" if ours else f"as {tool} counts it"
    return (
        Family(name="request_latency", prefix="e2e_s", meaning="last token - sent",
               statistics=STATISTICS),
        Family(name="time_to_first_token", prefix="ttft_s", meaning="first token - sent",
               statistics=STATISTICS),
        Family(name="time_per_output_token", prefix="tpot_s" if ours else "tpot_compat_s",
               meaning=tpot, statistics=STATISTICS),
        Family(name="normalized_time_per_output_token", prefix="e2e_token_s",
               meaning="E2E / output tokens", statistics=STATISTICS),
        Family(name="inter_token_latency", prefix="itl_s" if ours else None, meaning=itl,
               statistics=STATISTICS),
    )  # fmt: skip


def _latencies(found: Mapping[str, object], tool: str, done: int | None) -> list[ForeignNumber]:
    told_: list[ForeignNumber] = []
    for family in _families(tool):
        stats = mapping(at(found, "latency", family.name))
        scale = SCALES.get(str(stats.get("units")))
        if scale is not None:
            told_ += series(family.name, stats, family, scale=scale, samples=done)
    return told_


def _rates(found: Mapping[str, object], done: int | None) -> list[ForeignNumber]:
    told_: list[ForeignNumber] = []
    for name, (metric, unit) in RATES.items():
        value = at(found, "throughput", name)
        column = Column(key=name, metric=metric, unit=unit, meaning=f"mean of {name}")
        if value is not None:
            cell = value.get("mean") if isinstance(value, Mapping) else value
            told_ += told({name: cell}, [column], done)
    return told_


def _counts(found: Mapping[str, object], done: int | None) -> list[ForeignNumber]:
    failed = Column(key="failures", metric="failed_requests", unit="requests",
                    meaning="ended in an error")  # fmt: skip
    good = Column(key="total - failures - incomplete", metric="completed_requests",
                  unit="requests", meaning="successful")  # fmt: skip
    requests = mapping(found.get("requests"))
    lengths = [
        one
        for name in ("input_length", "output_length")
        for one in series(name, mapping(requests.get(name)),
                          Family(name=name, prefix=None, meaning="tokens", statistics={}),
                          unit="tok")
    ]  # fmt: skip
    return [*told(requests, [failed]), *told({good.key: done}, [good]), *lengths]


def _engines(report: Mapping[str, object]) -> list[Mapping[str, object]]:
    found = [mapping(one.get("standardized")) for one in rows(at(report, "scenario", "stack"))]
    return [one for one in found if one.get("kind") == "inference_engine"]


def _engine(report: Mapping[str, object]) -> dict[str, AxisValue]:
    engines = _engines(report) or [
        mapping(one.get("standardized")) for one in rows(at(report, "scenario", "stack"))
    ]
    first = engines[0] if engines else {}
    host = next(iter(rows(at(report, "scenario", "host", "accelerator"))), {})
    model, kind = first.get("model"), first.get("accelerator")
    older = text(at(report, "scenario", "model", "name"))
    platform = next(iter(rows(at(report, "scenario", "platform", "engine"))), {})
    found = {
        "model": text(at(model, "name")) or text(model) or older,
        "accelerator": text(at(kind, "model")) or text(kind) or text(host.get("model")),
        "framework": text(first.get("tool")) or text(platform.get("name")),
        "tensor_parallel_size": axis(at(kind, "parallelism", "tp"))
        or axis(at(host, "parallelism", "tp")),
    }
    return {name: value for name, value in found.items() if value is not None}


def _arm(report: Mapping[str, object]) -> dict[str, AxisValue]:
    """Of a report of this workbench the arm of its plan; nothing where it had none."""
    first = next(iter(rows(at(report, "scenario", "stack"))), {})
    arm = text(at(first, "native", "args", "arm"))
    return {} if arm is None else {"arm": arm}


def _devices(report: Mapping[str, object]) -> int | None:
    """Of all engines: devices of one times its replicas; None where one does not tell."""
    counts = [
        None
        if (each := count(at(one, "accelerator", "count"))) is None
        else each * (count(one.get("replicas")) or 1)
        for one in _engines(report)
    ] or [count(one.get("count")) for one in rows(at(report, "scenario", "host", "accelerator"))]
    known = [found for found in counts if found is not None]
    return (sum(known) or None) if known and len(known) == len(counts) else None


def _load(report: Mapping[str, object]) -> dict[str, AxisValue]:
    load = mapping(at(report, "scenario", "load", "standardized"))
    slots, rate = count(load.get("concurrency")), number(load.get("rate_qps"))
    found: dict[str, AxisValue] = {}
    if rate is not None:
        found = {"load": "rate", "rate": rate, "max_concurrency": slots}
    elif slots is not None:
        found = {"load": "closed", "batch_size": slots}
    for ours, theirs in (("prompt_tokens", "input_seq_len"), ("output_tokens", "output_seq_len")):
        if at(load, theirs, "distribution") == "fixed":
            found[ours] = count(at(load, theirs, "value"))
    stage = count(load.get("stage"))
    return found if stage is None else {**found, "stage": stage}


def _duration(report: Mapping[str, object]) -> float | None:
    told_ = at(report, "run", "time", "duration") or at(report, "metrics", "time", "duration")
    match = DURATION.fullmatch(told_) if isinstance(told_, str) else None
    if match is None:
        return number(told_)
    hours, minutes, seconds = (float(part or 0) for part in match.groups())
    return hours * 3600 + minutes * 60 + seconds


FORMATS = (
    Format(name="llm-d-report", tool="llm-d Benchmark Report", title="a Benchmark Report",
           recognises=_recognises, read=_read, seen=False,
           expects="YAML or JSON with `version`, `scenario` and `results` or `metrics`"),
)  # fmt: skip
