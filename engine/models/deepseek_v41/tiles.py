"""Tiles that attention runs in where it reads a copy of the cache.

Either several short spans side by side, or some rows of a long one. A tile knows the window rows
its queries share and how many global rows each query may see.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

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
from kernels.cache_ops.reference import paged_rows

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


def tiles_of(
    batch: ForwardBatch, spans: Sequence[Span], table: Tensor, cost: TileCost
) -> tuple[Tile, ...]:
    """Tiles of the spans, whose numbers `table` holds on the device as `RowSet` does."""
    number = {span.sequence: i for i, span in enumerate(spans)}
    tiles = []
    groups = group_short((s for s in spans if s.length <= SHORT_ROWS), cost)
    groups += [(span,) for span in spans if span.length > SHORT_ROWS]
    for members in groups:
        chosen = on_device([number[s.sequence] for s in members], table.device)
        group = Group(
            block_table=batch.block_table[table[chosen, 4]],
            end_position=max(span.end_position for span in members),
        )
        longest = max(span.length for span in members)
        step = longest if longest <= SHORT_ROWS else rows_of_tile(members[0], cost)
        for offset in range(0, longest, step):
            part = range(offset, min(offset + step, longest))
            end = max(span.first_position + min(part.stop, span.length) for span in members)
            where = _TilePlace(group=group, chosen=chosen, part=part, end_position=end)
            tiles.append(_tile(where, table, cost.window))
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


def order_of(tiles: Sequence[Tile], rows: int) -> Tensor | None:
    """Where each row lies in the tiles laid end to end; None = in order."""
    if len(tiles) == 1 and tiles[0].rows.numel() == rows:
        return None
    flat = [tile.rows.flatten() for tile in tiles]
    if not flat:
        return None
    laid = torch.cat(flat)
    # Padding repeats a query, so whichever of the equal places wins holds the same result.
    return laid.new_zeros(rows).index_copy_(0, laid, torch.arange(len(laid), device=laid.device))
