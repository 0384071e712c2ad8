"""LLMPerf: the flat summary of a run, and its list of requests.

"inter_token_latency_s" is E2E / output tokens there: TTFT is in it, so it is no TPOT.
"""

from __future__ import annotations

from collections.abc import Mapping

from experiments.records import AxisValue, ForeignNumber
from workbench.importers.cells import count, mapping, number, rows, text
from workbench.importers.document import Document, Form
from workbench.importers.foreign import (
    Column,
    Family,
    Foreign,
    ForeignPoint,
    Format,
    latency_columns,
    leftovers,
    told,
)
from workbench.importers.speeds import harmonic, sampled

PER_TOKEN = "E2E / output tokens: TTFT is in it"
STATISTICS = {"mean": "mean", "quantiles_p50": "p50", "quantiles_p90": "p90",
              "quantiles_p99": "p99"}  # fmt: skip
FAMILIES = (
    Family(name="ttft_s", prefix="ttft_s", meaning="first chunk - sent", statistics=STATISTICS),
    Family(name="inter_token_latency_s", prefix="e2e_token_s", meaning=PER_TOKEN,
           statistics=STATISTICS),
    Family(name="end_to_end_latency_s", prefix="e2e_s", meaning="last chunk - sent",
           statistics=STATISTICS),
)  # fmt: skip
COLUMNS = (
    *latency_columns(FAMILIES, lambda s, name: f"results_{name}_{s}", scale=1.0),
    Column(key="results_mean_output_throughput_token_per_s", metric="output_tok_s", unit="tok/s",
           meaning="output tokens / time of the run"),
    Column(key="results_num_completed_requests_per_min", metric="request_s", unit="req/s",
           scale=1 / 60, meaning="completed requests / time of the run, a minute in the file"),
    Column(key="results_num_completed_requests", metric="completed_requests", unit="requests",
           meaning="successful"),
    Column(key="results_number_errors", metric="failed_requests", unit="requests",
           meaning="ended in an error"),
    Column(key="results_error_rate", metric="error_rate", unit="", meaning="errors / started"),
)  # fmt: skip
FIELDS = ("model", "framework", "num_concurrent_requests", "mean_input_tokens",
          "mean_output_tokens")  # fmt: skip


def _is_summary(document: Document) -> bool:
    found = mapping(document.value) if document.form is Form.JSON else {}
    return {"results_ttft_s_mean", "results_num_completed_requests"} <= found.keys()


def _read_summary(document: Document) -> Foreign:
    row = mapping(document.value)
    done = count(row.get("results_num_completed_requests"))
    found = told(row, COLUMNS, done)
    engine = {"model": text(row.get("model")), "framework": text(row.get("framework"))}
    point = ForeignPoint(
        engine={name: value for name, value in engine.items() if value is not None},
        workload=_load(row),
        numbers=found + leftovers(row, {*(one.key for one in found), *FIELDS}),
        samples=done,
        failed=count(row.get("results_number_errors")),
    )
    return Foreign(points=(point,), version=text(row.get("version")))


def _load(row: Mapping[str, object]) -> dict[str, AxisValue]:
    found: dict[str, AxisValue] = {
        "load": "closed",
        "batch_size": count(row.get("num_concurrent_requests")),
    }
    for ours, theirs in (("prompt_tokens", "input"), ("output_tokens", "output")):
        if number(row.get(f"stddev_{theirs}_tokens")) == 0:
            found[ours] = count(row.get(f"mean_{theirs}_tokens"))
    return found


def _is_requests(document: Document) -> bool:
    found = rows(document.value) if document.form is Form.JSON else []
    return bool(found) and all(
        {"ttft_s", "end_to_end_latency_s", "number_output_tokens"} <= row.keys() for row in found
    )


def _read_requests(document: Document) -> Foreign:
    every = rows(document.value)
    good = [row for row in every if row.get("error_code") is None]
    cells = [
        tuple(
            number(row.get(name))
            for name in ("end_to_end_latency_s", "ttft_s", "number_output_tokens")
        )
        for row in good
    ]
    point = ForeignPoint(
        engine={},
        workload={},
        numbers=tuple(_numbers([(e, t, n) for e, t, n in cells if e and t and n])),
        samples=len(good),
        failed=len(every) - len(good),
    )
    return Foreign(points=(point,))


def _numbers(cells: list[tuple[float, float, float]]) -> list[ForeignNumber]:
    times, firsts, tokens = ([one[k] for one in cells] for k in range(3))
    per_token = [e / n for e, _, n in cells]
    key = "end_to_end_latency_s, ttft_s, number_output_tokens"
    return [
        *sampled("end_to_end_latency_s", "e2e_s", "last chunk - sent", times),
        *sampled("ttft_s", "ttft_s", "first chunk - sent", firsts),
        *sampled("end_to_end_latency_s / number_output_tokens", "e2e_token_s", PER_TOKEN,
                 per_token),
        *harmonic(times, firsts, tokens, key),
    ]  # fmt: skip


FORMATS = (
    Format(name="llmperf", tool="LLMPerf", title="an LLMPerf summary", recognises=_is_summary,
           read=_read_summary, expects="JSON with `results_ttft_s_mean`"),
    Format(name="llmperf-requests", tool="LLMPerf", title="LLMPerf's list of requests",
           recognises=_is_requests, read=_read_requests,
           expects="JSON list with `ttft_s`, `end_to_end_latency_s`, `number_output_tokens`"),
)  # fmt: skip
