"""Index tables of one step, worked out once and shared by the layers of a half.

Attention runs in tiles: either several short spans side by side, or some rows of a long one.
A tile knows the window rows its queries share and how many global rows each query may see.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from engine.models.deepseek_v41.spans import (
    SHORT_ROWS,
    Span,
    TileCost,
    group_short,
    rows_of_tile,
)
from engine.staging import on_device
from kernels.cache_ops.reference import paged_rows, ring_rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from engine.batch import ForwardBatch


@dataclass(frozen=True, kw_only=True)
class Group:
    """Sequences whose rows lie in the same tiles; reads of their global rows are shared."""

    block_table: Tensor  # [B, blocks]
    end_position: int  # one past the newest position of any of them
    reads: dict[str, Tensor] = field(default_factory=dict)

    def global_rows(self, ratio: int, rows_per_block: int, count: int) -> Tensor:
        """Physical rows of the first `count` global rows of each sequence: [B, count]."""
        count = min(count, self.end_position // ratio)
        logical = torch.arange(count, device=self.block_table.device)
        return paged_rows(
            self.block_table, logical.expand(len(self.block_table), -1), rows_per_block
        )


@dataclass(frozen=True, kw_only=True)
class Tile:
    """Q queries of each of B spans. Padding repeats the last query of its span."""

    group: Group
    rows: Tensor  # [B, Q] row in the row set
    positions: Tensor  # [B, Q]
    end_position: int  # one past the newest position
    window: int
    window_rows: Tensor  # [B, window - 1 + Q] row in (old rows, rows of the step)
    window_visible: Tensor  # [B, Q, window - 1 + Q]
    floors: Tensor  # [B, Q] oldest visible position

    def visible_counts(self, ratio: int) -> Tensor:
        """Global rows that each query may see: [B, Q]."""
        return (self.positions + 1) // ratio

    @cached_property
    def own_window_rows(self) -> Tensor:
        """The window rows of each query by itself: [B * Q, window]."""
        first = self.rows - self.rows[:, :1]  # column of its oldest window row
        column = first.unsqueeze(-1) + torch.arange(self.window, device=self.rows.device)
        return self.window_rows.gather(1, column.flatten(1)).view(-1, self.window)

    @cached_property
    def own_window_visible(self) -> Tensor:
        """Which of `own_window_rows` the query sees: [B * Q, 1, window]."""
        back = torch.arange(1 - self.window, 1, device=self.rows.device)
        keys = self.positions.unsqueeze(-1) + back
        return (keys >= self.floors.unsqueeze(-1)).flatten(0, 1).unsqueeze(1)


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
    spans: Sequence[Span]  # none of a uniform decode step, which needs no tiles
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
        is_even = self.batch.shape is not None or len(self.batch.block_table) == 1
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
        return _tiles(self.batch, self.spans, self.table, self.sizes)

    @cached_property
    def order(self) -> Tensor | None:
        """Where each row lies in the tiles laid end to end; None = in order."""
        return _order(self.tiles, len(self.positions))

    def ring_write(self, rows: int) -> tuple[Tensor | None, Tensor]:
        """The newest rows of each span that a ring of `rows` keeps, and where they go.

        The first is None where the ring keeps every row of the set.
        """
        where = ring_rows(self.slots, self.positions, rows)
        if self.longest <= rows:
            return None, where
        kept = [range(s.start + max(0, s.length - rows), s.start + s.length) for s in self.spans]
        newest = on_device(np.concatenate([np.arange(r.start, r.stop) for r in kept]), where.device)
        return newest, where[newest]

    def with_floors(self) -> RowSet:
        """The same rows of a uniform decode step, under the window floors of the decoder half."""
        floor = self.batch.decoder_floor
        assert floor is not None, "a uniform decode step has them on the device"
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


def lay_out_decode(batch: ForwardBatch, sizes: LayoutSizes) -> RowSet:
    """Tables of a uniform decode step, from the device alone; no window floors yet."""
    assert batch.shape is not None, "the caller knows that it is one"
    rows = RowSet(
        positions=batch.positions,
        slots=batch.slots[batch.sequence_index],
        sequences=batch.sequence_index,
        floors=torch.zeros_like(batch.positions),
        longest=batch.shape.rows,
        end_position=batch.shape.context,
        batch=batch,
        spans=(),
        table=batch.positions.new_zeros(0, 5),
        sizes=sizes,
    )
    assert rows.in_place, "rings hold the rows of a decode step, and kernels read them in place"
    return rows


def _tiles(
    batch: ForwardBatch, spans: Sequence[Span], table: Tensor, sizes: LayoutSizes
) -> tuple[Tile, ...]:
    number = {span.sequence: i for i, span in enumerate(spans)}
    tiles = []
    groups = group_short((s for s in spans if s.length <= SHORT_ROWS), sizes.cost)
    groups += [(span,) for span in spans if span.length > SHORT_ROWS]
    for members in groups:
        chosen = on_device([number[s.sequence] for s in members], table.device)
        group = Group(
            block_table=batch.block_table[table[chosen, 4]],
            end_position=max(span.end_position for span in members),
        )
        longest = max(span.length for span in members)
        step = longest if longest <= SHORT_ROWS else rows_of_tile(members[0], sizes.cost)
        for offset in range(0, longest, step):
            part = range(offset, min(offset + step, longest))
            end = max(span.first_position + min(part.stop, span.length) for span in members)
            where = _TilePlace(group=group, chosen=chosen, part=part, end_position=end)
            tiles.append(_tile(where, table, sizes.window))
    return tuple(tiles)


@dataclass(frozen=True, kw_only=True)
class _TilePlace:
    group: Group
    chosen: Tensor  # [B] rows of the span table
    part: range  # which rows of each span
    end_position: int


def _tile(place: _TilePlace, table: Tensor, window: int) -> Tile:
    start, length, first, floor, _ = table[place.chosen].unsqueeze(-1).unbind(1)  # each [B, 1]
    device, last = table.device, length - 1
    relative = torch.arange(place.part.start, place.part.stop, device=device)
    relative = torch.minimum(relative, last)  # [B, Q]
    positions = first + relative
    floors = torch.where(positions >= floor, floor, 0)
    key = torch.arange(place.part.start - (window - 1), place.part.stop, device=device)  # [K]
    key_positions = (first + key).unsqueeze(1)  # [B, 1, K]
    old = place.chosen[:, None] * (window - 1) + (window - 1) + key
    fresh = len(table) * (window - 1) + start + torch.minimum(key, last)
    query = positions.unsqueeze(-1)
    visible = (key_positions <= query) & (key_positions > query - window)
    return Tile(
        group=place.group,
        rows=start + relative,
        positions=positions,
        end_position=place.end_position,
        window=window,
        window_rows=torch.where(key < 0, old, fresh),
        window_visible=visible & (key_positions >= floors.unsqueeze(-1)),
        floors=floors,
    )


def _order(tiles: Sequence[Tile], rows: int) -> Tensor | None:
    if len(tiles) == 1 and tiles[0].rows.numel() == rows:
        return None
    flat = [tile.rows.flatten() for tile in tiles]
    if not flat:
        return None
    laid = torch.cat(flat)
    # Padding repeats a query, so whichever of the equal places wins holds the same result.
    return laid.new_zeros(rows).index_copy_(0, laid, torch.arange(len(laid), device=laid.device))
