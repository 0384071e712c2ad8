"""Small floats by their bits, for kernels that read or write packed rows.

No hardware conversion is used, so that every device, and the interpreter, gives the same bits.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from kernels.dependent_launch import early, wait_for_results

ROUNDED = 1024  # values of a program
PLAIN = 0
FP8_GROUP32 = 1
FP4_GROUP16 = 2
FP4_GROUP32 = 3
FP8_GROUP64_TAIL = 4
FP8_GROUP128 = 5
NUMBERS = {
    None: PLAIN,
    "fp8_e4m3_group32_ue8m0": FP8_GROUP32,
    "fp4_e2m1_group16_e4m3": FP4_GROUP16,
    "fp4_e2m1_group32_ue8m0": FP4_GROUP32,
    "fp8_e4m3_group64_ue8m0_tail64": FP8_GROUP64_TAIL,
    "fp8_e4m3_group128_float32": FP8_GROUP128,
}
"""Packings as kernels take them."""


@triton.jit
def e4m3_value(byte):
    u = byte.to(tl.int32)
    bits = ((u & 0x80) << 24) | ((u & 0x7F) << 20)
    value = bits.to(tl.float32, bitcast=True) * 1.329227995784916e36  # 2^120
    return tl.where((u & 0x7F) == 0x7F, float("nan"), value)


@triton.jit
def e4m3_code(x):
    """Ties to even, saturating at 448; NaN is for the caller."""
    bits = x.to(tl.int32, bitcast=True)
    size = tl.abs(x)
    size = tl.where(size > 448.0, 448.0, size)
    plain = size.to(tl.int32, bitcast=True)
    normal = ((plain + 0x7FFFF + ((plain >> 20) & 1)) >> 20) - 960  # exponent 7 for 127
    small = (size + 16384.0).to(tl.int32, bitcast=True) - 0x46800000  # steps of 2^-9
    code = tl.where(size < 0.015625, small, normal)
    return (code | ((bits >> 24) & 0x80)).to(tl.uint8)


@triton.jit
def ue8m0_value(byte):
    u = byte.to(tl.int32)
    bits = tl.where(u == 0, 1 << 22, u << 23)
    return tl.where(u == 255, float("nan"), bits.to(tl.float32, bitcast=True))


@triton.jit
def ue8m0_code(ratio):
    """The least power of two not below; ratio is positive and finite."""
    bits = ratio.to(tl.int32, bitcast=True)
    return ((bits >> 23) + ((bits & 0x7FFFFF) != 0).to(tl.int32)).to(tl.uint8)


@triton.jit
def e2m1_value(code):
    c = code.to(tl.int32)
    bits = ((c & 8) << 28) | ((c & 7) << 22)
    return bits.to(tl.float32, bitcast=True) * 8.507059173023462e37  # 2^126


@triton.jit
def e2m1_code(x):
    """Ties to even, saturating at 6."""
    size = tl.abs(x)
    code = (size > 0.25).to(tl.int32) + (size >= 0.75).to(tl.int32)
    code += (size > 1.25).to(tl.int32) + (size >= 1.75).to(tl.int32)
    code += (size > 2.5).to(tl.int32) + (size >= 3.5).to(tl.int32)
    code += (size > 5.0).to(tl.int32)
    return (code | ((x.to(tl.int32, bitcast=True) >> 28) & 8)).to(tl.uint8)


@triton.jit
def stored_values(
    cache, row, inside, FORMAT: tl.constexpr, WIDTH: tl.constexpr, DTYPE: tl.constexpr
):
    """Values of rows [n] of a cache in a dtype, zeros where one is not inside: [n, WIDTH].

    WIDTH is a power of two.
    """
    if FORMAT == 0:
        at = tl.arange(0, WIDTH)[None, :]
        value = tl.load(cache + row[:, None] * WIDTH + at, mask=inside[:, None], other=0.0)
        result = value.to(DTYPE)
    else:
        GROUP: tl.constexpr = 16 if FORMAT == 2 else 32
        HELD: tl.constexpr = WIDTH if FORMAT == 1 else WIDTH // 2
        GROUPS: tl.constexpr = WIDTH // GROUP
        here = (cache + row * (HELD + GROUPS))[:, None]
        byte = tl.load(here + tl.arange(0, HELD)[None, :], mask=inside[:, None], other=0)
        scale = tl.load(here + HELD + tl.arange(0, GROUPS)[None, :], mask=inside[:, None], other=0)
        # Spread as bytes: moving them between threads costs a quarter of moving their values.
        spread = tl.broadcast_to(scale[:, :, None], (row.shape[0], GROUPS, GROUP))
        spread = tl.reshape(spread, (row.shape[0], WIDTH))
        if FORMAT == 1:
            value = e4m3_value(byte)
        else:
            value = tl.interleave(e2m1_value(byte & 15), e2m1_value(byte >> 4))
        factor = e4m3_value(spread) if FORMAT == 2 else ue8m0_value(spread)
        result = (value * factor).to(DTYPE)
    return result


@triton.jit
def divided_groups(x, FORMAT: tl.constexpr, WIDTH: tl.constexpr):
    """float32 x [WIDTH] over the scales of its groups [groups, group], scale bytes and values.

    The values are those of the bytes, in every format.
    """
    WIDE: tl.constexpr = 64 if FORMAT == 4 else (128 if FORMAT == 5 else 32)
    GROUP: tl.constexpr = 16 if FORMAT == 2 else WIDE
    GROUPS: tl.constexpr = WIDTH // GROUP
    groups = tl.reshape(x, (GROUPS, GROUP))
    size = tl.abs(groups)
    is_finite = tl.min((size < float("inf")).to(tl.int32), 1) > 0
    most = tl.max(tl.where(size < float("inf"), size, 0.0), 1)
    if FORMAT == 2:
        most = tl.where(most < 0.01171875, 0.01171875, most)  # 6 * 2^-9
        scale = e4m3_code(tl.div_rn(most, tl.zeros_like(most) + 6.0))
        scale = tl.where(is_finite, scale, 0x7F).to(tl.uint8)
        factor = e4m3_value(scale)
    else:
        if FORMAT != 3:
            most = tl.where(most < 1e-4, 1e-4, most)
            scale = ue8m0_code(most * 0.002232142857142857)  # 1 / 448
        else:
            most = tl.where(most < 7.052966104933725e-38, 7.052966104933725e-38, most)  # 6 * 2^-126
            scale = ue8m0_code(most * 0.16666666666666666)
        scale = tl.where(is_finite, scale, 255).to(tl.uint8)
        factor = ue8m0_value(scale)
    divided = tl.div_rn(groups, tl.broadcast_to(factor[:, None], (GROUPS, GROUP)))
    return tl.where(is_finite[:, None], divided, 0.0), scale, factor


@triton.jit
def store_packed(here, x, FORMAT: tl.constexpr, WIDTH: tl.constexpr):
    """Pack float32 x [WIDTH] into the row that begins at `here`."""
    HELD: tl.constexpr = WIDTH if FORMAT == 1 else WIDTH // 2
    GROUPS: tl.constexpr = WIDTH // (16 if FORMAT == 2 else 32)
    divided, scale, _ = divided_groups(x, FORMAT, WIDTH)
    if FORMAT == 1:
        tl.store(here + tl.arange(0, WIDTH), tl.reshape(e4m3_code(divided), (WIDTH,)))
    else:
        low, high = tl.split(tl.reshape(e2m1_code(divided), (WIDTH // 2, 2)))
        tl.store(here + tl.arange(0, HELD), low | (high << 4))
    tl.store(here + HELD + tl.arange(0, GROUPS), scale)


@triton.jit
def round_kernel(x, out, size, EARLY: tl.constexpr, FORMAT: tl.constexpr, BLOCK: tl.constexpr):
    """Rows end to end: groups divide their width, and so does a block what it is given."""
    wait_for_results(EARLY)
    here = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + here, mask=here < size, other=0.0).to(tl.float32)
    divided, _, factor = divided_groups(value, FORMAT, BLOCK)
    if FORMAT == 1 or FORMAT == 5:
        value = e4m3_value(e4m3_code(divided))
    else:
        value = e2m1_value(e2m1_code(divided))
    tl.store(out + here, tl.reshape(value * factor[:, None], (BLOCK,)), mask=here < size)


def quantise_dequantise(x: Tensor, fmt: str) -> Tensor:
    """See kernels.formats; float32 or bfloat16 rows whose width is a power of two."""
    x = x.contiguous()
    out, size = torch.empty_like(x), x.numel()
    if size:
        round_kernel[(triton.cdiv(size, ROUNDED),)](
            x, out, size, FORMAT=NUMBERS[fmt], BLOCK=ROUNDED, num_warps=4, **early()
        )
    return out
