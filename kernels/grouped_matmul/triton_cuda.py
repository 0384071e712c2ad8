"""Rows through their experts in four launches, and nothing waits for the device.

(row, expert) pairs are put in order of their expert; products run over tiles of pairs of one
expert, the weights on the wide side of the matrix instruction, columns in one order whatever
the batch. A last pass adds the parts of each row in the order of its choice.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from kernels.beside import ready
from kernels.dependent_launch import early, wait_for_results
from kernels.grouped_matmul import reference
from kernels.grouped_matmul.reference import Experts, Shared
from kernels.grouped_matmul.triton_packed import packed_parts, packed_sizes
from kernels.grouped_matmul.triton_tiles import Sizes, Tiles
from kernels.matmul.weights import Mxfp4Weight

FEW, MANY = 16, 64  # pairs of a tile
MANY_PAIRS = 32  # of an expert on average, from which tiles are large
MOST_EXPERTS = 4095


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
def combine_kernel(
    parts,
    chosen,
    shared,
    out,
    width,
    blocks,
    EARLY: tl.constexpr,
    TOP: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Parts of a row in the order of its choice; of no expert (negative), nothing was written."""
    wait_for_results(EARLY)
    row = (tl.program_id(0) // blocks).to(tl.int64)
    at = tl.program_id(0) % blocks * BLOCK + tl.arange(0, BLOCK)
    inside = at < width
    total = tl.zeros((BLOCK,), tl.float32)
    for i in tl.static_range(TOP):
        here = parts + (row * TOP + i) * width
        is_some = tl.load(chosen + row * TOP + i) >= 0
        total += tl.load(here + at, mask=inside & is_some, other=0.0).to(tl.float32)
    total += tl.load(shared + row * width + at, mask=inside, other=0.0).to(tl.float32)
    tl.store(out + row * width + at, total, mask=inside)


def run_experts(
    x: Tensor, experts: Experts, chosen: Tensor, weights: Tensor, shared: Shared
) -> Tensor:
    """See kernels.grouped_matmul.reference. x and plain experts of one dtype, float32 or bfloat16;
    mxfp4 experts with bfloat16 x. The definition serves other packings, and waits for the device.
    """
    if not chosen.numel():
        return torch.empty_like(x).copy_(ready(shared))
    return in_tiles(x, experts, chosen, weights, shared, pairs=chosen.numel())


def in_tiles(
    x: Tensor, experts: Experts, chosen: Tensor, weights: Tensor, shared: Shared, *, pairs: int
) -> Tensor:
    """`run_experts`, cut as suits so many pairs."""
    count = experts.down.shape[0]
    x, chosen, weights = x.contiguous(), chosen.contiguous(), weights.contiguous()
    gate_up, down = experts.gate_up, experts.down
    if isinstance(gate_up, Mxfp4Weight) and isinstance(down, Mxfp4Weight) and _is_bfloat16(x):
        sizes = packed_sizes(pairs, count)
        tiles = Tiles.of(chosen, count, sizes.tile)
        parts = packed_parts(x, gate_up, down, experts.limit, tiles, weights, sizes)
    elif isinstance(gate_up, Tensor) and isinstance(down, Tensor):
        sizes = _sizes(pairs, count, x.dtype)
        tiles = Tiles.of(chosen, count, sizes.tile)
        parts = _plain_parts(x, gate_up, down, experts.limit, tiles, weights, sizes)
    else:
        return reference.run_experts(x, experts, chosen, weights, shared)
    return combined(parts, chosen, ready(shared).contiguous())


def _is_bfloat16(x: Tensor) -> bool:
    return x.dtype == torch.bfloat16


def _sizes(pairs: int, experts: int, dtype: torch.dtype) -> Sizes:
    """Shapes alone decide; columns are added in one order under all of them."""
    if dtype == torch.float32:
        return Sizes(tile=FEW, columns=32, block=32, warps=4, stages=2)
    if pairs < MANY_PAIRS * experts:
        return Sizes(tile=FEW, columns=64, block=128, warps=4, stages=3)
    return Sizes(tile=MANY, columns=128, block=64, warps=8, stages=3)


def _plain_parts(
    x: Tensor,
    gate_up: Tensor,
    down: Tensor,
    limit: float,
    tiles: Tiles,
    weights: Tensor,
    sizes: Sizes,
) -> Tensor:
    """What each pair adds, in order of the pairs: [pairs, width]."""
    pairs, width, inner = weights.numel(), x.shape[-1], down.shape[-1]
    middle = torch.empty((pairs, inner), dtype=x.dtype, device=x.device)
    blocks = triton.cdiv(inner, sizes.columns)
    gate_up_kernel[(tiles.most * blocks,)](
        x,
        gate_up,
        weights,
        *tiles.table,
        middle,
        weights.shape[1],
        width,
        inner,
        blocks,
        limit,
        **sizes.constants,
        **sizes.launch,
    )
    parts = torch.empty((pairs, width), dtype=x.dtype, device=x.device)
    blocks = triton.cdiv(width, sizes.columns)
    down_kernel[(tiles.most * blocks,)](
        middle, down, *tiles.table, parts, width, inner, blocks, **sizes.constants, **sizes.launch
    )
    return parts


def combined(parts: Tensor, chosen: Tensor, shared: Tensor) -> Tensor:
    """The parts of each row [rows * k, width] in the order of its choice [rows, k] and `shared`."""
    out = torch.empty_like(shared, dtype=parts.dtype)
    rows, width = out.shape
    block = min(triton.next_power_of_2(width), 1024)
    blocks = triton.cdiv(width, block)
    combine_kernel[(rows * blocks,)](
        parts,
        chosen,
        shared,
        out,
        width,
        blocks,
        TOP=chosen.shape[1],
        BLOCK=block,
        num_warps=4,
        **early(),
    )
    return out
