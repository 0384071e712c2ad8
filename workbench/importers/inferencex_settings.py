"""What InferenceX rows of every version tell of their configuration, devices, load and power."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from experiments.records import AxisValue
from workbench.importers.cells import axis, count, flag, mapping, number, rows, text
from workbench.importers.document import Document, Form
from workbench.importers.foreign import Column

ENGINE_FIELDS = {
    "model": "model",
    "hw": "accelerator",
    "hardware": "accelerator",
    "precision": "dtype",
    "framework": "framework",
    "tp": "tensor_parallel_size",
    "ep": "expert_parallel_size",
    "dp_attention": "attention_data_parallel",
    "spec_decoding": "spec_decoding",
    "spec_method": "spec_decoding",
    "mtp": "spec_decoding",
    "disagg": "disaggregated",
    "pp": "pipeline_parallel_size",
    "dcp_size": "decode_context_parallel_size",
    "pcp_size": "prefill_context_parallel_size",
    "kv_offloading": "kv_offloading",
    "offloading": "kv_offloading",
    "offload_mode": "kv_offloading",
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
CLUSTER = "cluster:"  # before the name of a runner
POWER_VERSION = 2  # the first whose power and energy are those of all devices
POWER = (
    Column(key="total_gpu_energy_j", metric="energy_j", unit="J",
           meaning="integral of the sampled power of all devices over the measured time"),
    Column(key="joules_per_output_token", metric="energy_j_token_integral", unit="J/tok",
           meaning="integral of the sampled power of all devices / output tokens"),
    Column(key="avg_total_gpu_power_w", metric="device_power_w", unit="W",
           meaning="mean power of all devices, summed over devices"),
)  # fmt: skip
POWER_NOTE = (
    "Energy and power of {n} rows are kept under their own names: they were found invalid, or "
    "have no version that tells what they sum."
)


def rows_of(document: Document) -> list[Mapping[str, object]]:
    """The rows of a list, or the one that stands alone."""
    if document.form not in (Form.JSON, Form.LINES):
        return []
    value = document.value
    return [mapping(value)] if isinstance(value, dict) else rows(value)


def flat(row: Mapping[str, object]) -> dict[str, object]:
    """A row of the app's dump has its numbers in `metrics` and its settings in `config`."""
    nested = {**mapping(row.get("config")), **mapping(row.get("metrics"))}
    return {n: cell for n, cell in row.items() if n not in ("config", "metrics")} | nested


def fields_of(row: Mapping[str, object], names: Mapping[str, str]) -> dict[str, AxisValue]:
    """The settings that a row tells, of `names`: theirs -> ours."""
    found = {ours: axis(row[theirs]) for theirs, ours in names.items() if theirs in row}
    return {name: value for name, value in found.items() if value is not None}


def agentic(row: Mapping[str, object]) -> bool:
    """Whether requests are turns of sessions, which are played back from traces."""
    kind = text(row.get("scenario_type")) or text(row.get("benchmark_type")) or ""
    return kind.startswith("agentic")


def load_of(row: Mapping[str, object]) -> dict[str, AxisValue]:
    """A closed loop of requests, or of sessions, which older rows call users."""
    if not agentic(row):
        return {**fields_of(row, WORKLOAD_FIELDS), "load": "closed"}
    users = count(row.get("users")) or count(row.get("conc"))
    dataset = mapping(row.get("dataset"))
    found: dict[str, AxisValue] = {
        "load": "sessions",
        "concurrency": users,
        "dataset": text(dataset.get("hf_dataset_name")) or text(dataset.get("loader")),
    }
    return {name: value for name, value in found.items() if value is not None}


def engine_of(row: Mapping[str, object]) -> dict[str, AxisValue]:
    """The configuration, the router and the store of offloaded caches by their names."""
    found = fields_of(row, ENGINE_FIELDS)
    for name in ("router", "kv_offload_backend"):
        told = text(row.get(name)) or text(mapping(row.get(name)).get("name"))
        found |= {} if told is None else {name: told}
    runner = found.get("accelerator")
    if isinstance(runner, str):
        found["accelerator"] = runner.removeprefix(CLUSTER)
    return found


def power_columns(row: Mapping[str, object]) -> tuple[Column, ...]:
    """Of rows that say which version of power they carry and that it is valid."""
    version, valid = count(row.get("power_metric_schema_version")), count(row.get("power_valid"))
    return POWER if version == POWER_VERSION and valid == 1 else ()


def power_notes(found: Iterable[Mapping[str, object]]) -> list[str]:
    """That some rows tell power that fills no metric."""
    names = {column.key for column in POWER} | {"avg_power_w"}
    left = sum(not power_columns(row) and bool(names & row.keys()) for row in found)
    return [POWER_NOTE.format(n=left)] if left else []


def devices_of(row: Mapping[str, object]) -> int | None:
    """By the format's own rule: tp x pp x pcp of one node, prefill + decode if disaggregated."""
    prefill, decode = count(row.get("num_prefill_gpu")), count(row.get("num_decode_gpu"))
    if prefill is not None and decode is not None:
        return (prefill + decode if flag(row.get("disagg")) else max(prefill, decode)) or None
    ranks = count(row.get("tp"))
    if ranks is None or is_role_local(row):
        return None
    return ranks * _size(row, ("pp",)) * _size(row, ("pcp_size", "pcp")) or None


def _size(row: Mapping[str, object], names: Iterable[str]) -> int:
    return next((found for name in names if (found := count(row.get(name)))), 1)


def is_role_local(row: Mapping[str, object]) -> bool:
    """Whether input and output rates have other divisors than the total."""
    total, output, prompt = (
        number(row.get(f"{kind}tput_per_gpu")) for kind in ("", "output_", "input_")
    )
    if flag(row.get("disagg")) is True:
        return True
    if total is None or output is None or prompt is None:
        return False
    return abs(prompt + output - total) > CLOSE * max(total, 1.0)
