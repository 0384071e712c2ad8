"""Experts of fp8 tiles: their two products, and the operation where they serve it.

As `kernels.grouped_matmul.triton_packed` does it for mxfp4: weights are on the wide side of the
matrix instruction and are unpacked on the way into it, activations come in planes, and what lies
between the products is rounded to e4m3 where the weights say so. A value of e4m3 times a power of
two is a bfloat16, so that the product is that of the rounded values.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from kernels.beside import ready
from kernels.grouped_matmul import triton_cuda
from kernels.grouped_matmul.reference import Experts, Shared
from kernels.grouped_matmul.triton_packed import gated
from kernels.grouped_matmul.triton_tiles import Sizes, Tiles
from kernels.matmul.triton_cuda import TILE_SIDES
from kernels.matmul.weights import Fp8Weight, Weight
from kernels.quantize.triton_groups import arranged
from kernels.quantize.triton_operands import FP8_PLANES, UNDO_FP8, fp8_planes, spread_scales

FEW_PAIRS, MANY_PAIRS = 4, 32  # of an expert on average, from which tiles are larger


@triton.jit(do_not_specialize=["per_row", "blocks", "scale_rows", "scale_stride"])
def gate_up_fp8_kernel(
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
    scale_rows,
    scale_stride,
    limit,
    HIGH: tl.constexpr,
    WIDE: tl.constexpr,
    GROUP: tl.constexpr,
    EVEN: tl.constexpr,
    IN_ASSEMBLY: tl.constexpr,
    TILE: tl.constexpr,
    COLUMNS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """weight * swiglu(gate_up(x)) of one tile, some columns, in planes, in order of the experts.

    BLOCK words of a row at a time; EVEN: it divides their count. Scales are those of HIGH x WIDE
    values, `scale_rows` x `scale_stride` of an expert.
    """
    tile = tl.program_id(0) // blocks
    if tile < tl.load(tiles):
        words = width // 2
        column = (tl.program_id(0) - tile * blocks) * COLUMNS + tl.arange(0, COLUMNS)
        expert = tl.load(tile_expert + tile).to(tl.int64)
        place = tl.load(tile_start + tile) + tl.arange(0, TILE)
        inside = place < tl.load(tile_end + tile)
        pair = tl.load(order + place, mask=inside, other=0)
        at = tl.arange(0, BLOCK)
        rows = x + (pair // per_row).to(tl.int64)[None, :] * width + at[:, None]
        held = tl.where(column < inner, column, 0)
        here = gate_up + (expert * 2 * inner + held)[:, None] * words + at[None, :]
        there = here + inner.to(tl.int64) * words
        EACH: tl.constexpr = WIDE // 2 if WIDE // 2 < BLOCK else BLOCK  # words of a tile in a block
        SCALES: tl.constexpr = BLOCK // EACH
        group = tl.arange(0, SCALES)[None, :]
        first = scales + expert * scale_rows * scale_stride
        here_scale = first + (held // HIGH)[:, None] * scale_stride + group
        there_scale = first + ((inner + held) // HIGH)[:, None] * scale_stride + group
        gate = tl.zeros((COLUMNS, TILE), tl.float32)
        up = tl.zeros((COLUMNS, TILE), tl.float32)
        near = group < scale_stride
        next_gate = tl.load(here_scale, mask=near, other=0)
        next_up = tl.load(there_scale, mask=near, other=0)
        for start in range(0, words, BLOCK):
            gate_factor = spread_scales(next_gate, COLUMNS, SCALES, EACH)
            up_factor = spread_scales(next_up, COLUMNS, SCALES, EACH)
            ahead = (start + BLOCK) * 2 // WIDE
            near = ahead + group < scale_stride
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
            w0, w1 = fp8_planes(gate_word, gate_factor, IN_ASSEMBLY)
            gate = tl.dot(w0, x0, gate)
            gate = tl.dot(w1, x1, gate)
            w0, w1 = fp8_planes(up_word, up_factor, IN_ASSEMBLY)
            up = tl.dot(w0, x0, up)
            up = tl.dot(w1, x1, up)
        share = tl.load(weights + pair, mask=inside, other=0.0)
        y = gated(gate * UNDO_FP8, up * UNDO_FP8, limit, share, COLUMNS, TILE, GROUP)
        to = column % 2 * (inner // 2) + column // 2
        to = out + place.to(tl.int64)[None, :] * inner + to[:, None]
        tl.store(to, y, mask=(column < inner)[:, None] & inside[None, :])


@triton.jit(do_not_specialize=["blocks", "scale_rows", "scale_stride"])
def down_fp8_kernel(
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
    scale_rows,
    scale_stride,
    HIGH: tl.constexpr,
    WIDE: tl.constexpr,
    EVEN: tl.constexpr,
    IN_ASSEMBLY: tl.constexpr,
    TILE: tl.constexpr,
    COLUMNS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """down(x) of one tile, some columns, each pair written where it came from."""
    tile = tl.program_id(0) // blocks
    if tile < tl.load(tiles):
        words = inner // 2
        column = (tl.program_id(0) - tile * blocks) * COLUMNS + tl.arange(0, COLUMNS)
        expert = tl.load(tile_expert + tile).to(tl.int64)
        place = tl.load(tile_start + tile) + tl.arange(0, TILE)
        inside = place < tl.load(tile_end + tile)
        at = tl.arange(0, BLOCK)
        rows = x + place.to(tl.int64)[None, :] * inner + at[:, None]
        held = tl.where(column < width, column, 0)
        here = down + (expert * width + held)[:, None] * words + at[None, :]
        EACH: tl.constexpr = WIDE // 2 if WIDE // 2 < BLOCK else BLOCK
        SCALES: tl.constexpr = BLOCK // EACH
        group = tl.arange(0, SCALES)[None, :]
        first = scales + expert * scale_rows * scale_stride
        here_scale = first + (held // HIGH)[:, None] * scale_stride + group
        total = tl.zeros((COLUMNS, TILE), tl.float32)
        ahead_scale = tl.load(here_scale, mask=group < scale_stride, other=0)
        for start in range(0, words, BLOCK):
            factor = spread_scales(ahead_scale, COLUMNS, SCALES, EACH)
            ahead = (start + BLOCK) * 2 // WIDE
            ahead_scale = tl.load(here_scale + ahead, mask=ahead + group < scale_stride, other=0)
            if EVEN:
                taken = inside[None, :]
                word = tl.load(here + start)
            else:
                taken = inside[None, :] & (start + at < words)[:, None]
                word = tl.load(here + start, mask=(start + at < words)[None, :], other=0)
            x0 = tl.load(rows + start, mask=taken, other=0.0)
            x1 = tl.load(rows + words + start, mask=taken, other=0.0)
            w0, w1 = fp8_planes(word, factor, IN_ASSEMBLY)
            total = tl.dot(w0, x0, total)
            total = tl.dot(w1, x1, total)
        pair = tl.load(order + place, mask=inside, other=0).to(tl.int64)
        to = out + pair[None, :] * width + column[:, None]
        tl.store(to, total * UNDO_FP8, mask=(column < width)[:, None] & inside[None, :])


def fp8_sizes(pairs: int, experts: int, group: int | None) -> Sizes:
    """By shapes alone; a group of values that are rounded together is within one program."""
    if pairs >= MANY_PAIRS * experts:
        return Sizes(tile=64, columns=128, block=32, warps=8, stages=3)
    tile = 8 if pairs < FEW_PAIRS * experts else 16
    if group == 128:
        return Sizes(tile=tile, columns=128, block=32, warps=4, stages=3)
    return Sizes(tile=tile, columns=64, block=64, warps=4, stages=3)


def suits(experts: Experts, x: Tensor) -> bool:
    """Whether these products are those of such experts; x bfloat16 [rows, width]."""
    gate_up, down = experts.gate_up, experts.down
    return (
        x.dtype == torch.bfloat16
        and _is_packed(gate_up)
        and _is_packed(down)
        and gate_up.shape[-2] == 2 * down.shape[-1]
    )


def _is_packed(weight: Weight) -> bool:
    if not isinstance(weight, Fp8Weight):
        return False
    group = weight.input_group
    sides = (*weight.tile, 32 if group is None else group)
    return all(s in TILE_SIDES for s in sides) and weight.shape[-1] % sides[-1] == 0


def fp8_parts(x: Tensor, experts: Experts, tiles: Tiles, weights: Tensor, sizes: Sizes) -> Tensor:
    """What each pair adds, in order of the pairs: [pairs, width]. x bfloat16 [rows, width]."""
    gate_up, down = experts.gate_up, experts.down
    assert isinstance(gate_up, Fp8Weight)
    assert isinstance(down, Fp8Weight)
    pairs, width, inner = weights.numel(), x.shape[-1], down.shape[-1]
    x = arranged(x, group=gate_up.input_group, planes=FP8_PLANES)
    middle = torch.empty((pairs, inner), dtype=x.dtype, device=x.device)
    blocks = triton.cdiv(inner, sizes.columns)
    gate_up_fp8_kernel[(tiles.most * blocks,)](
        x,
        gate_up.values.view(torch.uint16),
        gate_up.scales,
        weights,
        *tiles.table,
        middle,
        weights.shape[1],
        width,
        inner,
        blocks,
        *gate_up.scales.shape[-2:],
        experts.limit,
        HIGH=gate_up.tile[0],
        WIDE=gate_up.tile[1],
        GROUP=down.input_group or 0,
        EVEN=width // FP8_PLANES % sizes.block == 0,
        IN_ASSEMBLY=x.is_cuda,
        **sizes.constants,
        **sizes.launch,
    )
    parts = torch.empty((pairs, width), dtype=x.dtype, device=x.device)
    blocks = triton.cdiv(width, sizes.columns)
    down_fp8_kernel[(tiles.most * blocks,)](
        middle,
        down.values.view(torch.uint16),
        down.scales,
        *tiles.table,
        parts,
        width,
        inner,
        blocks,
        *down.scales.shape[-2:],
        HIGH=down.tile[0],
        WIDE=down.tile[1],
        EVEN=inner // FP8_PLANES % sizes.block == 0,
        IN_ASSEMBLY=x.is_cuda,
        **sizes.constants,
        **sizes.launch,
    )
    return parts


def run_experts(
    x: Tensor, experts: Experts, chosen: Tensor, weights: Tensor, shared: Shared
) -> Tensor:
    """See kernels.grouped_matmul.reference: experts of fp8 tiles with bfloat16 x here, others as
    `triton_cuda` does it.
    """
    if not chosen.numel() or not suits(experts, x):
        return triton_cuda.run_experts(x, experts, chosen, weights, shared)
    return in_tiles(x, experts, chosen, weights, shared, pairs=chosen.numel())


def in_tiles(
    x: Tensor, experts: Experts, chosen: Tensor, weights: Tensor, shared: Shared, *, pairs: int
) -> Tensor:
    """`run_experts`, cut as suits so many pairs."""
    x, chosen, weights = x.contiguous(), chosen.contiguous(), weights.contiguous()
    count, down = experts.down.shape[0], experts.down
    assert isinstance(down, Fp8Weight)
    sizes = fp8_sizes(pairs, count, down.input_group)
    tiles = Tiles.of(chosen, count, sizes.tile)
    parts = fp8_parts(x, experts, tiles, weights, sizes)
    return triton_cuda.combined(parts, chosen, ready(shared).contiguous())
