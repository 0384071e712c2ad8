"""(row, expert) pairs in order of their expert, cut into tiles that have one expert each.

One launch, whatever the choice: nothing waits for the device. A negative choice is no expert, and
its pair is in no tile.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor


@dataclass(frozen=True)
class Sizes:
    """How a product over tiles is cut: pairs of a tile, columns of weights beside it, inputs (or
    words of them) at a time.
    """

    tile: int
    columns: int
    block: int
    warps: int
    stages: int
    decode: int = 1  # how a device unpacks mxfp4: see `fp4_planes`

    @property
    def launch(self) -> dict[str, int]:
        """As the compiler takes it."""
        return {"num_warps": self.warps, "num_stages": self.stages}

    @property
    def constants(self) -> dict[str, int]:
        """As kernels take it."""
        return {"TILE": self.tile, "COLUMNS": self.columns, "BLOCK": self.block}


@triton.jit
def group_kernel(
    chosen,
    order,
    tiles,
    tile_expert,
    tile_start,
    tile_end,
    pairs,
    experts,
    TILE: tl.constexpr,
    BINS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """One expert: its pairs in ascending order, and its tiles."""
    expert = tl.program_id(0)
    every = tl.arange(0, BINS)
    counts = tl.zeros((BINS,), tl.int32)
    for start in range(0, pairs, BLOCK):
        at = start + tl.arange(0, BLOCK)
        one = tl.load(chosen + at, mask=at < pairs, other=experts).to(tl.int32)
        counts += tl.histogram(tl.where(one < 0, experts, one), BINS)
    counts = tl.where(every < experts, counts, 0)
    before = every < expert
    first = tl.sum(tl.where(before, counts, 0), 0)
    mine = tl.sum(tl.where(every == expert, counts, 0), 0)
    each = (counts + (TILE - 1)) // TILE
    tile = tl.sum(tl.where(before, each, 0), 0)
    tl.store(tiles, tl.sum(each, 0))  # every program writes the same
    for start in range(0, mine, TILE):
        tl.store(tile_expert + tile, expert)
        tl.store(tile_start + tile, first + start)
        tl.store(tile_end + tile, first + mine)
        tile += 1
    if mine > 0:
        place = first
        for start in range(0, pairs, BLOCK):
            at = start + tl.arange(0, BLOCK)
            one = tl.load(chosen + at, mask=at < pairs, other=experts).to(tl.int32)
            is_mine = (one == expert).to(tl.int32)
            rank = tl.cumsum(is_mine, 0) - 1
            tl.store(order + place + rank, at, mask=is_mine > 0)
            place += tl.sum(is_mine, 0)


@dataclass(frozen=True, kw_only=True)
class Tiles:
    """Pairs in order of their expert, cut into tiles of one expert each."""

    order: Tensor
    tiles: Tensor  # how many there are
    expert: Tensor  # of each, as are:
    start: Tensor
    end: Tensor
    most: int

    @classmethod
    def of(cls, chosen: Tensor, experts: int, size: int) -> Tiles:
        """Tiles of at most `size` pairs for contiguous chosen [rows, k] of so many experts."""
        pairs = chosen.numel()
        most = min(pairs, pairs // size + experts)  # tiles, however the pairs fall
        # Each begins where a vector may, whatever the sizes.
        held = [_aligned(n) for n in (pairs, 1, most, most, most)]
        table = torch.empty(sum(held), dtype=torch.int32, device=chosen.device)
        order, tiles, expert, start, end = table.split(held)
        group_kernel[(experts,)](
            chosen,
            order,
            tiles,
            expert,
            start,
            end,
            pairs,
            experts,
            TILE=size,
            BINS=max(triton.next_power_of_2(experts + 1), 32),
            BLOCK=min(max(triton.next_power_of_2(pairs), 128), 1024),
            num_warps=4,
        )
        return cls(order=order, tiles=tiles, expert=expert, start=start, end=end, most=most)

    @property
    def table(self) -> tuple[Tensor, ...]:
        """As kernels take it."""
        return self.order, self.tiles, self.expert, self.start, self.end


def _aligned(count: int) -> int:
    return -(-count // 4) * 4
