"""What the layers of one forward share: tables, caches, published selections."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import torch
from torch import Tensor

from engine.models.deepseek_v41.layout import LayoutSizes, RowSet, lay_out, lay_out_shape
from engine.models.deepseek_v41.spans import all_spans, kept_spans
from engine.staging import on_device
from kernels.cache_ops.reference import paged_rows, ring_rows

if TYPE_CHECKING:
    from collections.abc import Callable

    from engine.batch import ForwardBatch
    from engine.cache.storage import CacheStorage
    from engine.models.deepseek_v41.rope import Rope
    from kernels.beside import Beside, Later
    from kernels.rotary.reference import Rotation
    from kernels.topk.reference import Blocks

T = TypeVar("T")


class Lanes(NamedTuple):
    """Where the works of a model run that do not depend on each other."""

    soon: Beside
    ahead: Beside


@dataclass(frozen=True, kw_only=True)
class Half:
    """Rows that run a half of the model, and their rotation by ratio class."""

    rows: RowSet
    plain: Rotation
    stretched: Rotation
    writes: dict[int, tuple[Tensor | None, Tensor]] = field(default_factory=dict)
    counts: dict[int, Tensor] = field(default_factory=dict)

    @classmethod
    def build(cls, rows: RowSet, rope: Rope) -> Half:
        """Rotations of the rows' own positions."""
        return cls(
            rows=rows,
            plain=rope.at(rows.positions, ratio=0),
            stretched=rope.at(rows.positions, ratio=1),
        )

    def turn(self, ratio: int) -> Rotation:
        """Rotation for a layer of this ratio."""
        return self.stretched if ratio else self.plain

    def visible_counts(self, ratio: int) -> Tensor:
        """Global rows that each row may see: [rows]."""
        if ratio not in self.counts:
            self.counts[ratio] = (self.rows.positions + 1) // ratio
        return self.counts[ratio]

    def write_ring(self, caches: CacheStorage, name: str, values: Tensor) -> None:
        """Keep the newest rows of each sequence in a ring group."""
        newest, where = self.ring_write(caches, name)
        caches.write(name, where, values if newest is None else values[newest])

    def ring_places(self, caches: CacheStorage, name: str) -> Tensor:
        """Where each row goes in a ring group that keeps them all: [rows]."""
        newest, where = self.ring_write(caches, name)
        assert newest is None, f"{name} does not keep every row"
        return where

    def ring_write(self, caches: CacheStorage, name: str) -> tuple[Tensor | None, Tensor]:
        """The newest rows of each sequence, as a ring group keeps them (None: all), and places."""
        size = caches.groups[name].rows  # type: ignore[union-attr]
        if size not in self.writes:
            self.writes[size] = self.rows.ring_write(size)
        return self.writes[size]


@dataclass(frozen=True, kw_only=True)
class PageWrite:
    """Which rows of the batch close a global row, where it goes and how it is rotated."""

    closing: Tensor | None  # [n] rows of the batch; None = all
    previous: Tensor | None  # [n] for ratio 2: row of (old tails, batch) that opened the pair
    physical: Tensor  # [n]; negative = the row closes nothing (only where `closing` is None)
    turn: Rotation


@dataclass(frozen=True, kw_only=True)
class Selection:
    """Global rows that the queries of one tile attend to, and which query sees which."""

    per_query: bool  # rows are [B * Q, K], else [B, N] shared by the queries of a span
    rows: Tensor  # physical
    visible: Tensor  # [B * Q, 1, K] or [B, Q, N]


@dataclass
class Published:
    """What index layers leave for the layers after them, one entry for each tile."""

    selections: list[Selection | None]
    candidates: list[Tensor | None] | None = None  # None before the candidate source


@dataclass
class PublishedRows:
    """The same, where attention reads cache rows in place: one entry for each row."""

    index: Tensor | None = None  # [rows, k] physical rows, negative = none; None = none at all
    candidates: Blocks | None = None  # None = all, or no source yet


class Step:
    """Tables of one forward. `half` is the one now running; the model moves it on."""

    def __init__(
        self,
        batch: ForwardBatch,
        caches: CacheStorage,
        rope: Rope,
        sizes: LayoutSizes,
        lanes: Lanes,
    ) -> None:
        self.batch = batch
        self._lanes = lanes
        self._soon: list[Later[object]] = []
        self._ahead: list[Later[object]] = []
        self.caches = caches
        self._rope = rope
        self._sizes = sizes
        self._pages: dict[int, PageWrite] = {}
        self._tail_rows: dict[int, Tensor] = {}
        if batch.shape is None:
            rows = lay_out(batch, all_spans(batch, truncated=False), sizes)
        else:
            rows = lay_out_shape(batch, sizes)
        self.encoder = Half.build(rows, rope)
        self.half = self.encoder
        self.published = Published(selections=[])
        self.published_rows = PublishedRows()
        self._everything: dict[int, Tensor] = {}

    def start_beside(self, work: Callable[[], T], rows: int) -> Later[T]:
        """Start what `join` waits for at the latest; works follow each other.

        Tables that a work makes first and the step keeps are not to be read before either.
        """
        started = self._lanes.soon.start(work, rows)
        self._soon.append(started)
        return started

    def start_ahead(self, work: Callable[[], T], rows: int) -> Later[T]:
        """Start what is wanted much later, and what `finish` waits for at the latest."""
        started = self._lanes.ahead.start(work, rows)
        self._ahead.append(started)
        return started

    def join(self) -> None:
        """Wait on the device for what was started beside the layer: the last covers all."""
        if self._soon:
            self._soon[-1].result()
        self._soon.clear()

    def finish(self) -> None:
        """Wait for everything that was started."""
        self.join()
        if self._ahead:
            self._ahead[-1].result()
        self._ahead.clear()

    def enter_decoder(self) -> None:
        """Move on to the rows and window floors of the decoder half."""
        if self.batch.shape is not None:
            self.half = replace(self.half, rows=self.half.rows.with_floors())
            return
        if self.batch.decoder_rows is not None:
            spans = kept_spans(self.batch)
        elif any(self.batch.decoder_start):
            spans = all_spans(self.batch, truncated=True)
        else:
            return
        self.half = Half.build(lay_out(self.batch, spans, self._sizes), self._rope)
        self._everything = {}

    @cached_property
    def old_tails(self) -> Tensor:
        """For each sequence of the batch, its newest cached position: [R]."""
        batch = self.batch
        if batch.shape is not None and batch.shape.chunks:
            return self.encoder.rows.table[:, 2] - 1
        if batch.shape is not None:
            return batch.positions[:: batch.shape.rows] - 1
        lengths = on_device(batch.context_length, batch.slots.device)
        return lengths - 1 if batch.behind is None else lengths - 1 - batch.behind

    def tail_rows(self, ring: int) -> Tensor:
        """Physical tail-ring row of the newest cached token of each sequence: [R]."""
        if ring not in self._tail_rows:
            self._tail_rows[ring] = ring_rows(self.batch.slots, self.old_tails, ring)
        return self._tail_rows[ring]

    def everything(self, ratio: int, rows_per_block: int, context: int) -> Tensor:
        """The visible ones of the first `context` global rows of each row: [rows, context].

        Physical rows, negative where there are fewer; the same for every owner of the ratio.
        """
        if ratio not in self._everything:
            rows = self.half.rows
            logical = torch.arange(context, device=rows.positions.device)
            places = paged_rows(
                rows.block_table, logical.expand(len(rows.positions), -1), rows_per_block
            )
            visible = logical < ((rows.positions + 1) // ratio).unsqueeze(-1)
            self._everything[ratio] = torch.where(visible, places, -1)
        return self._everything[ratio]

    def pages(self, ratio: int, rows_per_block: int) -> PageWrite:
        """Where the global rows closed by this batch go."""
        if ratio not in self._pages:
            self._pages[ratio] = self._page_write(ratio, rows_per_block)
        return self._pages[ratio]

    def _page_write(self, ratio: int, rows_per_block: int) -> PageWrite:
        batch = self.batch
        closing, previous, positions = None, None, batch.positions
        sequences = batch.sequence_index
        if ratio == 2:
            rows = torch.arange(len(positions), device=positions.device)
            if not self._sizes.reads_caches:  # finding the rows waits for the device
                rows = closing = torch.nonzero(positions % 2 == 1).flatten()
                positions, sequences = positions[closing], sequences[closing]
            sequence_count = len(batch.slots)
            opened_here = positions - 1 > self.old_tails[sequences]
            previous = torch.where(opened_here, sequence_count + rows - 1, sequences)
        physical = paged_rows(
            batch.block_table[sequences], (positions // ratio).unsqueeze(1), rows_per_block
        ).flatten()
        if ratio == 2 and closing is None:
            physical = torch.where(positions % 2 == 1, physical, -1)
        turn = self._rope.at(positions - (ratio - 1), ratio=ratio)
        return PageWrite(closing=closing, previous=previous, physical=physical, turn=turn)
