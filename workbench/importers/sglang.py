"""SGLang's benchmarks: `bench_serving` and `bench_one_batch`, one JSON object a run, appended.

What "ITL" is changed: gaps between chunks in older versions, spread over the tokens of a chunk
later. The file does not tell which, so it fills no metric. Random lengths with a range ratio below
1 are drawn, so they are no lengths of the workload.
"""

from __future__ import annotations

from collections.abc import Mapping

from experiments.records import AxisValue, ForeignNumber
from workbench.importers.cells import at, axis, count, mapping, number, rows, text
from workbench.importers.document import Document, Form
from workbench.importers.foreign import (
    SERVER,
    Column,
    Family,
    Foreign,
    ForeignPoint,
    Format,
    derived,
    latency_columns,
    leftovers,
    told,
)
from workbench.importers.speeds import TPOT, speeds
from workbench.importers.vllm import SERVED

FAMILIES = (
    Family(name="ttft", prefix="ttft_s", meaning="first chunk - sent"),
    Family(name="tpot", prefix="tpot_compat_s", meaning=TPOT),
    Family(name="itl", prefix=None, meaning="gaps by chunk or by token: the file does not tell"),
    Family(name="e2e_latency", prefix="e2e_s", meaning="last chunk - sent"),
)
ITL_NOTE = "ITL fills no metric: older versions count it by chunk, newer ones by token."
COLUMNS = (
    *latency_columns(FAMILIES, lambda s, name: f"{s}_{name}_ms", scale=1e-3),
    *SERVED,
    Column(key="input_throughput", metric="input_tok_s", unit="tok/s",
           meaning="prompt tokens / duration"),
    Column(key="total_throughput", metric="total_tok_s", unit="tok/s",
           meaning="(prompt + output tokens) / duration"),
    Column(key="concurrency", metric="concurrency_mean", unit="requests",
           meaning="sum of E2E / duration"),
    Column(key="accept_length", metric="acceptance_length", unit="tok/step",
           meaning="output tokens / verify steps", side=SERVER),
    Column(key="cache_hit_rate_pct", metric="cache_hit_rate", unit="", scale=0.01,
           meaning="cached / prompt tokens, per cent in the file", side=SERVER),
)  # fmt: skip
PER_SECOND = (
    ("request_s", "req/s", ("completed",)),
    ("input_tok_s", "tok/s", ("total_input_tokens",)),
    ("total_tok_s", "tok/s", ("total_input_tokens", "total_output_tokens")),
)
"""Rates that older files lack: what of it a second of the duration is."""
FIELDS = ("request_rate", "max_concurrency", "backend", "dataset_name", "random_input_len",
          "random_output_len", "random_range_ratio")  # fmt: skip


def _lines(document: Document) -> list[Mapping[str, object]]:
    if document.form not in (Form.JSON, Form.LINES):
        return []
    value = document.value
    return [mapping(value)] if isinstance(value, dict) else rows(value)


def _is_serving(document: Document) -> bool:
    found = _lines(document)
    return bool(found) and all(
        {"backend", "dataset_name", "completed", "output_throughput"} <= row.keys() for row in found
    )


def _read_serving(document: Document) -> Foreign:
    points = tuple(map(_point, _lines(document)))
    return Foreign(points=points, notes=(ITL_NOTE,))


def _point(row: Mapping[str, object]) -> ForeignPoint:
    done = count(row.get("completed"))
    found = told(row, COLUMNS, done)
    if done != 0:
        found += (*speeds(found), *_rates(row, found))
    server = at(row, "server_info")
    return ForeignPoint(
        engine=_engine(row, mapping(server)),
        workload=_load(row),
        numbers=found + leftovers(row, {*(one.key for one in found), *FIELDS}),
        samples=done,
        duration_s=number(row.get("duration")),
    )


def _engine(row: Mapping[str, object], server: Mapping[str, object]) -> dict[str, AxisValue]:
    found = {
        "model": text(row.get("model")) or text(server.get("model_path")),
        "framework": text(row.get("backend")),
        "tensor_parallel_size": axis(server.get("tp_size")),
        "dtype": text(server.get("quantization")),
    }
    return {name: value for name, value in found.items() if value is not None}


def _load(row: Mapping[str, object]) -> dict[str, AxisValue]:
    rate, most = number(row.get("request_rate")), count(row.get("max_concurrency"))
    if rate is not None:
        found: dict[str, AxisValue] = {"load": "poisson", "rate": rate, "max_concurrency": most}
    elif most is not None:
        found = {"load": "closed", "batch_size": most}
    else:
        found = {"load": "all at once", "requests": count(row.get("completed"))}
    exact = number(row.get("random_range_ratio")) == 1
    names = ("prompt_tokens", "output_tokens") if exact else ("most_prompt_tokens",
                                                             "most_output_tokens")  # fmt: skip
    lengths = (count(row.get(name)) for name in ("random_input_len", "random_output_len"))
    return found | {n: v for n, v in zip(names, lengths, strict=True) if v is not None}


def _rates(
    row: Mapping[str, object], found: tuple[ForeignNumber, ...]
) -> tuple[ForeignNumber, ...]:
    duration = number(row.get("duration"))
    known = {one.metric for one in found}
    made = []
    for metric, unit, parts in PER_SECOND:
        cells = [number(row.get(name)) for name in parts]
        if metric in known or not duration or None in cells:
            continue
        key = " + ".join(parts) + " / duration"
        column = Column(key=key, metric=metric, unit=unit, meaning=key)
        made.append(derived(key, sum(cell for cell in cells if cell) / duration, column))
    return tuple(made)


def _is_batch(document: Document) -> bool:
    found = _lines(document)
    return bool(found) and all(
        {"run_name", "batch_size", "prefill_latency", "total_latency"} <= row.keys()
        for row in found
    )


BATCH = (
    Column(key="prefill_throughput", metric="prefill_tok_s", unit="tok/s", side="timed in process",
           meaning="prompt tokens of the batch / prefill latency, one measurement"),
    Column(key="median_decode_latency", metric="decode_step_s", unit="s", side="timed in process",
           meaning="median over the decode steps of one batch"),
    Column(key="overall_throughput", metric="total_tok_s", unit="tok/s", side="timed in process",
           meaning="(prompt + output tokens) of the batch / total latency"),
    Column(key="prefill_latency", unit="s", meaning="of the batch, one measurement"),
    Column(key="total_latency", unit="s", meaning="prefill and every decode step of the batch"),
    Column(key="median_decode_throughput", unit="tok/s", meaning="batch size / median decode step"),
)  # fmt: skip


def _read_batch(document: Document) -> Foreign:
    return Foreign(points=tuple(map(_batch, _lines(document))))


def _batch(row: Mapping[str, object]) -> ForeignPoint:
    found = told(row, BATCH)
    step, batch = number(row.get("median_decode_latency")), count(row.get("batch_size"))
    if step:
        found += (derived("1 / median_decode_latency", 1 / step, Column(
            key="", metric="tok_s_user_p50", unit="tok/s/user", side="timed in process",
            meaning="one token a sequence and decode step, without a server")),)  # fmt: skip
    lengths = {"prompt_tokens": count(row.get("input_len")),
               "output_tokens": count(row.get("output_len"))}  # fmt: skip
    taken = {*(one.key for one in found), "batch_size", "input_len", "output_len", "run_name"}
    return ForeignPoint(
        engine={"framework": "sglang", "run_name": text(row.get("run_name"))},
        workload={"load": "batch", "batch_size": batch, **lengths},
        numbers=found + leftovers(row, taken),
        samples=batch,
        duration_s=number(row.get("total_latency")),
    )


FORMATS = (
    Format(name="sglang-serving", tool="SGLang bench_serving",
           title="results of `sglang.bench_serving`", recognises=_is_serving,
           read=_read_serving,
           expects="JSON lines with `backend`, `dataset_name`, `completed`, `output_throughput`"),
    Format(name="sglang-one-batch", tool="SGLang bench_one_batch",
           title="results of `sglang.bench_one_batch`", recognises=_is_batch, read=_read_batch,
           seen=False,
           expects="JSON lines with `run_name`, `batch_size`, `prefill_latency`, `total_latency`"),
)  # fmt: skip
