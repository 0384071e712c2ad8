"""Activations rounded for a product with packed weights; see `quantise_groups`.

One pass: read rows, round them in groups, and write them as bfloat16 (in planes, where mxfp4
weights will meet them) or as e4m3 with their scales.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from kernels.dependent_launch import early, wait_for_results
from kernels.quantize.triton_cuda import e4m3_code, e4m3_value
from kernels.quantize.triton_operands import group_exponents, power_of_two
from kernels.tuning import current_arch

BLOCK = 1024
QUANTISED_BLOCK = 4096
FEW_QUANTISED = 1024  # where there are no more than so many blocks
FEW_BLOCKS = 1056
LEAST_E4M3_ARCH = 90
ROW_STEP = 128  # a library that takes scales by group reads them up to such a multiple of rows


@triton.jit
def e4m3_rounded(x, HARDWARE: tl.constexpr):
    """Codes (uint8) of float32 no larger than 448, and what they stand for. No NaN."""
    if HARDWARE:
        value = x.to(tl.float8e4nv)
        return value.to(tl.uint8, bitcast=True), value.to(tl.float32)
    code = e4m3_code(x)
    return code, e4m3_value(code)


@triton.jit
def e4m3_of(byte, HARDWARE: tl.constexpr):
    """The float32 that codes stand for."""
    if HARDWARE:
        return byte.to(tl.float8e4nv, bitcast=True).to(tl.float32)
    return e4m3_value(byte)


@triton.jit(do_not_specialize=["blocks"])
def arrange_kernel(
    x, out, width, blocks, PLANES: tl.constexpr, GROUP: tl.constexpr, BLOCK: tl.constexpr,
    HARDWARE: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    """A block of a row; GROUP 0 rounds nothing. PLANES and GROUP divide the width."""
    wait_for_results(EARLY)
    row = (tl.program_id(0) // blocks).to(tl.int64)
    at = tl.program_id(0) % blocks * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + row * width + at, mask=at < width, other=0.0).to(tl.float32)
    if GROUP > 0:
        groups = tl.reshape(value, (BLOCK // GROUP, GROUP))
        exponent = group_exponents(groups, 1)
        down = power_of_two(tl.where(exponent == 255, 255, 254 - exponent))
        # Not a number: the scale makes it so.
        scaled = tl.where((exponent == 255)[:, None], 0.0, groups * down[:, None])
        _, rounded = e4m3_rounded(scaled, HARDWARE)
        value = tl.reshape(rounded * power_of_two(exponent)[:, None], (BLOCK,))
    to = at % PLANES * (width // PLANES) + at // PLANES
    tl.store(out + row * width + to, value, mask=at < width)


@triton.jit(do_not_specialize=["groups"])
def quantise_kernel(
    x, values, factors, size, inputs, padded, groups, held,
    GROUP: tl.constexpr, SHARED: tl.constexpr, BLOCK: tl.constexpr, HARDWARE: tl.constexpr,
    EARLY: tl.constexpr,
):  # fmt: skip
    """A block of x [rows, groups, inputs]: e4m3 codes [rows, groups, padded], and factors
    [padded / SHARED, groups, held]. Values are rounded in groups of GROUP and then, where SHARED
    are more, again for the largest scale of those.
    """
    wait_for_results(EARLY)
    first = tl.program_id(0).to(tl.int64) * BLOCK
    at = tl.arange(0, BLOCK)
    value = tl.load(x + first + at, mask=first + at < size, other=0.0).to(tl.float32)
    grouped = tl.reshape(value, (BLOCK // GROUP, GROUP))
    exponent = group_exponents(grouped, 1)
    down = power_of_two(tl.where(exponent == 255, 255, 254 - exponent))
    scaled = tl.where((exponent == 255)[:, None], 0.0, grouped * down[:, None])
    code, rounded = e4m3_rounded(scaled, HARDWARE)
    most = exponent
    if SHARED > GROUP:
        EACH: tl.constexpr = SHARED // GROUP
        most = tl.max(tl.reshape(exponent, (BLOCK // SHARED, EACH)), 1)
        spread = tl.broadcast_to(most[:, None], (BLOCK // SHARED, EACH))
        shift = 127 + exponent - tl.reshape(spread, (BLOCK // GROUP,))
        again = rounded * power_of_two(tl.maximum(shift, 1))[:, None]
        code, rounded = e4m3_rounded(again, HARDWARE)
    number = (first // SHARED).to(tl.int32) + tl.arange(0, BLOCK // SHARED)
    each = inputs // SHARED
    row = number // each
    block = number - row * each
    real = number < (size // SHARED).to(tl.int32)
    to = row.to(tl.int64) * padded + block * SHARED
    codes = tl.reshape(code, (BLOCK // SHARED, SHARED))
    tl.store(values + (to[:, None] + tl.arange(0, SHARED)[None, :]), codes, mask=real[:, None])
    line = row // groups
    place = (block * groups + (row - line * groups)) * held + line
    tl.store(factors + place, power_of_two(most), mask=real)


def arranged(x: Tensor, *, group: int | None, planes: int) -> Tensor:
    """Rows [rows, width] rounded in groups (None: as they are), input P i + p at plane p, place i.

    The dtype and shape of x; planes and group divide the width.
    """
    rows, width = x.shape
    x, out = x.contiguous(), torch.empty_like(x, memory_format=torch.contiguous_format)
    blocks = triton.cdiv(width, BLOCK)
    if rows:
        arrange_kernel[(rows * blocks,)](
            x, out, width, blocks, PLANES=planes, GROUP=group or 0, BLOCK=BLOCK,
            HARDWARE=converts_e4m3(), num_warps=4, **early(),
        )  # fmt: skip
    return out


def quantised(
    x: Tensor, *, group: int, shared: int | None = None, multiple: int = 1
) -> tuple[Tensor, Tensor]:
    """x [rows, groups, inputs] as e4m3 [held, groups, padded] and the float32 scales
    [padded / shared, groups, held] of `quantise_groups`, in room for rows up to a multiple of
    `ROW_STEP` and, with zeros, for inputs up to a `multiple`; nothing is written to rows after
    the last.

    shared: how many values one scale is for, where that is more than a group of the rounding. A
    value is then off by up to 2^-18 of the largest of them.
    """
    rows, groups, inputs = x.shape
    x, shared, held = x.contiguous(), shared or group, -(-rows // ROW_STEP) * ROW_STEP
    padded = -(-inputs // multiple) * multiple
    made = torch.empty if padded == inputs else torch.zeros
    values = made((held, groups, padded), dtype=torch.uint8, device=x.device)
    factors = made((padded // shared, groups, held), dtype=torch.float32, device=x.device)
    if rows:
        size = x.numel()
        block = FEW_QUANTISED if size <= FEW_QUANTISED * FEW_BLOCKS else QUANTISED_BLOCK
        quantise_kernel[(triton.cdiv(size, block),)](
            x, values, factors, size, inputs, padded, groups, held, GROUP=group, SHARED=shared,
            BLOCK=block, HARDWARE=converts_e4m3(), num_warps=4, **early(),
        )  # fmt: skip
    return values.view(torch.float8_e4m3fn), factors


def converts_e4m3() -> bool:
    """Whether the device rounds to e4m3 by an instruction."""
    arch = current_arch()
    return arch is not None and arch >= LEAST_E4M3_ARCH
