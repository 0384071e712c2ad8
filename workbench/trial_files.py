"""A TrialRecord as the files of its folder, and back. results/README.md lists the fields.

trial.json (facts and metrics), requests.parquet (one row a request, its chunks as two lists),
telemetry.parquet (one row a sample), evals.parquet (one row an answer), engine.log.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from experiments.records import ChunkKind, MetricValue, RequestRecord, TrialRecord, TrialState
from workbench.errors import NewerFormatError, StoreError
from workbench.evals import EVALS, eval_rows, eval_schema, read_evals
from workbench.files import read_json, to_json
from workbench.parquet import parquet

if TYPE_CHECKING:
    import pyarrow
    from pydantic import TypeAdapter

FORMAT_VERSION = 1
ROW_FIELDS = ("requests", "telemetry", "engine_log", "evals")  # kept beside trial.json


def contents(record: TrialRecord) -> dict[str, bytes]:
    """File name -> bytes of one trial folder."""
    evals = {EVALS: parquet(eval_rows(record.evals), eval_schema())} if record.evals else {}
    return {
        **evals,
        "trial.json": to_json(document(record)).encode(),
        "requests.parquet": parquet(request_rows(record.requests), request_schema()),
        "telemetry.parquet": parquet(
            [dataclasses.asdict(sample) for sample in record.telemetry], telemetry_schema()
        ),
        "engine.log": record.engine_log.encode("utf-8", "replace"),
    }


def document(record: TrialRecord) -> dict[str, object]:
    """The content of trial.json: everything but the rows, with the format version."""
    facts = {
        field.name: _plain(getattr(record, field.name))
        for field in dataclasses.fields(record)
        if field.name not in ROW_FIELDS
    }
    facts["metrics"] = {name: _metric(value) for name, value in record.metrics.items()}
    if not record.foreign:
        del facts["foreign"]
    return {"format_version": FORMAT_VERSION, **facts}


def _plain(value: object) -> object:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return value


def _metric(metric: MetricValue) -> dict[str, object]:
    """The fields of a metric; `basis` only where another tool computed it."""
    found = dataclasses.asdict(_honest(metric))
    if metric.basis is None:
        del found["basis"]
    return found


def _honest(metric: MetricValue) -> MetricValue:
    """A metric without NaN or infinity: missing is None with the reason beside it."""
    if metric.value is None or math.isfinite(metric.value):
        return metric
    reason = metric.reason or f"not finite ({metric.value})"
    return dataclasses.replace(metric, value=None, low=None, high=None, reason=reason)


def check_version(found: Mapping[str, object], path: Path) -> None:
    """Refuse a document of a newer format (NewerFormatError) or of none (StoreError)."""
    version = found.get("format_version")
    if not isinstance(version, int) or isinstance(version, bool):
        raise StoreError(
            "names no format_version.",
            where=str(path),
            remedy="It is not a file of this workbench; move it out of the store.",
        )
    if version > FORMAT_VERSION:
        raise NewerFormatError(
            f"is written in format version {version}; this workbench reads up to "
            f"{FORMAT_VERSION}. Nothing was touched.",
            where=str(path),
            remedy="Upgrade with `pip install --upgrade inference-workbench`, or use another "
            "--store.",
        )


def check_document(found: Mapping[str, object], path: Path) -> None:
    """Refuse what is no trial.json: StoreError names the first field of another type."""
    check_version(found, path)
    for name, kind in _KINDS.items():
        if not isinstance(found.get(name), kind):
            raise _damaged(f"{name} is {str(found.get(name))[:80]!r}", path)
    if found["state"] not in set(TrialState):
        raise _damaged(f"state is {str(found['state'])[:80]!r}", path)
    labels, metrics = found["labels"], found["metrics"]
    if not all(isinstance(label, str) for label in labels):  # type: ignore[attr-defined]
        raise _damaged(f"labels is {str(labels)[:80]!r}", path)
    if not _is_window(found.get("window_s")):
        raise _damaged(f"window_s is {str(found['window_s'])[:80]!r}", path)
    assert isinstance(metrics, dict)
    for name, metric in metrics.items():
        if not isinstance(metric, dict) or "value" not in metric:
            raise _damaged(f"the metric {name[:80]!r} has no value", path)


def _is_window(value: object) -> bool:
    if value is None:
        return True
    return (
        isinstance(value, list)
        and len(value) == 2
        and all(isinstance(edge, int | float) for edge in value)
    )


_KINDS: dict[str, type] = {
    "trial_id": str, "state": str, "point": dict, "metrics": dict, "labels": list, "gates": list,
    "repeat": int,
}  # fmt: skip


def _damaged(what: str, path: Path) -> StoreError:
    return StoreError(
        f"is damaged ({what}).",
        where=str(path),
        remedy="Move this trial's folder away and run `workbench resume`.",
    )


def read_document(folder: Path) -> dict[str, object]:
    """trial.json of a trial folder, its version and shape checked."""
    path = folder / "trial.json"
    found = read_json(path)
    check_document(found, path)
    return found


def read_record(folder: Path) -> TrialRecord:
    """The whole trial in `folder`, rows and log included. StoreError when damaged."""
    found = read_document(folder)
    found.pop("format_version")
    try:
        rows = {
            "requests": [_nest(row) for row in _read_rows(folder / "requests.parquet")],
            "telemetry": _read_rows(folder / "telemetry.parquet"),
            "evals": read_evals(folder),
            "engine_log": (folder / "engine.log").read_text("utf-8", "replace"),
        }
        return _adapter().validate_python({**found, **rows})
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise _damaged(str(error), folder) from error


@cache
def _adapter() -> TypeAdapter[TrialRecord]:
    from pydantic import TypeAdapter

    return TypeAdapter(TrialRecord)


def request_rows(requests: Iterable[RequestRecord]) -> Iterator[dict[str, object]]:
    """Requests as flat rows: `chunks` becomes the lists chunk_time_s, _tokens and _kind.

    chunk_kind is missing where every chunk is content, as nearly always.
    """
    for request in requests:
        row = {field.name: getattr(request, field.name) for field in dataclasses.fields(request)}
        chunks = row.pop("chunks")
        row["chunk_time_s"] = [chunk.time_s for chunk in chunks]
        row["chunk_tokens"] = [chunk.tokens for chunk in chunks]
        kinds = [str(chunk.kind) for chunk in chunks]
        row["chunk_kind"] = kinds if any(kind != ChunkKind.CONTENT for kind in kinds) else None
        yield row


def _nest(row: dict[str, object]) -> dict[str, object]:
    times, tokens = row.pop("chunk_time_s"), row.pop("chunk_tokens")
    kinds = row.pop("chunk_kind", None) or [ChunkKind.CONTENT] * len(times)  # type: ignore[arg-type]
    chunks = [
        {"time_s": t, "tokens": n, "kind": k}
        for t, n, k in zip(times, tokens, kinds, strict=True)  # type: ignore[call-overload]
    ]
    return {**row, "chunks": chunks}


def _read_rows(path: Path) -> list[dict[str, object]]:
    import pyarrow.parquet

    return pyarrow.parquet.read_table(path).to_pylist()


@cache
def request_schema() -> pyarrow.Schema:
    """Columns of requests.parquet."""
    import pyarrow as pa

    text, second, count = pa.string(), pa.float64(), pa.int64()
    return pa.schema(
        {
            "request_id": text,
            "index": count,
            "intended_s": second,
            "dispatched_s": second,
            "sent_s": second,
            "chunk_time_s": pa.list_(second),
            "chunk_tokens": pa.list_(count),
            "chunk_kind": pa.list_(text),
            "ended_s": second,
            "finish_reason": text,
            "error": text,
            "prompt_tokens": count,
            "output_tokens": count,
            "requested_output_tokens": count,
            "exact_output_length": pa.bool_(),
            "cached_tokens": count,
            "proposed_tokens": count,
            "accepted_tokens": count,
            "verify_steps": count,
            "emitted_tokens": count,
            "accepted_by_position": pa.list_(count),
            "proposed_by_position": pa.list_(count),
            "reached_by_position": pa.list_(count),
            "preemptions": count,
            "replica": count,
            "warm_up": pa.bool_(),
            "text_hash": text,
            "prompt_hash": text,
            "output_token_ids": pa.list_(pa.int32()),
            "headers_s": second,
            "closed_s": second,
            "token_source": text,
            "error_kind": text,
            "server_prompt_tokens": count,
            "server_output_tokens": count,
            "retokenised_tokens": count,
            "session": count,
            "turn": count,
            "worker": count,
            "resent": pa.bool_(),
        }
    )


@cache
def telemetry_schema() -> pyarrow.Schema:
    """Columns of telemetry.parquet."""
    import pyarrow as pa

    number, count = pa.float64(), pa.int64()
    return pa.schema(
        {
            "time_s": number,
            "cpu_percent": number,
            "own_cpu_percent": number,
            "memory_bytes": count,
            "device_index": count,
            "device_power_w": number,
            "device_power_average_w": number,
            "device_energy_j": number,
            "device_memory_bytes": count,
            "device_clock_mhz": number,
            "device_memory_clock_mhz": number,
            "device_temperature_c": number,
            "device_utilisation_percent": number,
            "device_power_limit_w": number,
            "throttle_reasons": pa.list_(pa.string()),
            "foreign_processes": count,
            "client_cpu_percent": number,
            "host_energy_j": number,
            "telemetry_reason": pa.string(),
        }
    )
