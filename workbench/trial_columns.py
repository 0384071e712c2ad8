"""The stored requests of one trial as columns, held against the numbers that the trial reported."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, cast

import numpy as np

from experiments.pooling import PooledQuantile, pooled_quantiles
from experiments.records import ChunkKind
from experiments.request_columns import RequestColumns

if TYPE_CHECKING:
    import pyarrow
    from numpy.typing import NDArray

CHECKED = "e2e_s_mean"  # every request that succeeded has a sample of it
LAG = "client_lag_s_p50"  # without a sample where there is no client of its own
WANTED = (
    "intended_s", "dispatched_s", "sent_s", "chunk_time_s", "chunk_tokens", "finish_reason",
    "error", "warm_up",
)  # fmt: skip
KINDS = "chunk_kind"  # absent in older files, null where every chunk is content


def trial_columns(folder: Path, document: Mapping[str, object]) -> RequestColumns | None:
    """The requests that the trial's latencies rest on; None where they cannot be told.

    They are those that succeeded, or of them those sent in the window where the load had to
    settle first: whichever gives the count and the mean that trial.json reports.
    """
    import pyarrow.parquet

    try:
        table = pyarrow.parquet.read_table(folder / "requests.parquet", columns=[*WANTED, KINDS])
        return _columns_reported(table, document)
    except (OSError, pyarrow.ArrowException, ValueError, LookupError, TypeError):
        return None  # damaged


def _columns_reported(
    table: pyarrow.Table, document: Mapping[str, object]
) -> RequestColumns | None:
    window = document.get("window_s")
    begin = float(window[0]) if isinstance(window, list) else -np.inf
    for earliest_s in (-np.inf, begin):
        found = _columns(table, earliest_s)
        if _agrees(found, document):
            lags = _client_lags(table) if _told(document, LAG).get("n") else None
            return dataclasses.replace(found, client_lag_s=lags)
    return None


def quantiles_of(
    trials: Sequence[tuple[Path, Mapping[str, object]]],
) -> Mapping[str, PooledQuantile] | None:
    """Quantiles of all requests of trials (folder, trial.json); None where one tells of none."""
    read = [trial_columns(folder, document) for folder, document in trials]
    columns = [found for found in read if found is not None]
    return pooled_quantiles(columns) if len(columns) == len(read) else None


def _columns(table: pyarrow.Table, earliest_s: float) -> RequestColumns:
    sent_s = _numbers(table, "sent_s")
    measured = ~_flags(table, "warm_up") & np.isfinite(sent_s)
    lengths = table["chunk_time_s"].combine_chunks().value_lengths()
    counts = np.asarray(lengths.fill_null(0), dtype=np.int64)
    reasons = table["finish_reason"].to_pylist()
    ended = np.array([r not in (None, "abort", "error") for r in reasons], dtype=bool)
    fine = np.array([error is None for error in table["error"].to_pylist()], dtype=bool)
    settled = measured & (sent_s >= earliest_s)
    kept = settled & ended & fine & (counts > 0)
    of_chunk = np.repeat(kept, counts)
    return RequestColumns(
        intended_s=_numbers(table, "intended_s")[kept],
        sent_s=sent_s[kept],
        chunk_count=counts[kept],
        chunk_time_s=_flat(table, "chunk_time_s")[of_chunk].astype(float),
        chunk_tokens=_flat(table, "chunk_tokens")[of_chunk].astype(np.int64),
        spoken_s=_spoken(table, kept),
        unsuccessful=int((settled & ~kept).sum()),
    )


def _client_lags(table: pyarrow.Table) -> NDArray[np.float64]:
    """[issued] from leaving the queue to being written, of what was measured."""
    lags = _numbers(table, "sent_s") - _numbers(table, "dispatched_s")
    return lags[~_flags(table, "warm_up") & np.isfinite(lags)]


def _spoken(table: pyarrow.Table, kept: NDArray[np.bool_]) -> NDArray[np.float64] | None:
    """The first chunk of each request that is not reasoning; None where there is no reasoning."""
    if KINDS not in table.column_names or table[KINDS].null_count == len(table):
        return None
    told = zip(table["chunk_time_s"].to_pylist(), table[KINDS].to_pylist(), strict=True)
    return np.array([_first_spoken(times, kinds) for times, kinds in told], dtype=float)[kept]


def _first_spoken(times: list[float], kinds: list[str] | None) -> float:
    pairs = zip(times, kinds or [ChunkKind.CONTENT] * len(times), strict=True)
    return next((at for at, kind in pairs if kind != ChunkKind.REASONING), np.nan)


def _told(document: Mapping[str, object], metric: str) -> Mapping[str, object]:
    metrics = cast("Mapping[str, Mapping[str, object]]", document.get("metrics", {}))
    return metrics.get(metric, {})


def _agrees(found: RequestColumns, document: Mapping[str, object]) -> bool:
    told = _told(document, CHECKED)
    if told.get("value") is None:
        return False
    times = found.samples("e2e_s")
    return len(times) == told.get("n") and bool(
        np.isclose(times.mean(), float(str(told["value"])), rtol=1e-6)
    )


def _numbers(table: pyarrow.Table, name: str) -> NDArray[np.float64]:
    return table[name].to_numpy().astype(float)


def _flags(table: pyarrow.Table, name: str) -> NDArray[np.bool_]:
    return table[name].to_numpy().astype(bool)


def _flat(table: pyarrow.Table, name: str) -> NDArray[np.generic]:
    return table[name].combine_chunks().flatten().to_numpy(zero_copy_only=False)
