"""GuideLLM reports, as JSON or YAML: version 2 (0.7 and later) and those before it.

"inter_token_latency" is a request's TPOT, counted as often as the request has gaps; so its mean is
the reciprocal of our interactivity. "time_per_output_token" is E2E / output tokens. A group of
count 0 carries zeros, which are no numbers.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping

from experiments.records import AxisValue, ForeignNumber
from workbench.importers.cells import at, count, mapping, number, rows, text
from workbench.importers.document import Document, Form
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
from workbench.importers.speeds import TPOT, speeds

GAPS = "each request counted once a token after its first"
STATISTICS = {"mean": "mean", "median": "p50", "p90": "p90", "p99": "p99"}
FAMILIES = (
    ("request_latency", "e2e_s", "last token - sent", 1.0),
    ("time_to_first_token_ms", "ttft_s", "first token - sent", 1e-3),
    ("time_to_first_output_token_ms", "ttfo_s", "first token that is not reasoning - sent", 1e-3),
    ("inter_token_latency_ms", "tpot_compat_s", f"{TPOT}, {GAPS}", 1e-3),
    ("time_per_output_token_ms", "e2e_token_s", "E2E / output tokens, once a token", 1e-3),
)
MEANS = {
    "output_tokens_per_second": ("output_tok_s", "tok/s", "output tokens / time"),
    "prompt_tokens_per_second": ("input_tok_s", "tok/s", "prompt tokens / time"),
    "tokens_per_second": ("total_tok_s", "tok/s", "(prompt + output tokens) / time"),
    "requests_per_second": ("request_s", "req/s", "requests / time"),
    "request_concurrency": ("concurrency_mean", "requests", "requests in flight, over time"),
    "output_tokens_per_iteration": ("tokens_per_chunk", "tok", "output tokens / chunks"),
}
SUMS = {
    "prompt_token_count": ("prompt_tokens", "tok", "of successful requests"),
    "output_token_count": ("output_tokens", "tok", "of successful requests"),
}
ZEROS = "Groups of statistics with count 0 carry zeros there: they are missing here."


def _report(document: Document) -> Mapping[str, object]:
    return mapping(document.value) if document.form in (Form.JSON, Form.YAML) else {}


def _recognises(document: Document) -> bool:
    found = rows(_report(document).get("benchmarks"))
    return bool(found) and all(
        "request_latency" in mapping(one.get("metrics"))
        or "request_concurrency" in mapping(one.get("metrics"))
        for one in found
    )


def _read(document: Document) -> Foreign:
    report = _report(document)
    found = rows(report.get("benchmarks"))
    version = text(at(report, "metadata", "guidellm_version"))
    empty = any(_group(one, name).get("count") == 0 for one in found for name, *_ in FAMILIES)
    return Foreign(
        points=tuple(_point(one, report) for one in found),
        version=version,
        notes=(ZEROS,) if empty else (),
    )


def _point(one: Mapping[str, object], report: Mapping[str, object]) -> ForeignPoint:
    requests = _requests(one)
    done = count(requests.get("successful"))
    found = [*_latencies(one), *_means(one), *_sums(one)]
    found += speeds(found)
    mean = next((n.value for n in found if n.metric == "tpot_compat_s_mean"), None)
    if isinstance(mean, float) and mean > 0:
        found.append(derived("1000 / mean of inter_token_latency_ms", 1 / mean, Column(
            key="", metric="tok_s_user", unit="tok/s/user",
            meaning="sum(output tokens - 1) / sum(E2E - TTFT)")))  # fmt: skip
    return ForeignPoint(
        engine=_engine(one, report),
        workload=_load(one, report),
        numbers=tuple(found),
        samples=done,
        failed=count(requests.get("errored")),
        duration_s=number(one.get("duration")),
    )


def _requests(one: Mapping[str, object]) -> Mapping[str, object]:
    paths = (("metrics", "request_totals"), ("scheduler_metrics", "requests_made"),
             ("run_stats", "requests_made"), ("request_totals",))  # fmt: skip
    return next((told for path in paths if (told := mapping(at(one, *path)))), {})


def _group(one: Mapping[str, object], name: str) -> Mapping[str, object]:
    """The statistics of successful requests."""
    return mapping(at(one, "metrics", name, "successful"))


def _latencies(one: Mapping[str, object]) -> Iterable[ForeignNumber]:
    for name, prefix, meaning, scale in FAMILIES:
        group = _group(one, name)
        stats = {n: value for n, value in group.items() if n not in ("count", "total_sum")}
        stats |= mapping(group.get("percentiles"))
        family = Family(name=name, prefix=prefix, meaning=meaning, statistics=STATISTICS)
        n = count(group.get("count"))
        yield from series(name, stats, family, scale=scale, samples=n)


def _means(one: Mapping[str, object]) -> Iterable[ForeignNumber]:
    for name, (metric, unit, meaning) in MEANS.items():
        group = _group(one, name)
        column = Column(key="mean", metric=metric, unit=unit, meaning=meaning)
        for number_ in told(group, [column], count(group.get("count"))):
            yield _renamed(number_, f"{name}.mean")


def _sums(one: Mapping[str, object]) -> Iterable[ForeignNumber]:
    for name, (metric, unit, meaning) in SUMS.items():
        column = Column(key="total_sum", metric=metric, unit=unit, meaning=meaning)
        for number_ in told(_group(one, name), [column]):
            yield _renamed(number_, f"{name}.total_sum")
    columns = (
        Column(key="successful", metric="completed_requests", unit="requests",
               meaning="successful"),
        Column(key="errored", metric="failed_requests", unit="requests",
               meaning="ended in an error"),
        Column(key="incomplete", metric="cancelled_requests", unit="requests",
               meaning="cut off at the end"),
    )  # fmt: skip
    yield from told(_requests(one), columns)


def _renamed(found: ForeignNumber, key: str) -> ForeignNumber:
    return dataclasses.replace(found, key=key)


def _engine(one: Mapping[str, object], report: Mapping[str, object]) -> dict[str, AxisValue]:
    paths = ((report, ("config", "spec", "backend", "model")), (report, ("args", "model")),
             (one, ("config", "backend", "model")), (one, ("benchmarker", "backend", "model")),
             (one, ("worker", "backend_model")))  # fmt: skip
    model = next((told for where, path in paths if (told := text(at(where, *path)))), None)
    return {} if model is None else {"model": model}


def _load(one: Mapping[str, object], report: Mapping[str, object]) -> dict[str, AxisValue]:
    paths = (("config", "strategy"), ("args", "strategy"), ("scheduler", "strategy"))
    strategy = next((told for path in paths if (told := mapping(at(one, *path)))), {})
    kind = text(strategy.get("type_")) or text(strategy.get("kind"))
    rate = number(strategy.get("rate"))
    streams = count(strategy.get("streams"))
    if kind in ("constant", "poisson", "async") and rate is not None:
        found: dict[str, AxisValue] = {"load": "constant" if kind == "async" else kind,
                                       "rate": rate}  # fmt: skip
    elif kind == "concurrent" and streams is not None:
        found = {"load": "closed", "batch_size": streams}
    elif kind == "synchronous":
        found = {"load": "closed", "batch_size": 1}
    else:
        found = {"load": "all at once" if kind == "throughput" else kind}
    return found | _lengths(report)


def _lengths(report: Mapping[str, object]) -> dict[str, AxisValue]:
    """Lengths of synthetic text that does not vary."""
    spec = next(iter(rows(at(report, "config", "spec", "data"))), {})
    found: dict[str, AxisValue] = {}
    for name in ("prompt_tokens", "output_tokens"):
        length = count(spec.get(name))
        if length is not None and not number(spec.get(f"{name}_stdev")):
            found[name] = length
    return found


FORMATS = (
    Format(name="guidellm", tool="GuideLLM", title="a GuideLLM report", recognises=_recognises,
           read=_read, unseen="reports before 0.7",
           expects="JSON or YAML with `benchmarks` that have `metrics`"),
)  # fmt: skip
