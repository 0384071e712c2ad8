"""Index tables of one step, worked out once and shared by the layers of a half."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from engine.models.deepseek_v41.spans import Span, TileCost
from engine.models.deepseek_v41.tiles import Tile, order_of, tiles_of
from engine.staging import on_device
from kernels.cache_ops.reference import ring_rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from engine.batch import ForwardBatch


@dataclass(frozen=True, kw_only=True)
class LayoutSizes:
    """What the tables depend on, besides the batch."""

    window: int
    ring_rows: int
    cost: TileCost
    reads_caches: bool  # the kernels take cache rows where they lie


@dataclass(frozen=True, kw_only=True)
class Beside:
    """Places where the fresh rows of each span lie after the ring rows just before it."""

    old: Tensor  # [spans * (window - 1)]
    fresh: Tensor  # [rows]
    floors: Tensor  # [rows] place of the oldest row that a row sees


@dataclass(frozen=True, kw_only=True)
class RowSet:
    """The rows that one half of the model runs, in batch order."""

    positions: Tensor  # [rows]
    slots: Tensor  # [rows] state slot of the row's sequence
    sequences: Tensor  # [rows] the row's sequence in the batch
    floors: Tensor  # [rows] oldest visible position
    longest: int
    end_position: int  # one past the newest position
    batch: ForwardBatch
    spans: Sequence[Span]  # none of a step of a shape, which needs no tiles
    table: Tensor  # [spans, 5] start, length, first position, floor, sequence
    sizes: LayoutSizes

    @property
    def in_place(self) -> bool:
        """Whether fresh rows may be written before the window is read where it lies.

        So many fresh rows overwrite none that a query of the set sees.
        """
        sizes = self.sizes
        return sizes.reads_caches and self.longest <= sizes.ring_rows - sizes.window + 1

    @cached_property
    def block_table(self) -> Tensor:
        """Blocks of each row's sequence: [rows, blocks]."""
        return self.batch.block_table[self.sequences]

    @property
    def shared_tables(self) -> Tensor:
        """Block tables [tables, blocks], each that of as many consecutive rows."""
        shape = self.batch.shape
        is_even = len(self.batch.block_table) == 1 or (shape is not None and not shape.chunks)
        return self.batch.block_table if is_even else self.block_table

    @cached_property
    def old_rows(self) -> Tensor:
        """Ring rows just before each span: [spans * (window - 1)]."""
        back = torch.arange(1 - self.sizes.window, 0, device=self.table.device)
        slots = self.batch.slots[self.table[:, 4]]
        old = ring_rows(slots[:, None], self.table[:, 2:3] + back, self.sizes.ring_rows)
        return old.flatten()

    @cached_property
    def beside(self) -> Beside:
        """Where `old_rows` and the rows of the set lie in one copy."""
        before, rows = self.sizes.window - 1, len(self.positions)
        span = torch.arange(len(self.table), device=self.table.device)
        owner = torch.repeat_interleave(span, self.table[:, 1], output_size=rows)
        fresh = (owner + 1) * before + torch.arange(rows, device=span.device)
        first = (span * before + self.table[:, 0]).unsqueeze(1)
        old = first + torch.arange(before, device=span.device)
        return Beside(old=old.flatten(), fresh=fresh, floors=fresh - (self.positions - self.floors))

    @cached_property
    def tiles(self) -> tuple[Tile, ...]:
        """The tiles that attention runs in where it reads a copy of the cache."""
        return tiles_of(self.batch, self.spans, self.table, self.sizes.cost)

    @cached_property
    def order(self) -> Tensor | None:
        """Where each row lies in the tiles laid end to end; None = in order."""
        return order_of(self.tiles, len(self.positions))

    def ring_write(self, rows: int) -> tuple[Tensor | None, Tensor]:
        """The newest rows of each span that a ring of `rows` keeps, and where they go.

        The first is None where the ring keeps every row of the set.
        """
        if self.longest <= rows:
            return None, ring_rows(self.slots, self.positions, rows)
        if self.batch.shape is not None:
            return None, self._ring_places(rows)
        where = ring_rows(self.slots, self.positions, rows)
        kept = [range(s.start + max(0, s.length - rows), s.start + s.length) for s in self.spans]
        newest = on_device(np.concatenate([np.arange(r.start, r.stop) for r in kept]), where.device)
        return newest, where[newest]

    def _ring_places(self, rows: int) -> Tensor:
        """Where each row goes; rows that a ring does not keep go to that of padding."""
        first, length = self.table[:, 2], self.table[:, 1]
        is_kept = self.positions + rows >= (first + length)[self.sequences]
        slots = torch.where(is_kept, self.slots, self.batch.slots[-1])
        return ring_rows(slots, self.positions, rows)

    def with_floors(self) -> RowSet:
        """The same rows of a step of a shape, under the window floors of the decoder half."""
        floor = self.batch.decoder_floor
        assert floor is not None, "a step of a shape has them on the device"
        floors = floor[self.sequences]
        return replace(self, floors=torch.where(self.positions >= floors, floors, 0))


def lay_out(batch: ForwardBatch, spans: Sequence[Span], sizes: LayoutSizes) -> RowSet:
    """Tables of the rows in `spans`, which cover 0..rows-1 in order."""
    device = batch.token_ids.device
    numbers = [[s.start, s.length, s.first_position, s.floor, s.sequence] for s in spans]
    table = on_device(numbers, device).view(-1, 5)
    if batch.behind is not None:
        table[:, 2] -= batch.behind[table[:, 4]]
    rows = torch.arange(sum(span.length for span in spans), device=device)
    owner = torch.repeat_interleave(table[:, 1], output_size=len(rows))
    start, _, first, floor, sequence = table[owner].unbind(1)
    relative = rows - start
    positions = first + relative
    return RowSet(
        positions=positions,
        slots=batch.slots[sequence],
        sequences=sequence,
        floors=torch.where(positions >= floor, floor, 0),
        longest=max((span.length for span in spans), default=0),
        end_position=max((span.end_position for span in spans), default=0),
        batch=batch,
        spans=spans,
        table=table,
        sizes=sizes,
    )


def lay_out_shape(batch: ForwardBatch, sizes: LayoutSizes) -> RowSet:
    """Tables of a step of a shape, from the device alone; no window floors yet."""
    shape = batch.shape
    assert shape is not None, "the caller knows that it has one"
    rows = RowSet(
        positions=batch.positions,
        slots=batch.slots[batch.sequence_index],
        sequences=batch.sequence_index,
        floors=torch.zeros_like(batch.positions),
        longest=max(shape.rows, shape.chunk_rows),
        end_position=shape.context,
        batch=batch,
        spans=(),
        table=_table_of(batch) if shape.chunks else batch.positions.new_zeros(0, 5),
        sizes=sizes,
    )
    is_held = bool(shape.chunks) or rows.in_place
    assert is_held, "rings hold the rows of a decode step, and kernels read them in place"
    return rows


def _table_of(batch: ForwardBatch) -> Tensor:
    """Start, length, first position, no floor and the number of each sequence: [R, 5].

    The position of one without rows is any.
    """
    number = torch.arange(len(batch.slots) + 1, device=batch.slots.device)
    starts = torch.searchsorted(batch.sequence_index, number)
    start, number = starts[:-1], number[:-1]
    first = batch.positions[start.clamp(max=len(batch.positions) - 1)]
    return torch.stack((start, starts.diff(), first, torch.zeros_like(start), number), dim=1)
