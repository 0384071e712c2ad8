"""Products with fp8 weights that stay packed.

Few rows: the time is that of reading the weights. They are on the wide side of the matrix
instruction, unpacked to bfloat16 on the way into it, and the inputs may be cut into slices whose
sums a second launch adds in order. Many rows: the library multiplies, either e4m3 with scales of
128 x 128 tiles, which narrower ones become in a pass of its own, or the matrix unpacked to
bfloat16 in such a pass.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.nn import functional

from kernels.matmul.weights import Fp8Weight
from kernels.quantize.triton_cuda import e4m3_value, ue8m0_value
from kernels.quantize.triton_groups import (
    arranged,
    converts_e4m3,
    e4m3_of,
    e4m3_rounded,
    quantised,
)
from kernels.quantize.triton_operands import (
    FP8_PLANES,
    UNDO_FP8,
    fp8_planes,
    power_of_two,
    spread_scales,
)
from kernels.tuning import Config, Tunable, chosen


@triton.jit(do_not_specialize=["rows", "groups", "scale_stride", "slice_blocks"])
def few_rows_kernel(
    x,
    weight,
    scales,
    out,
    rows,
    groups,
    outputs,
    inputs,
    scale_stride,
    slice_blocks,
    HIGH: tl.constexpr,
    WIDE: tl.constexpr,
    EVEN: tl.constexpr,
    IN_ASSEMBLY: tl.constexpr,
    OUT: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """x [rows, groups, 2, inputs / 2] . weight [groups, outputs, inputs / 2] words: a slice of the
    inputs, parts [slices, rows, groups, outputs].

    BLOCK words at a time; EVEN: it divides their count. Tiles are HIGH x WIDE.
    """
    words = inputs // 2
    blocks = tl.cdiv(outputs, OUT)
    group = tl.program_id(0) // blocks
    column = tl.program_id(0) % blocks * OUT + tl.arange(0, OUT)
    row = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    part = tl.program_id(2)
    start = part * slice_blocks * BLOCK
    end = tl.minimum(start + slice_blocks * BLOCK, words)
    inside = (row < rows)[None, :]
    EACH: tl.constexpr = WIDE // 2 if WIDE // 2 < BLOCK else BLOCK  # words of a tile in a block
    SCALES: tl.constexpr = BLOCK // EACH
    at = tl.arange(0, BLOCK)
    scale_at = tl.arange(0, SCALES)[None, :]
    held = tl.where(column < outputs, column, 0)
    weights = weight + (group * outputs + held).to(tl.int64)[:, None] * words + at[None, :]
    tile_rows = group * tl.cdiv(outputs, HIGH) + held // HIGH
    tiles = scales + tile_rows[:, None] * scale_stride + scale_at
    last = tl.cdiv(inputs, WIDE)
    values = x + (row.to(tl.int64) * groups + group)[None, :] * inputs + at[:, None]
    total = tl.zeros((OUT, ROWS), tl.float32)
    tile = start * 2 // WIDE
    ahead = tl.load(tiles + tile, mask=tile + scale_at < last, other=0)
    for here in range(start, end, BLOCK):
        factor = spread_scales(ahead, OUT, SCALES, EACH)
        tile = (here + BLOCK) * 2 // WIDE
        ahead = tl.load(tiles + tile, mask=tile + scale_at < last, other=0)
        if EVEN:
            word = tl.load(weights + here)
            x0 = tl.load(values + here, mask=inside, other=0.0)
            x1 = tl.load(values + words + here, mask=inside, other=0.0)
        else:
            near = here + at < words
            word = tl.load(weights + here, mask=near[None, :], other=0)
            x0 = tl.load(values + here, mask=inside & near[:, None], other=0.0)
            x1 = tl.load(values + words + here, mask=inside & near[:, None], other=0.0)
        w0, w1 = fp8_planes(word, factor, IN_ASSEMBLY)
        total = tl.dot(w0, x0, total)
        total = tl.dot(w1, x1, total)
    place = (part * rows + row).to(tl.int64) * groups + group
    to = out + place[None, :] * outputs + column[:, None]
    tl.store(to, total * UNDO_FP8, mask=(column < outputs)[:, None] & inside)


MOST_FEW_ROWS = 128  # from more on, it pays to unpack a matrix in a pass of its own
NARROW_ROWS = 32  # up to here, inputs are few beside the weights
SLICED_PROGRAMS = 640  # below this many, the inputs are cut into slices
MOST_SLICES = 8
FEW = Tunable(
    name="few_rows",
    op="linear",
    default={"OUT": 0, "BLOCK": 0, "PROGRAMS": 0, "num_warps": 0, "num_stages": 0},
    candidates=tuple(
        {"OUT": out, "BLOCK": block, "PROGRAMS": programs, "num_warps": w, "num_stages": s}
        for out, block, programs, w, s in (
            (0, 0, 0, 0, 0), (64, 32, 528, 4, 4), (64, 64, 528, 4, 4), (64, 64, 1056, 4, 3),
            (128, 32, 132, 8, 4), (128, 32, 264, 8, 3), (128, 64, 132, 8, 3),
        )
    ),
)  # fmt: skip
"""OUT 0: as `FewRows.of` has it. PROGRAMS: how many are wanted; inputs are cut for as many."""
TUNABLES = (FEW,)
LIBRARY_TILE = 128  # of the scales that the library multiplies with
LIBRARY_INPUTS = 4 * LIBRARY_TILE  # it takes rows of scales to begin at multiples of 16 bytes
WIDENED_TILE = 32  # of those that are widened for it


@triton.jit(do_not_specialize=["size"])
def add_slices_kernel(parts, out, size, SLICES: tl.constexpr, BLOCK: tl.constexpr):
    """The sums of the slices, in their order."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for i in tl.static_range(SLICES):
        total += tl.load(parts + i * size.to(tl.int64) + at, mask=at < size, other=0.0)
    tl.store(out + at, total, mask=at < size)


@triton.jit(do_not_specialize=["rows", "blocks", "scale_stride"])
def dequantise_kernel(
    weight,
    scales,
    out,
    rows,
    inputs,
    blocks,
    scale_stride,
    TILE_ROWS: tl.constexpr,
    TILE_COLUMNS: tl.constexpr,
    HIGH: tl.constexpr,
    WIDE: tl.constexpr,
):
    """A block [HIGH, WIDE] of a matrix as bfloat16."""
    row = tl.program_id(0) // blocks * HIGH + tl.arange(0, HIGH)
    at = tl.program_id(0) % blocks * WIDE + tl.arange(0, WIDE)
    inside = (row < rows)[:, None] & (at < inputs)[None, :]
    here = row.to(tl.int64)[:, None] * inputs + at[None, :]
    tile = (row // TILE_ROWS)[:, None] * scale_stride + (at // TILE_COLUMNS)[None, :]
    scale = ue8m0_value(tl.load(scales + tile, mask=inside, other=0))
    value = e4m3_value(tl.load(weight + here, mask=inside, other=0))
    tl.store(out + here, value * scale, mask=inside)


@triton.jit(do_not_specialize=["blocks", "scale_stride"])
def widen_kernel(
    weight, scales, out, tiles, inputs, padded, blocks, scale_stride,
    SIDE: tl.constexpr, HARDWARE: tl.constexpr,
):  # fmt: skip
    """Tiles of SIDE x SIDE as one of 128 x 128, which is 0 beyond the inputs; see
    `library_tiles`.
    """
    EACH: tl.constexpr = 128 // SIDE
    line = tl.program_id(0) // blocks
    block = tl.program_id(0) % blocks
    real = block * 128 < inputs
    tile = tl.arange(0, EACH)
    here = scales + line * EACH * scale_stride + block * EACH + tile[None, :]
    most = tl.max(tl.load(here + tile[:, None] * scale_stride, mask=real, other=0).to(tl.int32))
    row = tl.arange(0, 128)
    scale = tl.load(here + (row // SIDE)[:, None] * scale_stride, mask=real, other=0).to(tl.int32)
    shift = power_of_two(tl.maximum(127 + scale - most, 1))
    shift = tl.reshape(tl.broadcast_to(shift[:, :, None], (128, EACH, SIDE)), (128, 128))
    at = (line * 128 + row).to(tl.int64)
    column = block * 128 + row[None, :]
    value = tl.load(weight + (at[:, None] * inputs + column), mask=real, other=0)
    code, _ = e4m3_rounded(e4m3_of(value, HARDWARE) * shift, HARDWARE)
    tl.store(out + (at[:, None] * padded + column), code)
    tl.store(tiles + line * blocks + block, power_of_two(most))


@dataclass(frozen=True)
class FewRows:
    """How a product with few rows is cut: outputs and words at a time, slices of the inputs."""

    outputs: int
    block: int
    slices: int
    warps: int
    stages: int

    @classmethod
    def of(cls, rows: int, outputs: int, inputs: int, groups: int) -> FewRows:
        """By shapes alone, as a table says or an H200 was fastest."""
        config = chosen(FEW, f"{outputs} x {inputs} by {row_tile(rows)}")
        if config["OUT"]:
            return cls._of(config, groups * triton.cdiv(outputs, config["OUT"]), inputs)
        programs = groups * triton.cdiv(outputs, 64)
        blocks = triton.cdiv(inputs, 128)
        is_narrow = rows <= NARROW_ROWS
        wanted = SLICED_PROGRAMS if is_narrow else SLICED_PROGRAMS // 2
        slices = max(1, min(MOST_SLICES, wanted // programs, blocks // 4))
        if not is_narrow and slices == 1:
            return cls(outputs=128, block=32, slices=1, warps=8, stages=4)
        return cls(outputs=64, block=64 if is_narrow else 32, slices=slices, warps=4, stages=3)

    @classmethod
    def _of(cls, config: Config, programs: int, inputs: int) -> FewRows:
        blocks = triton.cdiv(inputs, 2 * config["BLOCK"])
        return cls(
            outputs=config["OUT"],
            block=config["BLOCK"],
            slices=max(1, min(MOST_SLICES, config["PROGRAMS"] // programs, blocks // 4)),
            warps=config["num_warps"],
            stages=config["num_stages"],
        )


def row_tile(rows: int) -> int:
    """How many rows a program takes: none more than there are, and as matrix instructions do."""
    return min(max(triton.next_power_of_2(rows), 16), MOST_FEW_ROWS)


def few_rows(x: Tensor, weight: Fp8Weight) -> Tensor:
    """bfloat16 x [rows, groups, inputs], weight [groups, outputs, inputs] (groups may be absent
    where they are 1): [rows, groups, outputs]. Inputs are rounded as the weight says.
    """
    rows, groups, inputs = x.shape
    cut = FewRows.of(rows, weight.shape[-2], inputs, groups)
    return sliced_product(x, weight, cut, row_tile(rows))


def sliced_product(x: Tensor, weight: Fp8Weight, cut: FewRows, tile: int) -> Tensor:
    """`few_rows` cut in one way, `tile` rows at a time."""
    rows, groups, inputs = x.shape
    outputs, (high, wide) = weight.shape[-2], weight.tile
    out = torch.empty((rows, groups, outputs), dtype=x.dtype, device=x.device)
    blocks = triton.cdiv(triton.cdiv(inputs // 2, cut.block), cut.slices)
    slices = triton.cdiv(triton.cdiv(inputs // 2, cut.block), blocks)
    parts = out if slices == 1 else out.new_empty((slices, *out.shape), dtype=torch.float32)
    grid = (groups * triton.cdiv(outputs, cut.outputs), triton.cdiv(rows, tile), slices)
    few_rows_kernel[grid](
        arranged(x.flatten(0, 1), group=weight.input_group, planes=FP8_PLANES),
        weight.values.view(torch.uint16),
        weight.scales,
        parts,
        rows,
        groups,
        outputs,
        inputs,
        weight.scales.shape[-1],
        blocks,
        HIGH=high,
        WIDE=wide,
        EVEN=inputs // 2 % cut.block == 0,
        IN_ASSEMBLY=x.is_cuda,
        OUT=cut.outputs,
        ROWS=tile,
        BLOCK=cut.block,
        num_warps=cut.warps,
        num_stages=cut.stages,
    )
    if slices > 1:
        size = out.numel()
        add_slices_kernel[(triton.cdiv(size, 1024),)](
            parts, out, size, SLICES=slices, BLOCK=1024, num_warps=4
        )
    return out


def many_rows(x: Tensor, weight: Fp8Weight) -> Tensor:
    """bfloat16 x [rows, inputs], weight [outputs, inputs]: [rows, outputs], inputs rounded as
    the weight says.
    """
    group = weight.input_group
    if group is not None and suits_library(x, weight):
        values, shares = quantised(
            x.unsqueeze(1), group=group, shared=LIBRARY_TILE, multiple=LIBRARY_INPUTS
        )
        matrix, tiles = library_tiles(weight)
        values, shares = values.squeeze(1), shares.squeeze(1).T
        return torch._scaled_mm(values, matrix.T, shares, tiles.T, out_dtype=x.dtype)[: len(x)]
    x = x if group is None else arranged(x, group=group, planes=1)
    return functional.linear(x, dequantised(weight))


def suits_library(x: Tensor, weight: Fp8Weight) -> bool:
    """Whether the library multiplies e4m3 by the tiles of this matrix, or by wider ones of it."""
    outputs, inputs = weight.shape[-2:]
    even = outputs % LIBRARY_TILE == 0 and inputs % LIBRARY_TILE == 0
    alike = {weight.input_group, *weight.tile} in ({LIBRARY_TILE}, {WIDENED_TILE})
    return x.is_cuda and alike and even


def library_tiles(weight: Fp8Weight) -> tuple[Tensor, Tensor]:
    """e4m3 [outputs, padded] and float32 scales of its tiles of 128 x 128, for inputs up to a
    multiple of LIBRARY_INPUTS, with zeros.

    Of narrower tiles, 128 x 128 take the largest scale among them, and their values are rounded
    again: each is off by up to 2^-18 of the largest that such a tile may hold.
    """
    outputs, inputs = weight.shape
    padded = triton.cdiv(inputs, LIBRARY_INPUTS) * LIBRARY_INPUTS
    lines, blocks = outputs // LIBRARY_TILE, padded // LIBRARY_TILE
    if weight.tile[0] == LIBRARY_TILE and padded == inputs:
        return weight.values, weight.scales.view(torch.float8_e8m0fnu).to(torch.float32)
    kind = {"device": weight.device}
    values = torch.empty((outputs, padded), dtype=torch.uint8, **kind)
    tiles = torch.empty((lines, blocks), dtype=torch.float32, **kind)
    widen_kernel[(lines * blocks,)](
        weight.values.view(torch.uint8),
        weight.scales,
        values,
        tiles,
        inputs,
        padded,
        blocks,
        weight.scales.shape[-1],
        SIDE=weight.tile[0],
        HARDWARE=converts_e4m3(),
        num_warps=4,
    )
    return values.view(torch.float8_e4m3fn), tiles


def dequantised(weight: Fp8Weight) -> Tensor:
    """The matrices [..., outputs, inputs] in bfloat16."""
    outputs, inputs = weight.shape[-2:]
    assert weight.shape.numel() == outputs * inputs or outputs % weight.tile[0] == 0
    out = torch.empty(weight.shape, dtype=torch.bfloat16, device=weight.device)
    rows, blocks = weight.shape.numel() // inputs, triton.cdiv(inputs, 128)
    dequantise_kernel[(triton.cdiv(rows, 32) * blocks,)](
        weight.values.view(torch.uint8),
        weight.scales,
        out,
        rows,
        inputs,
        blocks,
        weight.scales.shape[-1],
        TILE_ROWS=weight.tile[0],
        TILE_COLUMNS=weight.tile[1],
        HIGH=32,
        WIDE=128,
        num_warps=4,
    )
    return out
