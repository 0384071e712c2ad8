"""InferenceX (formerly InferenceMAX): rows of its aggregate files, of its app, of SLO runs.

Times are seconds. `tput_per_gpu` counts prompt and output tokens over all devices; where prefill
and decode have devices of their own, input and output rates are per device of their role, so they
are no rates per device. `std_intvty` is 1 / std(TPOT), which is no spread of anything: dropped.
Rows of version 3, of sessions played back from traces, are `inferencex_agentic`'s.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from experiments.records import ForeignNumber
from workbench.importers import inferencex_agentic
from workbench.importers.cells import count, mapping, number, text
from workbench.importers.document import Document, unknown
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
from workbench.importers.inferencex_settings import (
    ENGINE_FIELDS,
    WORKLOAD_FIELDS,
    agentic,
    devices_of,
    engine_of,
    flat,
    is_role_local,
    load_of,
    power_columns,
    power_notes,
    rows_of,
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
    Column(key="observed_tokens_per_step", metric="acceptance_length", unit="tok/step",
           meaning="output tokens / decode steps"),
)  # fmt: skip
SPEEDS = (
    Column(key="median_intvty", metric="tok_s_user_p50", unit="tok/s/user",
           meaning=f"1 / median({TPOT})"),
    Column(key="p99_intvty", metric="tok_s_user_p1", unit="tok/s/user",
           meaning=f"1 / p99({TPOT})"),
)  # fmt: skip
AGENTIC = latency_columns(
    [replace(one, statistics={**one.statistics, "p50": "p50"})
     for one in FAMILIES if one.name != "itl"],
    lambda s, name: f"{s}_{name}",
    scale=1.0,
)  # fmt: skip
"""Of flat rows of sessions, whose ITL is their TPOT, and whose speeds changed their definition."""
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


def _is_rows(document: Document) -> bool:
    """Rows of any version, of which collections hold several."""
    found = rows_of(document)
    return bool(found) and all(
        "tput_per_gpu" in flat(row) or inferencex_agentic.recognises(row) for row in found
    )


def _read(document: Document) -> Foreign:
    nested = [row for row in rows_of(document) if inferencex_agentic.recognises(row)]
    cells = [flat(row) for row in rows_of(document) if not inferencex_agentic.recognises(row)]
    local = sum(is_role_local(row) for row in cells)
    no_total = sum(_is_no_total(row) for row in cells)
    spread = any(SPREADS.fullmatch(name) for row in cells for name in row)
    notes = [SPREAD_NOTE] if spread else []
    notes += [ROLE_NOTE.format(n=local)] if local else []
    notes += [TOTAL_NOTE.format(n=no_total)] if no_total else []
    notes += power_notes([*cells, *nested])
    notes += inferencex_agentic.notes(nested)
    return Foreign(points=tuple(map(_point, rows_of(document))), notes=tuple(notes))


def _point(row: Mapping[str, object]) -> ForeignPoint:
    if inferencex_agentic.recognises(row):
        return inferencex_agentic.point(row)
    row = flat(row)
    return ForeignPoint(
        engine=engine_of(row),
        workload=load_of(row),
        numbers=_numbers(row),
        devices=devices_of(row),
    )


def _numbers(row: Mapping[str, object]) -> tuple[ForeignNumber, ...]:
    columns = [*(AGENTIC if agentic(row) else LATENCIES + SPEEDS), *RATES, *power_columns(row)]
    if not is_role_local(row):
        columns.append(OUTPUT)
    if not _is_no_total(row):
        columns.append(TOTAL)
    found = told(row, columns)
    found += speeds(found)
    taken = {*(one.key for one in found), *ENGINE_FIELDS, *WORKLOAD_FIELDS}
    dropped = [name for name in row if SPREADS.fullmatch(name)]
    return found + leftovers(row, taken, dropped)


def _is_no_total(row: Mapping[str, object]) -> bool:
    total, output = (number(row.get(f"{kind}tput_per_gpu")) for kind in ("", "output_"))
    return total is not None and total == output and bool(count(row.get("isl")))


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
    found = rows_of(document)
    return bool(found) and all({"image", "runner", "conc", "tp"} <= row.keys() for row in found)


def _read_matrix(document: Document) -> Foreign:
    raise unknown(
        document.path,
        f"is a matrix of {len(rows_of(document)):,} InferenceX configurations, without a result.",
        "Import the aggregate file of the same sweep.",
    )


FORMATS = (
    Format(name="inferencex", tool="InferenceX", title="InferenceX rows",
           recognises=_is_rows, read=_read, unseen="rows of its app (`metrics`, `config`)",
           expects="JSON rows with `tput_per_gpu`, or `scenario_type` and `request_metrics`"),
    Format(name="inferencex-slo", tool="InferenceX", title="an InferenceX SLO result",
           recognises=_is_slo, read=_read_slo,
           expects="JSON with `model_id`, `duration`, `median_ttft` in seconds"),
    Format(name="inferencex-matrix", tool="InferenceX", title="an InferenceX sweep matrix",
           recognises=_is_matrix, read=_read_matrix, expects="JSON rows with `image`, `runner`"),
)  # fmt: skip
