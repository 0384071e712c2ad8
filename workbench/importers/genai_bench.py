"""genai-bench: the aggregate of one scenario at one concurrency, times in the unit it names."""

from __future__ import annotations

import re
from collections.abc import Mapping

from experiments.records import AxisValue, ForeignNumber
from workbench.importers.cells import count, mapping, number, text
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
from workbench.importers.speeds import TPOT

STATISTICS = {"mean": "mean", "p50": "p50", "p90": "p90", "p99": "p99"}
FAMILIES = (
    Family(name="ttft", prefix="ttft_s", meaning="first chunk - sent", statistics=STATISTICS),
    Family(name="tpot", prefix="tpot_compat_s", meaning=TPOT, statistics=STATISTICS),
    Family(name="e2e_latency", prefix="e2e_s", meaning="last chunk - sent", statistics=STATISTICS),
    Family(name="output_latency", prefix=None, meaning="E2E - TTFT", statistics={}),
)
SPEED = Family(name="output_inference_speed", prefix="tok_s_user", meaning=f"1 / ({TPOT})",
               statistics={"p50": "p50"})  # fmt: skip
COLUMNS = (
    Column(key="mean_output_throughput_tokens_per_s", metric="output_tok_s", unit="tok/s",
           meaning="output tokens / duration"),
    Column(key="mean_input_throughput_tokens_per_s", metric="input_tok_s", unit="tok/s",
           meaning="prompt tokens / duration"),
    Column(key="mean_total_tokens_throughput_tokens_per_s", metric="total_tok_s", unit="tok/s",
           meaning="(prompt + output tokens) / duration"),
    Column(key="requests_per_second", metric="request_s", unit="req/s",
           meaning="completed requests / duration"),
    Column(key="run_duration", metric="duration_s", unit="s", meaning="of the run"),
    Column(key="num_completed_requests", metric="completed_requests", unit="requests",
           meaning="successful"),
    Column(key="num_error_requests", metric="failed_requests", unit="requests",
           meaning="ended in an error"),
    Column(key="error_rate", metric="error_rate", unit="", meaning="errors / all requests"),
    Column(key="arrival_requests_per_second", metric="achieved_request_s", unit="req/s",
           meaning="requests that arrived / time"),
)  # fmt: skip
FIXED = re.compile(r"D\((\d+),\s*(\d+)\)")  # a scenario of fixed lengths
UNITS = {"s": 1.0, "ms": 1e-3}


def _recognises(document: Document) -> bool:
    found = mapping(document.value) if document.form is Form.JSON else {}
    return {"stats", "num_completed_requests", "run_duration"} <= _aggregate(found).keys()


def _aggregate(found: Mapping[str, object]) -> Mapping[str, object]:
    return mapping(found.get("aggregated_metrics", found))


def _read(document: Document) -> Foreign:
    report = mapping(document.value)
    found, scale = _aggregate(report), UNITS.get(str(report.get("_time_unit", "s")), 1.0)
    done = count(found.get("num_completed_requests"))
    taken = {*(one.key for one in COLUMNS), "scenario", "num_concurrency", "iteration_type"}
    numbers = (*told(found, COLUMNS, done), *_statistics(found, scale, done))
    point = ForeignPoint(
        engine={},
        workload=_load(found),
        numbers=numbers + leftovers(found, taken),
        samples=done,
        failed=count(found.get("num_error_requests")),
        duration_s=number(found.get("run_duration")),
    )
    return Foreign(points=(point,))


def _statistics(
    found: Mapping[str, object], scale: float, done: int | None
) -> tuple[ForeignNumber, ...]:
    stats = mapping(found.get("stats"))
    told_ = [
        one
        for family in FAMILIES
        for one in series(family.name, mapping(stats.get(family.name)), family, scale=scale,
                          samples=done)
    ]  # fmt: skip
    speed = mapping(stats.get(SPEED.name))
    return (*told_, *series(SPEED.name, speed, SPEED, unit="tok/s/user", samples=done))


def _load(found: Mapping[str, object]) -> dict[str, AxisValue]:
    slots = number(found.get("num_concurrency"))
    if text(found.get("iteration_type")) == "num_concurrency":
        workload: dict[str, AxisValue] = {"load": "closed", "batch_size": count(slots)}
    else:
        workload = {"load": text(found.get("iteration_type"))}
    scenario = text(found.get("scenario")) or ""
    fixed = FIXED.fullmatch(scenario)
    if fixed is not None:
        return workload | {"prompt_tokens": int(fixed[1]), "output_tokens": int(fixed[2])}
    return workload | {"scenario": scenario} if scenario else workload


FORMATS = (
    Format(name="genai-bench", tool="genai-bench", title="genai-bench metrics of one load",
           recognises=_recognises, read=_read,
           expects="JSON with `aggregated_metrics` that have `stats`"),
)  # fmt: skip
