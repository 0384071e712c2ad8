"""Summaries of AIPerf and of its forerunner GenAI-Perf, as JSON and as CSV.

"inter_token_latency" is one value a request, our TPOT; "inter_chunk_latency" is our ICL. GPUs in
their telemetry are those that the host shows, not those that served: their number is not taken.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from experiments.records import AxisValue, ForeignNumber
from workbench.importers.cells import at, axis, count, listed, mapping, number, text
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

STATISTICS = {"avg": "mean", "p50": "p50", "p90": "p90", "p99": "p99"}
SCALES = {"ms": 1e-3, "s": 1.0, "sec": 1.0, "us": 1e-6, "ns": 1e-9}


def _family(name: str, prefix: str | None, meaning: str) -> Family:
    return Family(name=name, prefix=prefix, meaning=meaning, statistics=STATISTICS)


LATENCIES = (
    _family("time_to_first_token", "ttft_s", "first chunk that bears a token - sent"),
    _family("time_to_first_output_token", "ttfo_s", "first token that is not reasoning - sent"),
    _family("inter_token_latency", "tpot_compat_s", TPOT),
    _family("inter_chunk_latency", "icl_s", "gaps between chunks, pooled"),
    _family("request_latency", "e2e_s", "last chunk - sent"),
)
SPEED = Family(
    name="output_token_throughput_per_user", prefix="tok_s_user", meaning=f"1 / ({TPOT})",
    statistics={"p50": "p50", "p1": "p1"},
)  # fmt: skip
SINGLE = {
    "output_token_throughput": ("output_tok_s", "tok/s", "output tokens / duration"),
    "total_token_throughput": ("total_tok_s", "tok/s", "(prompt + output tokens) / duration"),
    "request_throughput": ("request_s", "req/s", "successful requests / duration"),
    "request_count": ("completed_requests", "requests", "successful"),
    "error_request_count": ("failed_requests", "requests", "ended in an error"),
    "goodput": ("goodput", "req/s", "requests within the given limits / duration"),
    "benchmark_duration": ("duration_s", "s", "first send to last end"),
    "total_isl": ("prompt_tokens", "tok", "of successful requests"),
    "total_osl": ("output_tokens", "tok", "of successful requests"),
}
"""Metrics with one number, which stands under `avg`: ours, its unit, its meaning."""
CANCELLED = "the benchmark was cancelled"


def _metrics(document: Document) -> Mapping[str, object]:
    return mapping(document.value) if document.form is Form.JSON else {}


def _is_summary(document: Document) -> bool:
    found = _metrics(document)
    return all(
        isinstance(found.get(name), Mapping) and "unit" in mapping(found[name])
        for name in ("request_latency", "request_throughput")
    )


def _is_forerunner(document: Document) -> bool:
    found = _metrics(document)
    newer = {"benchmark_duration", "min_request_timestamp", "schema_version", "aiperf_version"}
    return _is_summary(document) and not newer & found.keys()


def _read_summary(document: Document) -> Foreign:
    found = _metrics(document)
    version = text(found.get("aiperf_version")) or text(found.get("version"))
    return Foreign(points=(_summary_point(found),), version=version)


def _summary_point(found: Mapping[str, object]) -> ForeignPoint:
    done = count(at(found, "request_count", "avg"))
    failed = count(at(found, "error_request_count", "avg"))
    numbers = [*_single(found, done), *_families(found, done)]
    numbers += speeds(numbers) if done != 0 else ()
    return ForeignPoint(
        engine=_engine(found),
        workload=_load(found),
        numbers=(*numbers, *_others(found)),
        samples=done,
        failed=failed,
        invalid=CANCELLED if found.get("was_cancelled") is True else None,
        duration_s=number(at(found, "benchmark_duration", "avg")),
    )


def _single(found: Mapping[str, object], done: int | None) -> Iterable[ForeignNumber]:
    for name, (metric, unit, meaning) in SINGLE.items():
        if isinstance(found.get(name), Mapping):
            column = Column(key=name, metric=metric, unit=unit, meaning=meaning)
            yield from told({name: at(found, name, "avg")}, [column], done)


def _families(found: Mapping[str, object], done: int | None) -> Iterable[ForeignNumber]:
    for family in LATENCIES:
        stats = mapping(found.get(family.name))
        scale = SCALES.get(str(stats.get("unit")))
        if scale is not None:
            yield from series(family.name, _numbers(stats), family, scale=scale, samples=done)
    stats = _numbers(mapping(found.get(SPEED.name)))
    yield from series(SPEED.name, stats, SPEED, unit="tok/s/user", samples=done)


def _numbers(stats: Mapping[str, object]) -> dict[str, object]:
    return {name: value for name, value in stats.items() if name != "unit"}


def _others(found: Mapping[str, object]) -> Iterable[ForeignNumber]:
    """Metrics that ours have no word for, in the tool's unit."""
    known = {*SINGLE, *(family.name for family in LATENCIES), SPEED.name}
    for name, stats in found.items():
        cells = mapping(stats)
        if name not in known and "unit" in cells:
            family = Family(name=name, prefix=None, meaning=name.replace("_", " "), statistics={})
            yield from series(name, _numbers(cells), family, unit=text(cells["unit"]) or "")


def _engine(found: Mapping[str, object]) -> dict[str, AxisValue]:
    config = mapping(found.get("input_config"))
    names = listed(at(config, "endpoint", "model_names")) or listed(config.get("model"))
    model = next((told for name in names if (told := text(name))), text(config.get("model")))
    return {} if model is None else {"model": model}


def _load(found: Mapping[str, object]) -> dict[str, AxisValue]:
    config = mapping(found.get("input_config"))
    stimulus = mapping(at(config, "perf_analyzer", "stimulus"))
    load = mapping(config.get("loadgen"))
    rate = number(load.get("request_rate")) or number(stimulus.get("request_rate"))
    slots = count(load.get("concurrency")) or count(stimulus.get("concurrency"))
    if rate is not None:
        pattern = text(load.get("arrival_pattern")) or text(load.get("request_rate_mode"))
        workload: dict[str, AxisValue] = {"load": pattern or "rate", "rate": rate}
    else:
        workload = {"load": "closed", "batch_size": slots} if slots else {}
    prompt = mapping(at(config, "input", "prompt"))
    for ours, theirs in (("prompt_tokens", "input_tokens"), ("output_tokens", "output_tokens")):
        if number(at(prompt, theirs, "stddev")) == 0:
            workload[ours] = axis(at(prompt, theirs, "mean"))
    return workload


ROW = re.compile(r"(.+?) \(([^()]+)\)")


def _table(document: Document) -> list[list[str]]:
    found = document.value if document.form is Form.CSV else []
    return [row for row in found if isinstance(row, list)] if isinstance(found, list) else []


def _is_csv(document: Document) -> bool:
    found = _table(document)
    return bool(found) and found[0][:2] in (["Metric", "avg"], ["Metric", "Value"])


def _read_csv(document: Document) -> Foreign:
    """Blocks of rows with a header each; the name of a row ends in its unit."""
    found: dict[str, object] = {}
    header: list[str] = []
    for row in _table(document):
        if row[:1] == ["Metric"]:
            header = ["avg" if name == "Value" else name for name in row[1:]]
        elif row and header and (named := ROW.fullmatch(row[0].strip())):
            cells = dict(zip(header, row[1:], strict=False))
            key = named[1].lower().replace(" ", "_")
            values = {name: number(cell) for name, cell in cells.items()}
            found[key] = {"unit": named[2]} | values
    return Foreign(points=(_summary_point(found),))


FORMATS = (
    Format(name="genai-perf", tool="GenAI-Perf", title="a GenAI-Perf summary",
           recognises=_is_forerunner, read=_read_summary, seen=False,
           expects="JSON with `request_latency`, `request_throughput`, each with a `unit`"),
    Format(name="aiperf", tool="AIPerf", title="an AIPerf summary", recognises=_is_summary,
           read=_read_summary, expects="the same with `benchmark_duration`"),
    Format(name="genai-perf-csv", tool="GenAI-Perf", title="a GenAI-Perf or AIPerf CSV",
           recognises=_is_csv, read=_read_csv, expects="CSV that begins with `Metric,avg`"),
)  # fmt: skip
