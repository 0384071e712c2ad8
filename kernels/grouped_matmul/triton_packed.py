"""The two products of mxfp4 experts, for `kernels.grouped_matmul.triton_cuda`.

Weights are on the wide side of the matrix instruction and are unpacked on the way into it;
activations come in planes (`kernels.quantize.triton_operands`). What lies between the two
products is rounded, where the weights say so, before it is written.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from kernels.grouped_matmul.triton_tiles import Sizes, Tiles
from kernels.matmul.weights import Mxfp4Weight
from kernels.quantize.triton_groups import arranged
from kernels.quantize.triton_operands import (
    FP4_PLANES,
    UNDO_FP4,
    fp4_planes,
    rounded_columns,
    spread_scales,
)
from kernels.tuning import Tunable, chosen


@triton.jit
def gated(gate, up, limit, share, COLUMNS: tl.constexpr, TILE: tl.constexpr, GROUP: tl.constexpr):
    """share * swiglu of float32 [COLUMNS, TILE], rounded in groups of columns where there are."""
    # Comparisons, so that a NaN stays one.
    gate = tl.where(gate > limit, limit, gate)
    up = tl.where(up > limit, limit, tl.where(up < -limit, -limit, up))
    y = gate / (1.0 + tl.exp(-gate)) * up * share[None, :]
    if GROUP > 0:
        y = rounded_columns(y.to(tl.bfloat16).to(tl.float32), COLUMNS, TILE, GROUP)
    return y


@triton.jit(do_not_specialize=["per_row", "blocks"])
def gate_up_packed_kernel(
    x,
    gate_up,
    scales,
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
    GROUP: tl.constexpr,
    EVEN: tl.constexpr,
    IN_ASSEMBLY: tl.constexpr,
    TILE: tl.constexpr,
    COLUMNS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """weight * swiglu(gate_up(x)) of one tile, some columns, in planes, in order of the experts.

    BLOCK words of a row at a time; EVEN: it divides their count.
    """
    tile = tl.program_id(0) // blocks
    if tile < tl.load(tiles):
        words = width // 4
        column = tl.program_id(0) % blocks * COLUMNS + tl.arange(0, COLUMNS)
        expert = tl.load(tile_expert + tile).to(tl.int64)
        place = tl.load(tile_start + tile) + tl.arange(0, TILE)
        inside = place < tl.load(tile_end + tile)
        pair = tl.load(order + place, mask=inside, other=0)
        at = tl.arange(0, BLOCK)
        rows = x + (pair // per_row).to(tl.int64)[None, :] * width + at[:, None]
        row = expert * 2 * inner + tl.where(column < inner, column, 0)
        here = gate_up + row[:, None] * words + at[None, :]
        there = here + inner.to(tl.int64) * words
        group = tl.arange(0, BLOCK // 8)[None, :]
        here_scale = scales + row[:, None] * (words // 8) + group
        there_scale = here_scale + inner.to(tl.int64) * (words // 8)
        gate = tl.zeros((COLUMNS, TILE), tl.float32)
        up = tl.zeros((COLUMNS, TILE), tl.float32)
        near = group < words // 8
        next_gate = tl.load(here_scale, mask=near, other=0)
        next_up = tl.load(there_scale, mask=near, other=0)
        for start in range(0, words, BLOCK):
            gate_factor = spread_scales(next_gate, COLUMNS, BLOCK // 8, 8)
            up_factor = spread_scales(next_up, COLUMNS, BLOCK // 8, 8)
            ahead = (start + BLOCK) // 8
            near = ahead + group < words // 8
            next_gate = tl.load(here_scale + ahead, mask=near, other=0)
            next_up = tl.load(there_scale + ahead, mask=near, other=0)
            if EVEN:
                taken = inside[None, :]
                gate_word = tl.load(here + start)
                up_word = tl.load(there + start)
            else:
                taken = inside[None, :] & (start + at < words)[:, None]
                gate_word = tl.load(here + start, mask=(start + at < words)[None, :], other=0)
                up_word = tl.load(there + start, mask=(start + at < words)[None, :], other=0)
            x0 = tl.load(rows + start, mask=taken, other=0.0)
            x1 = tl.load(rows + words + start, mask=taken, other=0.0)
            x2 = tl.load(rows + 2 * words + start, mask=taken, other=0.0)
            x3 = tl.load(rows + 3 * words + start, mask=taken, other=0.0)
            w0, w1, w2, w3 = fp4_planes(gate_word, gate_factor, IN_ASSEMBLY)
            gate = tl.dot(w0, x0, gate)
            gate = tl.dot(w1, x1, gate)
            gate = tl.dot(w2, x2, gate)
            gate = tl.dot(w3, x3, gate)
            w0, w1, w2, w3 = fp4_planes(up_word, up_factor, IN_ASSEMBLY)
            up = tl.dot(w0, x0, up)
            up = tl.dot(w1, x1, up)
            up = tl.dot(w2, x2, up)
            up = tl.dot(w3, x3, up)
        share = tl.load(weights + pair, mask=inside, other=0.0)
        y = gated(gate * UNDO_FP4, up * UNDO_FP4, limit, share, COLUMNS, TILE, GROUP)
        to = column % 4 * (inner // 4) + column // 4
        to = out + place.to(tl.int64)[None, :] * inner + to[:, None]
        tl.store(to, y, mask=(column < inner)[:, None] & inside[None, :])


@triton.jit(do_not_specialize=["blocks"])
def down_packed_kernel(
    x,
    down,
    scales,
    order,
    tiles,
    tile_expert,
    tile_start,
    tile_end,
    out,
    width,
    inner,
    blocks,
    EVEN: tl.constexpr,
    IN_ASSEMBLY: tl.constexpr,
    TILE: tl.constexpr,
    COLUMNS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """down(x) of one tile, some columns, each pair written where it came from."""
    tile = tl.program_id(0) // blocks
    if tile < tl.load(tiles):
        words = inner // 4
        column = tl.program_id(0) % blocks * COLUMNS + tl.arange(0, COLUMNS)
        expert = tl.load(tile_expert + tile).to(tl.int64)
        place = tl.load(tile_start + tile) + tl.arange(0, TILE)
        inside = place < tl.load(tile_end + tile)
        at = tl.arange(0, BLOCK)
        rows = x + place.to(tl.int64)[None, :] * inner + at[:, None]
        row = expert * width + tl.where(column < width, column, 0)
        here = down + row[:, None] * words + at[None, :]
        group = tl.arange(0, BLOCK // 8)[None, :]
        here_scale = scales + row[:, None] * (words // 8) + group
        total = tl.zeros((COLUMNS, TILE), tl.float32)
        ahead_scale = tl.load(here_scale, mask=group < words // 8, other=0)
        for start in range(0, words, BLOCK):
            factor = spread_scales(ahead_scale, COLUMNS, BLOCK // 8, 8)
            ahead = (start + BLOCK) // 8
            ahead_scale = tl.load(here_scale + ahead, mask=ahead + group < words // 8, other=0)
            if EVEN:
                taken = inside[None, :]
                word = tl.load(here + start)
            else:
                taken = inside[None, :] & (start + at < words)[:, None]
                word = tl.load(here + start, mask=(start + at < words)[None, :], other=0)
            x0 = tl.load(rows + start, mask=taken, other=0.0)
            x1 = tl.load(rows + words + start, mask=taken, other=0.0)
            x2 = tl.load(rows + 2 * words + start, mask=taken, other=0.0)
            x3 = tl.load(rows + 3 * words + start, mask=taken, other=0.0)
            w0, w1, w2, w3 = fp4_planes(word, factor, IN_ASSEMBLY)
            total = tl.dot(w0, x0, total)
            total = tl.dot(w1, x1, total)
            total = tl.dot(w2, x2, total)
            total = tl.dot(w3, x3, total)
        pair = tl.load(order + place, mask=inside, other=0).to(tl.int64)
        to = out + pair[None, :] * width + column[:, None]
        tl.store(to, total * UNDO_FP4, mask=(column < width)[:, None] & inside[None, :])


FEW_PAIRS, MANY_PAIRS = 4, 32  # of an expert on average, from which tiles are larger
SOME_TILE = 16  # pairs of a tile from FEW_PAIRS
PACKED = Tunable(
    name="packed_experts",
    op="run_experts",
    default={
        "DECODE": 1, "COLUMNS": 32, "BLOCK": 64, "FEW_TILE": 8, "num_warps": 2, "num_stages": 3,
    },
    candidates=tuple(
        {
            "DECODE": decode, "COLUMNS": columns, "BLOCK": block, "FEW_TILE": tile,
            "num_warps": warps, "num_stages": stages,
        }
        for decode, columns, block, tile, warps, stages in (
            (1, 32, 64, 8, 2, 3), (2, 32, 64, 8, 2, 3), (2, 32, 64, 8, 2, 4), (2, 32, 32, 8, 2, 5),
            (2, 64, 32, 8, 4, 4), (2, 64, 64, 8, 4, 3),
            (1, 32, 64, 16, 2, 3), (2, 32, 64, 16, 2, 3), (2, 64, 32, 16, 4, 4),
            (2, 64, 32, 32, 4, 4),  # 32 columns of 64 words spill there
        )
    ),
)  # fmt: skip
"""FEW_TILE: pairs of a tile where experts have few on average. Weights are unpacked once for each
tile: where 128 rows chose 31 of 384 experts, 25 pairs each, that was three or four times.
"""
TUNABLES = (PACKED,)


def packed_sizes(pairs: int, experts: int) -> Sizes:
    """Shapes alone decide, as an H200 was fastest; sums of few and of some pairs have one order."""
    if pairs < MANY_PAIRS * experts:
        config = chosen(PACKED, "few and some pairs")
        return Sizes(
            tile=config["FEW_TILE"] if pairs < FEW_PAIRS * experts else SOME_TILE,
            columns=config["COLUMNS"],
            block=config["BLOCK"],
            warps=config["num_warps"],
            stages=config["num_stages"],
            decode=config["DECODE"],
        )
    return Sizes(tile=128, columns=64, block=32, warps=4, stages=3)


def packed_parts(
    x: Tensor,
    gate_up: Mxfp4Weight,
    down: Mxfp4Weight,
    limit: float,
    tiles: Tiles,
    weights: Tensor,
    sizes: Sizes,
) -> Tensor:
    """What each pair adds, in order of the pairs: [pairs, width]. x bfloat16 [rows, width]."""
    pairs, width, inner = weights.numel(), x.shape[-1], down.shape[-1]
    x = arranged(x, group=gate_up.input_group, planes=FP4_PLANES)
    middle = torch.empty((pairs, inner), dtype=x.dtype, device=x.device)
    blocks = triton.cdiv(inner, sizes.columns)
    gate_up_packed_kernel[(tiles.most * blocks,)](
        x,
        gate_up.packed.view(torch.uint16),
        gate_up.scales,
        weights,
        *tiles.table,
        middle,
        weights.shape[1],
        width,
        inner,
        blocks,
        limit,
        GROUP=down.input_group or 0,
        EVEN=width // FP4_PLANES % sizes.block == 0,
        IN_ASSEMBLY=sizes.decode if x.is_cuda else 0,
        **sizes.constants,
        **sizes.launch,
    )
    parts = torch.empty((pairs, width), dtype=x.dtype, device=x.device)
    blocks = triton.cdiv(width, sizes.columns)
    down_packed_kernel[(tiles.most * blocks,)](
        middle,
        down.packed.view(torch.uint16),
        down.scales,
        *tiles.table,
        parts,
        width,
        inner,
        blocks,
        EVEN=inner // FP4_PLANES % sizes.block == 0,
        IN_ASSEMBLY=sizes.decode if x.is_cuda else 0,
        **sizes.constants,
        **sizes.launch,
    )
    return parts
