"""InferenceX rows of version 3 (since July 2026): sessions of agents, played back by AIPerf.

Latencies (seconds), rates and tokens stand in `request_metrics`, what the server says of its
caches in `server_metrics`. "itl" and "tpot" are one number there, AIPerf's inter token latency:
our TPOT by all tokens but one. Interactivity changed its definition between versions of the
tool, so ours follows from TPOT. Rates per GPU are of all devices, whatever their role.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from experiments.records import ForeignNumber
from workbench.importers.cells import at, count, mapping, number, text
from workbench.importers.foreign import (
    Column,
    Family,
    ForeignPoint,
    derived,
    latency_columns,
    leftovers,
    told,
)
from workbench.importers.inferencex_settings import (
    ENGINE_FIELDS,
    WORKLOAD_FIELDS,
    agentic,
    devices_of,
    engine_of,
    load_of,
    power_columns,
)
from workbench.importers.speeds import TPOT, speeds

STATISTICS = {"mean": "mean", "p50": "p50", "p90": "p90", "p99": "p99"}
LATENCIES = latency_columns(
    [
        Family(name="ttft", prefix="ttft_s", meaning="first chunk that bears a token - sent",
               statistics=STATISTICS),
        Family(name="tpot", prefix="tpot_compat_s", meaning=TPOT, statistics=STATISTICS),
        Family(name="e2el", prefix="e2e_s", meaning="last chunk - sent", statistics=STATISTICS),
    ],
    lambda statistic, name: f"request_metrics.latency.{name}.{statistic}",
    scale=1.0,
)  # fmt: skip
SPAN = "(last end - first send of successful requests)"
RATES = (
    Column(key="request_metrics.throughput.output.tokens_per_second", metric="output_tok_s",
           unit="tok/s", meaning=f"output tokens / {SPAN}"),
    Column(key="request_metrics.throughput.total.tokens_per_second", metric="total_tok_s",
           unit="tok/s", meaning=f"(prompt + output tokens) / {SPAN}"),
    Column(key="request_metrics.throughput.input.tokens_per_second", unit="tok/s",
           meaning=f"prompt tokens / {SPAN}"),
    Column(key="request_metrics.throughput.duration_seconds", metric="duration_s", unit="s",
           meaning=SPAN.strip("()")),
    Column(key="num_requests_successful", metric="completed_requests", unit="requests",
           meaning="successful, after warm-up"),
)  # fmt: skip
PER_DEVICE = (
    Column(key="request_metrics.throughput.per_gpu.output_tput_tps", metric="output_tok_s_device",
           unit="tok/s/device", meaning=f"output tokens / {SPAN} / all devices"),
    Column(key="request_metrics.throughput.per_gpu.total_tput_tps", metric="total_tok_s_device",
           unit="tok/s/device", meaning=f"(prompt + output tokens) / {SPAN} / all devices"),
)  # fmt: skip
FAILED = Column(key="", metric="failed_requests", unit="requests",
                meaning="ended in an error after warm-up")  # fmt: skip
REQUEST_RATE = Column(key="", metric="request_s", unit="req/s",
                      meaning=f"successful requests / {SPAN}")  # fmt: skip
SPEED_NOTE = (
    "Interactivity of sessions is 1 / TPOT here: the tool's own changed its definition between "
    "versions, and is kept under its own name."
)
DEVICES_NOTE = (
    "In {n} rows the devices and the rates per device do not fit: their number is not told."
)
CLOSE = 1e-3  # of numbers that the tool rounds to five decimals
MOST_LEVELS = 8


def recognises(row: Mapping[str, object]) -> bool:
    """Whether a row is of version 3."""
    return agentic(row) and isinstance(row.get("request_metrics"), Mapping)


def notes(found: Sequence[Mapping[str, object]]) -> list[str]:
    """What is odd in these rows, a sentence each."""
    own = any(at(row, "request_metrics", "latency", "intvty") for row in found)
    said = [SPEED_NOTE] if own else []
    odd = sum(not _fits(row) for row in found)
    return said + ([DEVICES_NOTE.format(n=odd)] if odd else [])


def point(row: Mapping[str, object]) -> ForeignPoint:
    """One row; its numbers have the path to them as their names."""
    cells = dict(_flattened(row))
    done = count(row.get("num_requests_successful"))
    devices = _devices(row) if _fits(row) else None
    numbers = told(cells, (*LATENCIES, *RATES, *power_columns(row)), done)
    numbers += told(cells, PER_DEVICE if _fits(row) else (), done)
    numbers += (*_counted(row), *(speeds(numbers) if done != 0 else ()))
    taken = {*(one.key for one in numbers), *ENGINE_FIELDS, *WORKLOAD_FIELDS}
    return ForeignPoint(
        engine=engine_of(row),
        workload=load_of(row),
        numbers=(*numbers, *leftovers(cells, taken)),
        samples=done,
        failed=_failed(row),
        devices=devices,
        invalid=_invalid(row),
        duration_s=number(at(row, "request_metrics", "throughput", "duration_seconds")),
    )


def _flattened(
    value: Mapping[str, object], path: str = "", level: int = 0
) -> Iterable[tuple[str, object]]:
    """Every cell by its path of names."""
    for name, cell in value.items():
        if isinstance(cell, Mapping):
            if level < MOST_LEVELS:
                yield from _flattened(mapping(cell), f"{path}{name}.", level + 1)
        else:
            yield f"{path}{name}", cell


def _counted(row: Mapping[str, object]) -> Iterable[ForeignNumber]:
    """What follows from counts: errors of the measured phase, the rate of requests."""
    failed, done = _failed(row), number(row.get("num_requests_successful"))
    span_s = number(at(row, "request_metrics", "throughput", "duration_seconds"))
    if failed is not None:
        yield derived("records_dropped_total - records_warmup_dropped", failed, FAILED)
    if done and span_s:
        yield derived("num_requests_successful / duration_seconds", done / span_s, REQUEST_RATE)


def _failed(row: Mapping[str, object]) -> int | None:
    """Records are dropped as warm-up, as errors or as both; what is no warm-up is an error."""
    dropped, warm = (
        count(at(row, "request_accounting", name))
        for name in ("records_dropped_total", "records_warmup_dropped")
    )
    return None if dropped is None or warm is None or dropped < warm else dropped - warm


def _devices(row: Mapping[str, object]) -> int | None:
    return count(row.get("num_gpus")) or devices_of(row)


def _fits(row: Mapping[str, object]) -> bool:
    """Whether the rates per device are the whole rates by the devices, as far as both are told."""
    throughput = mapping(at(row, "request_metrics", "throughput"))
    whole = number(at(throughput, "total", "tokens_per_second"))
    each = number(at(throughput, "per_gpu", "total_tput_tps"))
    devices = _devices(row)
    if not whole or not each or devices is None:
        return True
    return abs(each * devices - whole) <= CLOSE * whole


def _invalid(row: Mapping[str, object]) -> str | None:
    status = text(at(row, "benchmark_outcome", "status"))
    return f"its tool says of it: {status}" if status in ("failed", "failure") else None
