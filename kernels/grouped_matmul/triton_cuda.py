"""Rows through their experts in four launches, and nothing waits for the device.

(row, expert) pairs are put in order of their expert; products run over tiles of pairs of one
expert, the weights on the wide side of the matrix instruction, columns in one order whatever
the batch. A last pass adds the parts of each row in the order of its choice.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from kernels.grouped_matmul.reference import Experts

FEW, MANY = 16, 64  # pairs of a tile
MANY_PAIRS = 32  # of an expert on average, from which tiles are large
MOST_EXPERTS = 4095


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
        counts += tl.histogram(one, BINS)
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


@triton.jit
def gate_up_kernel(
    x,
    gate_up,
    weights,
    order,
    tiles,
    tile_expert,
    tile_start,
    tile_end,
    out,
    per_row,
    width,
    inner,
    blocks,
    limit,
    TILE: tl.constexpr,
    COLUMNS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """weight * swiglu(gate_up(x)) of one tile, some columns, pairs in order of their expert."""
    tile = tl.program_id(0) // blocks
    if tile < tl.load(tiles):
        column = tl.program_id(0) % blocks * COLUMNS + tl.arange(0, COLUMNS)
        expert = tl.load(tile_expert + tile).to(tl.int64)
        place = tl.load(tile_start + tile) + tl.arange(0, TILE)
        inside = place < tl.load(tile_end + tile)
        pair = tl.load(order + place, mask=inside, other=0)
        rows = x + (pair // per_row).to(tl.int64)[None, :] * width
        here = gate_up + (expert * 2 * inner + column)[:, None] * width
        there = here + inner.to(tl.int64) * width
        fits = (column < inner)[:, None]
        gate = tl.zeros((COLUMNS, TILE), tl.float32)
        up = tl.zeros((COLUMNS, TILE), tl.float32)
        for start in range(0, width, BLOCK):
            at = start + tl.arange(0, BLOCK)
            value = tl.load(
                rows + at[:, None], mask=inside[None, :] & (at < width)[:, None], other=0.0
            )
            mask = fits & (at < width)[None, :]
            w = tl.load(here + at[None, :], mask=mask, other=0.0)
            gate = tl.dot(w, value, gate, input_precision="ieee")
            w = tl.load(there + at[None, :], mask=mask, other=0.0)
            up = tl.dot(w, value, up, input_precision="ieee")
        # Comparisons, so that a NaN stays one.
        gate = tl.where(gate > limit, limit, gate)
        up = tl.where(up > limit, limit, tl.where(up < -limit, -limit, up))
        share = tl.load(weights + pair, mask=inside, other=0.0)
        y = gate / (1.0 + tl.exp(-gate)) * up * share[None, :]
        to = out + place.to(tl.int64)[None, :] * inner + column[:, None]
        tl.store(to, y, mask=fits & inside[None, :])


@triton.jit
def down_kernel(
    x,
    down,
    order,
    tiles,
    tile_expert,
    tile_start,
    tile_end,
    out,
    width,
    inner,
    blocks,
    TILE: tl.constexpr,
    COLUMNS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """down(x) of one tile, some columns, each pair written where it came from."""
    tile = tl.program_id(0) // blocks
    if tile < tl.load(tiles):
        column = tl.program_id(0) % blocks * COLUMNS + tl.arange(0, COLUMNS)
        expert = tl.load(tile_expert + tile).to(tl.int64)
        place = tl.load(tile_start + tile) + tl.arange(0, TILE)
        inside = place < tl.load(tile_end + tile)
        rows = x + place.to(tl.int64)[None, :] * inner
        here = down + (expert * width + column)[:, None] * inner
        fits = (column < width)[:, None]
        total = tl.zeros((COLUMNS, TILE), tl.float32)
        for start in range(0, inner, BLOCK):
            at = start + tl.arange(0, BLOCK)
            value = tl.load(
                rows + at[:, None], mask=inside[None, :] & (at < inner)[:, None], other=0.0
            )
            w = tl.load(here + at[None, :], mask=fits & (at < inner)[None, :], other=0.0)
            total = tl.dot(w, value, total, input_precision="ieee")
        pair = tl.load(order + place, mask=inside, other=0).to(tl.int64)
        to = out + pair[None, :] * width + column[:, None]
        tl.store(to, total, mask=fits & inside[None, :])


@triton.jit
def combine_kernel(parts, shared, out, width, blocks, TOP: tl.constexpr, BLOCK: tl.constexpr):
    row = (tl.program_id(0) // blocks).to(tl.int64)
    at = tl.program_id(0) % blocks * BLOCK + tl.arange(0, BLOCK)
    inside = at < width
    total = tl.zeros((BLOCK,), tl.float32)
    for i in tl.static_range(TOP):
        here = parts + (row * TOP + i) * width
        total += tl.load(here + at, mask=inside, other=0.0).to(tl.float32)
    total += tl.load(shared + row * width + at, mask=inside, other=0.0).to(tl.float32)
    tl.store(out + row * width + at, total, mask=inside)


@dataclass(frozen=True)
class _Sizes:
    """Shapes alone decide these; columns are added in one order under all of them."""

    tile: int
    columns: int
    block: int
    warps: int
    stages: int

    @classmethod
    def of(cls, pairs: int, experts: int, dtype: torch.dtype) -> _Sizes:
        if dtype == torch.float32:
            return cls(tile=FEW, columns=32, block=32, warps=4, stages=2)
        if pairs < MANY_PAIRS * experts:
            return cls(tile=FEW, columns=64, block=128, warps=4, stages=3)
        return cls(tile=MANY, columns=128, block=64, warps=8, stages=3)


def run_experts(
    x: Tensor, experts: Experts, chosen: Tensor, weights: Tensor, shared: Tensor
) -> Tensor:
    """See kernels.grouped_matmul.reference; x and experts of one dtype, float32 or bfloat16."""
    rows, top = chosen.shape
    width, count, inner = x.shape[-1], experts.down.shape[0], experts.down.shape[-1]
    out = torch.empty((rows, width), dtype=x.dtype, device=x.device)
    pairs = rows * top
    if not pairs:
        return out.copy_(shared)
    x, shared, weights = x.contiguous(), shared.contiguous(), weights.contiguous()
    sizes = _Sizes.of(pairs, count, x.dtype)
    most = min(pairs, pairs // sizes.tile + count)  # tiles, however the pairs fall
    table = torch.empty(pairs + 3 * most + 1, dtype=torch.int32, device=x.device)
    order, tile_expert, tile_start, tile_end, tiles = table.split((pairs, most, most, most, 1))
    group_kernel[(count,)](
        chosen.contiguous(),
        order,
        tiles,
        tile_expert,
        tile_start,
        tile_end,
        pairs,
        count,
        TILE=sizes.tile,
        BINS=max(triton.next_power_of_2(count + 1), 32),
        BLOCK=min(max(triton.next_power_of_2(pairs), 128), 1024),
        num_warps=4,
    )
    where = (order, tiles, tile_expert, tile_start, tile_end)
    launch = {"num_warps": sizes.warps, "num_stages": sizes.stages}
    constants = {"TILE": sizes.tile, "COLUMNS": sizes.columns, "BLOCK": sizes.block}
    middle = torch.empty((pairs, inner), dtype=x.dtype, device=x.device)
    blocks = triton.cdiv(inner, sizes.columns)
    gate_up_kernel[(most * blocks,)](
        x,
        experts.gate_up,
        weights,
        *where,
        middle,
        top,
        width,
        inner,
        blocks,
        experts.limit,
        **constants,
        **launch,
    )
    parts = torch.empty((pairs, width), dtype=x.dtype, device=x.device)
    blocks = triton.cdiv(width, sizes.columns)
    down_kernel[(most * blocks,)](
        middle, experts.down, *where, parts, width, inner, blocks, **constants, **launch
    )
    block = min(triton.next_power_of_2(width), 1024)
    blocks = triton.cdiv(width, block)
    combine_kernel[(rows * blocks,)](
        parts, shared, out, width, blocks, TOP=top, BLOCK=block, num_warps=4
    )
    return out
