"""InferenceX (formerly InferenceMAX): rows of its aggregate files, of its app, of SLO runs.

Times are seconds. `tput_per_gpu` counts prompt and output tokens over all devices; where prefill
and decode have devices of their own, input and output rates are per device of their role, so they
are no rates per device. `std_intvty` is 1 / std(TPOT), which is no spread of anything: dropped.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from experiments.records import AxisValue, ForeignNumber
from workbench.importers.cells import axis, count, flag, mapping, number, rows, text
from workbench.importers.document import Document, Form, unknown
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
from workbench.importers.speeds import TPOT, speeds
from workbench.importers.vllm import SERVED

STATISTICS = {"mean": "mean", "median": "p50", "p90": "p90", "p99": "p99"}
FAMILIES = (
    Family(name="ttft", prefix="ttft_s", meaning="first chunk - sent"),
    Family(name="tpot", prefix="tpot_compat_s", meaning=TPOT),
    Family(name="itl", prefix="icl_s", meaning="gaps between chunks, not tokens, pooled"),
    Family(name="e2el", prefix="e2e_s", meaning="last chunk - sent"),
)
LATENCIES = latency_columns(FAMILIES, lambda s, name: f"{s}_{name}", scale=1.0)
RATES = (
    Column(key="median_intvty", metric="tok_s_user_p50", unit="tok/s/user",
           meaning=f"1 / median({TPOT})"),
    Column(key="p99_intvty", metric="tok_s_user_p1", unit="tok/s/user",
           meaning=f"1 / p99({TPOT})"),
    Column(key="observed_tokens_per_step", metric="acceptance_length", unit="tok/step",
           meaning="output tokens / decode steps"),
)  # fmt: skip
TOTAL = Column(
    key="tput_per_gpu", metric="total_tok_s_device", unit="tok/s/device",
    meaning="(prompt + output tokens) / time / devices",
)  # fmt: skip
OUTPUT = Column(
    key="output_tput_per_gpu", metric="output_tok_s_device", unit="tok/s/device",
    meaning="output tokens / time / devices",
)  # fmt: skip
SPREADS = re.compile(r"(std|min)_\w*intvty")
SPREAD_NOTE = (
    "std_intvty was dropped: it is 1 / std(TPOT), which is no spread of the interactivity."
)
ROLE_NOTE = (
    "In {n} rows input and output rates do not add up to the total: they are per device of a "
    "role (prefill or decode), and are kept under their own names only."
)
TOTAL_NOTE = (
    "In {n} rows tput_per_gpu equals output_tput_per_gpu although there are prompts: it is no "
    "total, and is kept under its own name only."
)
ENGINE_FIELDS = {
    "model": "model",
    "hw": "accelerator",
    "hardware": "accelerator",
    "precision": "dtype",
    "framework": "framework",
    "tp": "tensor_parallel_size",
    "pp": "pipeline_parallel_size",
    "ep": "expert_parallel_size",
    "dp_attention": "attention_data_parallel",
    "spec_decoding": "spec_decoding",
    "spec_method": "spec_decoding",
    "mtp": "spec_decoding",
    "disagg": "disaggregated",
    "image": "image",
    "decode_tp": "decode_tensor_parallel_size",
    "decode_ep": "decode_expert_parallel_size",
    "decode_dp_attention": "decode_attention_data_parallel",
    "prefill_tp": "prefill_tensor_parallel_size",
    "prefill_ep": "prefill_expert_parallel_size",
    "prefill_dp_attention": "prefill_attention_data_parallel",
}
WORKLOAD_FIELDS = {"conc": "batch_size", "isl": "prompt_tokens", "osl": "output_tokens"}
CLOSE = 1e-6


def _is_rows(document: Document) -> bool:
    found = _rows(document)
    return bool(found) and all("tput_per_gpu" in _flat(row) for row in found)


def _rows(document: Document) -> list[Mapping[str, object]]:
    if document.form not in (Form.JSON, Form.LINES):
        return []
    value = document.value
    return [mapping(value)] if isinstance(value, dict) else rows(value)


def _flat(row: Mapping[str, object]) -> dict[str, object]:
    """A row of the app's dump has its numbers in `metrics` and its settings in `config`."""
    nested = {**mapping(row.get("config")), **mapping(row.get("metrics"))}
    return {n: cell for n, cell in row.items() if n not in ("config", "metrics")} | nested


def _read(document: Document) -> Foreign:
    cells = [_flat(row) for row in _rows(document)]
    local = sum(_is_role_local(row) for row in cells)
    no_total = sum(_is_no_total(row) for row in cells)
    spread = any(SPREADS.fullmatch(name) for row in cells for name in row)
    notes = [SPREAD_NOTE] if spread else []
    notes += [ROLE_NOTE.format(n=local)] if local else []
    notes += [TOTAL_NOTE.format(n=no_total)] if no_total else []
    if any(name.startswith("joules_per") for row in cells for name in row):
        notes.append(
            "Energy and power are kept under their own names: what they sum is not told here."
        )
    return Foreign(points=tuple(map(_point, cells)), notes=tuple(notes))


def _point(row: Mapping[str, object]) -> ForeignPoint:
    return ForeignPoint(
        engine=_fields(row, ENGINE_FIELDS),
        workload={**_fields(row, WORKLOAD_FIELDS), "load": "closed"},
        numbers=_numbers(row),
        devices=_devices(row),
    )


def _fields(row: Mapping[str, object], names: Mapping[str, str]) -> dict[str, AxisValue]:
    found = {ours: axis(row[theirs]) for theirs, ours in names.items() if theirs in row}
    return {name: value for name, value in found.items() if value is not None}


def _numbers(row: Mapping[str, object]) -> tuple[ForeignNumber, ...]:
    columns = [*LATENCIES, *RATES]
    if not _is_role_local(row):
        columns.append(OUTPUT)
    if not _is_no_total(row):
        columns.append(TOTAL)
    found = told(row, columns)
    found += speeds(found)
    taken = {*(one.key for one in found), *ENGINE_FIELDS, *WORKLOAD_FIELDS}
    dropped = [name for name in row if SPREADS.fullmatch(name)]
    return found + leftovers(row, taken, dropped)


def _is_role_local(row: Mapping[str, object]) -> bool:
    """Whether input and output rates have other divisors than the total."""
    total, output, prompt = (
        number(row.get(f"{kind}tput_per_gpu")) for kind in ("", "output_", "input_")
    )
    if flag(row.get("disagg")) is True:
        return True
    if total is None or output is None or prompt is None:
        return False
    return abs(prompt + output - total) > CLOSE * max(total, 1.0)


def _is_no_total(row: Mapping[str, object]) -> bool:
    total, output = (number(row.get(f"{kind}tput_per_gpu")) for kind in ("", "output_"))
    return total is not None and total == output and bool(count(row.get("isl")))


def _devices(row: Mapping[str, object]) -> int | None:
    """By the format's own rule: tp x pp x pcp of one node, prefill + decode if disaggregated."""
    prefill, decode = count(row.get("num_prefill_gpu")), count(row.get("num_decode_gpu"))
    if prefill is not None and decode is not None:
        return (prefill + decode if flag(row.get("disagg")) else max(prefill, decode)) or None
    ranks = count(row.get("tp"))
    if ranks is None or _is_role_local(row):
        return None
    return ranks * _size(row, ("pp",)) * _size(row, ("pcp_size", "pcp")) or None


def _size(row: Mapping[str, object], names: Iterable[str]) -> int:
    return next((found for name in names if (found := count(row.get(name)))), 1)


def _is_slo(document: Document) -> bool:
    row = mapping(document.value)
    return {"model_id", "duration", "median_ttft", "median_tpot"} <= row.keys()


SLO_COLUMNS = (
    *LATENCIES,
    *SERVED,
    Column(key="input_throughput", metric="input_tok_s", unit="tok/s",
           meaning="prompt tokens / duration"),
)  # fmt: skip


def _read_slo(document: Document) -> Foreign:
    row = mapping(document.value)
    done = count(row.get("completed"))
    found = told(row, SLO_COLUMNS, done)
    found += speeds(found) if done != 0 else ()
    taken = {*(one.key for one in found), "model_id", "max_concurrency"}
    point = ForeignPoint(
        engine={"model": text(row.get("model_id"))},
        workload={"load": "closed", "batch_size": count(row.get("max_concurrency"))},
        numbers=found + leftovers(row, taken),
        samples=done,
        duration_s=number(row.get("duration")),
    )
    return Foreign(points=(point,))


def _is_matrix(document: Document) -> bool:
    found = _rows(document)
    return bool(found) and all({"image", "runner", "conc", "tp"} <= row.keys() for row in found)


def _read_matrix(document: Document) -> Foreign:
    raise unknown(
        document.path,
        f"is a matrix of {len(_rows(document)):,} InferenceX configurations, without a result.",
        "Import the aggregate file of the same sweep.",
    )


FORMATS = (
    Format(name="inferencex", tool="InferenceX", title="InferenceX rows",
           recognises=_is_rows, read=_read, unseen="rows of its app (`metrics`, `config`)",
           expects="JSON rows with `tput_per_gpu`"),
    Format(name="inferencex-slo", tool="InferenceX", title="an InferenceX SLO result",
           recognises=_is_slo, read=_read_slo,
           expects="JSON with `model_id`, `duration`, `median_ttft` in seconds"),
    Format(name="inferencex-matrix", tool="InferenceX", title="an InferenceX sweep matrix",
           recognises=_is_matrix, read=_read_matrix, expects="JSON rows with `image`, `runner`"),
)  # fmt: skip
