"""inference-perf: the metrics of one stage or of all, in seconds.

Some versions count a chunk as a token: then "time_per_output_token" is far below what E2E, TTFT
and the lengths of the same file give, and fills no metric.
"""

from __future__ import annotations

from collections.abc import Mapping

from experiments.records import AxisValue, ForeignNumber
from workbench.importers.cells import at, count, mapping, number
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

TOLERANCE = 0.25  # of the mean TPOT that the other means give: lengths and times go together
NAMES = {
    "request_latency": ("e2e_s", "last chunk - sent"),
    "time_to_first_token": ("ttft_s", "first chunk - sent"),
    "time_per_output_token": ("tpot_compat_s", TPOT),
    "normalized_time_per_output_token": ("e2e_token_s", "E2E / output tokens"),
    "inter_token_latency": ("icl_s", "gaps between chunks, not tokens, pooled"),
}
THROUGHPUT = (
    Column(key="output_tokens_per_sec", metric="output_tok_s", unit="tok/s",
           meaning="output tokens / time"),
    Column(key="input_tokens_per_sec", metric="input_tok_s", unit="tok/s",
           meaning="prompt tokens / time"),
    Column(key="total_tokens_per_sec", metric="total_tok_s", unit="tok/s",
           meaning="(prompt + output tokens) / time"),
    Column(key="requests_per_sec", metric="request_s", unit="req/s",
           meaning="successful requests / time"),
)  # fmt: skip
COUNTS = (
    Column(key="successes.count", metric="completed_requests", unit="requests",
           meaning="successful"),
    Column(key="failures.count", metric="failed_requests", unit="requests",
           meaning="ended in an error"),
)  # fmt: skip
CHUNKS = (
    "time_per_output_token is {ratio:.2f} of what E2E, TTFT and the lengths of this file give: it "
    "counts chunks, not tokens, and fills no metric."
)


def _recognises(document: Document) -> bool:
    found = mapping(document.value) if document.form is Form.JSON else {}
    return {"load_summary", "successes", "failures"} <= found.keys()


def _read(document: Document) -> Foreign:
    report = mapping(document.value)
    done, ratio = count(at(report, "successes", "count")), _ratio(report)
    plain = ratio is None or abs(ratio - 1) <= TOLERANCE
    found = [*_latencies(report, done, plain=plain), *_rates(report, done)]
    if done != 0:
        found += speeds(found)
    failed = count(at(report, "failures", "count"))
    point = ForeignPoint(
        engine={},
        workload=_load(report),
        numbers=tuple(found),
        samples=done,
        failed=failed,
    )
    notes = () if plain or ratio is None else (CHUNKS.format(ratio=ratio),)
    return Foreign(points=(point,), notes=notes)


def _ratio(report: Mapping[str, object]) -> float | None:
    """The mean TPOT told, over the one that the means of the other numbers give."""
    latency = at(report, "successes", "latency")
    e2e, ttft, tpot = (
        number(at(latency, name, "mean"))
        for name in ("request_latency", "time_to_first_token", "time_per_output_token")
    )
    tokens = number(at(report, "successes", "output_len", "mean"))
    if e2e is None or ttft is None or tpot is None or tokens is None:
        return None
    return tpot * (tokens - 1) / (e2e - ttft) if tokens > 1 and e2e > ttft else None


def _latencies(
    report: Mapping[str, object], done: int | None, *, plain: bool
) -> list[ForeignNumber]:
    statistics = {"mean": "mean", "median": "p50", "p90": "p90", "p99": "p99"}
    found: list[ForeignNumber] = []
    for name, (prefix, meaning) in NAMES.items():
        kept = None if name == "time_per_output_token" and not plain else prefix
        family = Family(name=name, prefix=kept, meaning=meaning, statistics=statistics)
        stats = mapping(at(report, "successes", "latency", name))
        found += series(name, stats, family, samples=done)
    return found


def _rates(report: Mapping[str, object], done: int | None) -> list[ForeignNumber]:
    achieved = Column(key="achieved_rate", metric="achieved_request_s", unit="req/s",
                      meaning="requests sent / time of sending")  # fmt: skip
    counts = {
        f"{group}.count": at(report, group, "count")
        for group in ("successes", "failures")
        if at(report, group, "count") is not None
    }
    delay = Family(name="schedule_delay", prefix=None, meaning="sent - scheduled", statistics={})
    return [
        *told(mapping(at(report, "successes", "throughput")), THROUGHPUT, done),
        *told(mapping(report.get("load_summary")), [achieved]),
        *told(counts, COUNTS),
        *series("schedule_delay", mapping(at(report, "load_summary", "schedule_delay")), delay),
    ]


def _load(report: Mapping[str, object]) -> dict[str, AxisValue]:
    rate = number(at(report, "load_summary", "requested_rate"))
    return {} if rate is None else {"load": "rate", "rate": rate}


FORMATS = (
    Format(name="inference-perf", tool="inference-perf", title="inference-perf lifecycle metrics",
           recognises=_recognises, read=_read,
           expects="JSON with `load_summary`, `successes`, `failures`"),
)  # fmt: skip
