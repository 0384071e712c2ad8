"""Activations rounded for a product with packed weights; see `quantise_groups`.

One pass: read rows, round them in groups, and write them as bfloat16 (in planes, where mxfp4
weights will meet them) or as e4m3 with their scales.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from kernels.quantize.triton_cuda import e4m3_code, e4m3_value
from kernels.quantize.triton_operands import group_exponents, power_of_two

BLOCK = 1024
ROW_STEP = 128  # a library that takes scales by group reads them up to such a multiple of rows


@triton.jit(do_not_specialize=["blocks"])
def arrange_kernel(
    x, out, width, blocks, PLANES: tl.constexpr, GROUP: tl.constexpr, BLOCK: tl.constexpr
):
    """A block of a row; GROUP 0 rounds nothing. PLANES and GROUP divide the width."""
    row = (tl.program_id(0) // blocks).to(tl.int64)
    at = tl.program_id(0) % blocks * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + row * width + at, mask=at < width, other=0.0).to(tl.float32)
    if GROUP > 0:
        groups = tl.reshape(value, (BLOCK // GROUP, GROUP))
        exponent = group_exponents(groups, 1)
        down = power_of_two(tl.where(exponent == 255, 255, 254 - exponent))
        rounded = e4m3_value(e4m3_code(groups * down[:, None])) * power_of_two(exponent)[:, None]
        value = tl.reshape(rounded, (BLOCK,))
    to = at % PLANES * (width // PLANES) + at // PLANES
    tl.store(out + row * width + to, value, mask=at < width)


@triton.jit(do_not_specialize=["blocks", "groups", "scale_stride"])
def quantise_kernel(
    x, values, scales, width, blocks, groups, scale_stride, GROUP: tl.constexpr, BLOCK: tl.constexpr
):
    """A block of a row: e4m3 codes, and float32 scales that lie [groups, rows]."""
    row = (tl.program_id(0) // blocks).to(tl.int64)
    first = tl.program_id(0) % blocks * BLOCK
    at = first + tl.arange(0, BLOCK)
    value = tl.load(x + row * width + at, mask=at < width, other=0.0).to(tl.float32)
    grouped = tl.reshape(value, (BLOCK // GROUP, GROUP))
    exponent = group_exponents(grouped, 1)
    down = power_of_two(tl.where(exponent == 255, 255, 254 - exponent))
    code = tl.where((exponent == 255)[:, None], 0, e4m3_code(grouped * down[:, None]))
    tl.store(values + row * width + at, tl.reshape(code, (BLOCK,)).to(tl.uint8), mask=at < width)
    group = first // GROUP + tl.arange(0, BLOCK // GROUP)
    here = scales + group.to(tl.int64) * scale_stride + row
    tl.store(here, power_of_two(exponent), mask=group < groups)


def arranged(x: Tensor, *, group: int | None, planes: int) -> Tensor:
    """Rows [rows, width] rounded in groups (None: as they are), input P i + p at plane p, place i.

    The dtype and shape of x; planes and group divide the width.
    """
    rows, width = x.shape
    x, out = x.contiguous(), torch.empty_like(x, memory_format=torch.contiguous_format)
    blocks = triton.cdiv(width, BLOCK)
    if rows:
        arrange_kernel[(rows * blocks,)](
            x, out, width, blocks, PLANES=planes, GROUP=group or 0, BLOCK=BLOCK, num_warps=4
        )
    return out


def quantised(x: Tensor, group: int) -> tuple[Tensor, Tensor]:
    """e4m3 rows [held, width] and the float32 scales [groups, held] of `quantise_groups`, in room
    for rows up to a multiple of `ROW_STEP`; nothing is written to those after the last.
    """
    rows, width = x.shape
    x, groups, held = x.contiguous(), width // group, -(-rows // ROW_STEP) * ROW_STEP
    values = torch.empty((held, width), dtype=torch.uint8, device=x.device)
    scales = torch.empty((groups, held), dtype=torch.float32, device=x.device)
    blocks = triton.cdiv(width, BLOCK)
    if rows:
        quantise_kernel[(rows * blocks,)](
            x, values, scales, width, blocks, groups, held, GROUP=group, BLOCK=BLOCK, num_warps=4
        )
    return values.view(torch.float8_e4m3fn), scales
