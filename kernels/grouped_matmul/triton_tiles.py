"""(row, expert) pairs in order of their expert, cut into tiles that have one expert each.

One launch, or two of many pairs, whatever the choice: nothing waits for the device. A negative
choice is no expert, and its pair is in no tile.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from kernels.dependent_launch import early, wait_for_results


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


RANKED = tl.constexpr(32)  # pairs that a pair of the same chunk is compared with at a time


@triton.jit
def choices(chosen, at, pairs, experts):
    """Experts of pairs; `experts` of those that have none."""
    one = tl.load(chosen + at, mask=at < pairs, other=experts).to(tl.int32)
    return tl.where(one < 0, experts, one)


@triton.jit(do_not_specialize=["pairs"])
def count_kernel(
    chosen, counts, pairs, experts, EARLY: tl.constexpr, BINS: tl.constexpr, CHUNK: tl.constexpr
):
    """How many pairs of a chunk each expert has: int16 [chunks, BINS]."""
    wait_for_results(EARLY)
    chunk = tl.program_id(0)
    one = choices(chosen, chunk * CHUNK + tl.arange(0, CHUNK), pairs, experts)
    tl.store(counts + chunk * BINS + tl.arange(0, BINS), tl.histogram(one, BINS))


@triton.jit
def group_chunk(
    chosen,
    counts,
    order,
    places,
    tiles,
    tile_expert,
    tile_start,
    tile_end,
    pairs,
    experts,
    chunk,
    chunks,
    COUNTED: tl.constexpr,
    TILE: tl.constexpr,
    BINS: tl.constexpr,
    CHUNK: tl.constexpr,
    STEP: tl.constexpr,
):
    """A chunk of the pairs in order of their experts, and each so many-th tile of every expert.

    COUNTED: by the counts of all chunks, STEP of them at a time, else by STEP pairs at a time.
    """
    every = tl.arange(0, BINS)
    total = tl.zeros((BINS,), tl.int32)
    before = tl.zeros((BINS,), tl.int32)  # this chunk
    if COUNTED:
        for start in range(0, chunks, STEP):
            line = start + tl.arange(0, STEP)[:, None]
            here = counts + line * BINS + every[None, :]
            held = tl.load(here, mask=line < chunks, other=0).to(tl.int32)
            total += tl.sum(held, 0)
            before += tl.sum(tl.where(line < chunk, held, 0), 0)
    else:
        for start in range(0, pairs, STEP):
            at = start + tl.arange(0, STEP)
            one = choices(chosen, at, pairs, experts)
            total += tl.histogram(one, BINS)
            before += tl.histogram(tl.where(at < chunk * CHUNK, one, experts), BINS)
    total = tl.where(every < experts, total, 0)
    first = tl.cumsum(total, 0) - total
    within = tl.arange(0, CHUNK)
    pair = chunk * CHUNK + within
    mine = choices(chosen, pair, pairs, experts)
    place = tl.gather(first + before, mine, 0)
    for start in range(0, CHUNK, RANKED):
        at = start + tl.arange(0, RANKED)
        one = choices(chosen, chunk * CHUNK + at, pairs, experts)
        is_before = (one[None, :] == mine[:, None]) & (at[None, :] < within[:, None])
        place += tl.sum(is_before.to(tl.int32), 1)
    is_some = mine < experts
    tl.store(order + place, pair, mask=is_some)
    tl.store(places + pair, place, mask=is_some)
    each = (total + (TILE - 1)) // TILE
    tile = tl.cumsum(each, 0) - each
    tl.store(tiles, tl.sum(each, 0))  # every program writes the same
    for k in range(chunk, tl.max(each, 0), chunks):
        has = k < each
        tl.store(tile_expert + tile + k, every, mask=has)
        tl.store(tile_start + tile + k, first + k * TILE, mask=has)
        tl.store(tile_end + tile + k, first + total, mask=has)


@triton.jit(do_not_specialize=["pairs", "chunks"])
def group_kernel(
    chosen,
    counts,
    order,
    places,
    tiles,
    tile_expert,
    tile_start,
    tile_end,
    pairs,
    experts,
    chunks,
    EARLY: tl.constexpr,
    COUNTED: tl.constexpr,
    TILE: tl.constexpr,
    BINS: tl.constexpr,
    CHUNK: tl.constexpr,
    STEP: tl.constexpr,
):
    """`group_chunk` of all chunks."""
    wait_for_results(EARLY)
    group_chunk(
        chosen,
        counts,
        order,
        places,
        tiles,
        tile_expert,
        tile_start,
        tile_end,
        pairs,
        experts,
        tl.program_id(0),
        chunks,
        COUNTED,
        TILE,
        BINS,
        CHUNK,
        STEP,
    )


FEW_PAIRS = 2048  # up to here, each program counts all pairs
FEW_CHUNK, MANY_CHUNK = 64, 256  # pairs of a program
LEAST_STEP, MOST_STEP = 128, 1024  # pairs that are counted at a time
HELD = 8192  # counts that are added up at a time


@dataclass(frozen=True, kw_only=True)
class Cut:
    """How so many pairs are cut into programs that put them in order."""

    chunks: int
    counted: int  # chunks that are counted beforehand: all or none
    chunk: int  # pairs
    step: int
    bins: int
    tile: int

    @classmethod
    def of(cls, pairs: int, experts: int, tile: int) -> Cut:
        """By shapes alone."""
        bins = max(triton.next_power_of_2(experts + 1), 32)
        if pairs > FEW_PAIRS:
            chunks = triton.cdiv(pairs, MANY_CHUNK)
            chunk, counted, step = MANY_CHUNK, chunks, max(HELD // bins, 1)
        else:
            chunk, counted, chunks = FEW_CHUNK, 0, triton.cdiv(pairs, FEW_CHUNK)
            step = min(max(triton.next_power_of_2(pairs), LEAST_STEP), MOST_STEP)
        return cls(chunks=chunks, counted=counted, chunk=chunk, step=step, bins=bins, tile=tile)

    @property
    def constants(self) -> dict[str, int]:
        """As kernels take it."""
        return {
            "COUNTED": self.counted > 0,
            "TILE": self.tile,
            "BINS": self.bins,
            "CHUNK": self.chunk,
            "STEP": self.step,
        }


@dataclass(frozen=True, kw_only=True)
class Tiles:
    """Pairs in order of their expert, cut into tiles of one expert each."""

    order: Tensor
    places: Tensor  # of each pair in `order`; of one that has no expert, anything
    tiles: Tensor  # how many there are
    expert: Tensor  # of each, as are:
    start: Tensor
    end: Tensor  # of the expert's pairs: a tile ends there or `size` after it starts
    most: int

    @classmethod
    def room(cls, chosen: Tensor, experts: int, size: int) -> Tiles:
        """For tiles of at most `size` pairs of chosen [rows, k], nothing in it yet."""
        pairs = chosen.numel()
        most = min(pairs, pairs // size + experts)  # tiles, however the pairs fall
        # Each begins where a vector may, whatever the sizes.
        held = [_aligned(n) for n in (pairs, pairs, 1, most, most, most)]
        table = torch.empty(sum(held), dtype=torch.int32, device=chosen.device)
        order, places, tiles, expert, start, end = table.split(held)
        return cls(
            order=order, places=places, tiles=tiles, expert=expert, start=start, end=end, most=most
        )

    @classmethod
    def of(cls, chosen: Tensor, experts: int, size: int) -> Tiles:
        """Tiles of at most `size` pairs for contiguous chosen [rows, k] of so many experts."""
        made = cls.room(chosen, experts, size)
        cut = Cut.of(chosen.numel(), experts, size)
        counts = torch.empty((cut.counted, cut.bins), dtype=torch.int16, device=chosen.device)
        if cut.counted:
            count_kernel[(cut.chunks,)](
                chosen,
                counts,
                chosen.numel(),
                experts,
                BINS=cut.bins,
                CHUNK=cut.chunk,
                num_warps=4,
                **early(),
            )
        group_kernel[(cut.chunks,)](
            chosen,
            counts,
            *made.written,
            chosen.numel(),
            experts,
            cut.chunks,
            **cut.constants,
            num_warps=8 if cut.counted else 4,
            **early(),
        )
        return made

    @property
    def written(self) -> tuple[Tensor, ...]:
        """As the kernel takes it that makes it."""
        return self.order, self.places, self.tiles, self.expert, self.start, self.end

    @property
    def table(self) -> tuple[Tensor, ...]:
        """As kernels take it."""
        return self.order, self.tiles, self.expert, self.start, self.end


def _aligned(count: int) -> int:
    return -(-count // 4) * 4
