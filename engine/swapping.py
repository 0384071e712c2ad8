"""Copies of the caches of preempted sequences, between a device and host memory.

The host decides which rows go where and never touches one: every copy is queued among the
device's work, in the order of its steps. So whoever reads a row on either side comes after the
copy that wrote it, and a block is given to someone else only once the step that copies it has
settled (`engine.holdings`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from engine.cache.groups import PagedGroup
from engine.staging import on_device

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray
    from torch import Tensor

    from engine.cache.blocks import Handle
    from engine.cache.storage import CacheStorage
    from engine.step import CacheMove, ScheduledBatch

    Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class HostCaches:
    """Caches on a device, and room for some of them in host memory, which should be page-locked."""

    device: CacheStorage
    host: CacheStorage

    def prepare(self, batch: ScheduledBatch) -> Swap:
        """What a step is to copy, with all that the device must be told of it."""
        return Swap(
            caches=self,
            out=tuple(self._rows_of(move) for move in batch.swaps_out),
            back=tuple(self._rows_of(move) for move in batch.swaps_in),
        )

    def _rows_of(self, move: CacheMove) -> dict[str, _Rows]:
        here: dict[str, Ints] = {}
        there: dict[str, Ints] = {}
        for name, group in self.device.groups.items():
            is_paged = isinstance(group, PagedGroup)
            per_id = self.device.rows_per_block(name) if is_paged else group.rows
            here[name] = _rows(move.blocks if is_paged else (move.slot,), per_id)
            there[name] = _rows(move.host.blocks if is_paged else (move.host.slot,), per_id)
        device = next(iter(self.device.tensors.values())).device
        numbers = on_device(np.concatenate([*here.values()]), device)
        split = numbers.split([len(rows) for rows in here.values()])
        return {
            name: _Rows(rows, _pieces(there[name])) for name, rows in zip(here, split, strict=True)
        }


@dataclass(frozen=True, slots=True)
class _Rows:
    """Rows of one group of a sequence."""

    here: Tensor  # row numbers, on the device
    there: tuple[tuple[slice, slice], ...]  # rows of host memory, and which of `here` they hold


@dataclass(frozen=True, slots=True)
class Swap:
    """What one step copies: first what leaves the device, then what comes back."""

    caches: HostCaches
    out: tuple[dict[str, _Rows], ...]
    back: tuple[dict[str, _Rows], ...]

    def run(self) -> None:
        """Queue the copies; nobody waits for them."""
        for sequence in self.out:
            for name, rows in sequence.items():
                self._copy_out(name, rows)
        for sequence in self.back:
            for name, rows in sequence.items():
                self._copy_back(name, rows)

    def _copy_out(self, name: str, rows: _Rows) -> None:
        host = self.caches.host.tensors[name]
        gathered = self.caches.device.tensors[name].index_select(0, rows.here)
        for there, which in rows.there:
            host[there].copy_(gathered[which], non_blocking=True)

    def _copy_back(self, name: str, rows: _Rows) -> None:
        host, device = self.caches.host.tensors[name], self.caches.device.tensors[name]
        gathered = device.new_empty(len(rows.here), device.shape[1])
        for there, which in rows.there:
            gathered[which].copy_(host[there], non_blocking=True)
        device.index_copy_(0, rows.here, gathered)


def _rows(handles: Sequence[Handle], per_id: int) -> Ints:
    """All rows of blocks or slots that have `per_id` rows each."""
    first = np.array([handle.id for handle in handles], dtype=np.int64) * per_id
    return (first[:, None] + np.arange(per_id)).ravel()


def _pieces(rows: Ints) -> tuple[tuple[slice, slice], ...]:
    """Runs of rows that follow each other, as slices of the rows and of `rows`."""
    ends = [*(np.flatnonzero(np.diff(rows) != 1) + 1).tolist(), len(rows)]
    starts = [0, *ends[:-1]]
    return tuple(
        (slice(int(rows[a]), int(rows[b - 1]) + 1), slice(a, b))
        for a, b in zip(starts, ends, strict=True)
        if b > a
    )
