"""Norm, rotation, packing and storing of cache rows in one launch."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from kernels.cache_ops.reference import CachedRows, RowNorm
from kernels.dependent_launch import early, wait_for_results
from kernels.norm.triton_cuda import warps
from kernels.quantize.triton_cuda import (
    NUMBERS,
    divided_groups,
    e4m3_code,
    e4m3_value,
    store_packed,
    stored_values,
    ue8m0_value,
)
from kernels.rotary.reference import Rotation


@triton.jit
def sectioned_places(
    row, page_stride, FORMAT: tl.constexpr, PAGE: tl.constexpr, WIDTH: tl.constexpr
):
    """Where the data and the scales begin of rows of DeepSeek-V4, in pages or without.

    FORMAT 4: the last 64 values stay bfloat16, and a byte pads the scales. 5: float32 scales.
    """
    HELD: tl.constexpr = WIDTH + 64 if FORMAT == 4 else WIDTH
    SCALES: tl.constexpr = WIDTH // 64 if FORMAT == 4 else WIDTH // 32
    if PAGE == 0:
        data = row * (HELD + SCALES)
        scales = data + HELD
    else:
        page = row // PAGE * page_stride
        data = page + row % PAGE * HELD
        scales = page + PAGE * HELD + row % PAGE * SCALES
    return data, scales


@triton.jit
def wide_scales(cache, scales, inside, GROUPS: tl.constexpr):
    """float32 scales of rows that begin at bytes `scales` [n], zeros elsewhere: [n, GROUPS]."""
    here = (cache + scales).to(tl.pointer_type(tl.float32))[:, None]
    return tl.load(here + tl.arange(0, GROUPS)[None, :], mask=inside[:, None], other=0.0)


@triton.jit
def cached_values(
    cache,
    row,
    inside,
    page_stride,
    FORMAT: tl.constexpr,
    PAGE: tl.constexpr,
    WIDTH: tl.constexpr,
    DTYPE: tl.constexpr,
):
    """Values of int64 rows [n] in a dtype, zeros where one is not inside: [n, WIDTH]."""
    at = tl.arange(0, WIDTH)
    if FORMAT == 4:
        data, scales = sectioned_places(row, page_stride, FORMAT, PAGE, WIDTH)
        seen, is_tail = inside[:, None], (at >= WIDTH - 64)[None, :]
        here = (cache + data)[:, None]
        byte = tl.load(here + at[None, :], mask=seen & ~is_tail, other=0)
        scale = tl.load((cache + scales)[:, None] + at[None, :] // 64, mask=seen, other=0)
        here += WIDTH - 64 + 2 * (at - (WIDTH - 64))[None, :]
        low = tl.load(here, mask=seen & is_tail, other=0).to(tl.int32)
        high = tl.load(here + 1, mask=seen & is_tail, other=0).to(tl.int32)
        tail = ((high << 24) | (low << 16)).to(tl.float32, bitcast=True)
        result = tl.where(is_tail, tail, e4m3_value(byte) * ue8m0_value(scale)).to(DTYPE)
    elif FORMAT == 5:
        GROUPS: tl.constexpr = WIDTH // 128
        data, scales = sectioned_places(row, page_stride, FORMAT, PAGE, WIDTH)
        here = (cache + data)[:, None] + at[None, :]
        byte = tl.load(here, mask=inside[:, None], other=0)
        scale = wide_scales(cache, scales, inside, GROUPS)[:, :, None]
        spread = tl.broadcast_to(scale, (row.shape[0], GROUPS, 128))
        spread = tl.reshape(spread, (row.shape[0], WIDTH))
        result = (e4m3_value(byte) * spread).to(DTYPE)
    else:
        result = stored_values(cache, row, inside, FORMAT, WIDTH, DTYPE)
    return result


@triton.jit
def store_tailed(cache, row, x, page_stride, PAGE: tl.constexpr, WIDTH: tl.constexpr):
    """Pack float32 x [WIDTH] as `cached_values` of format 4 reads it."""
    data, scales = sectioned_places(row, page_stride, 4, PAGE, WIDTH)
    divided, scale, _ = divided_groups(x, 4, WIDTH)
    at = tl.arange(0, WIDTH)
    is_tail = at >= WIDTH - 64
    tl.store(cache + data + at, tl.reshape(e4m3_code(divided), (WIDTH,)), mask=~is_tail)
    group = tl.arange(0, WIDTH // 64)
    tl.store(cache + scales + group, tl.where(group < WIDTH // 64 - 1, scale, 0).to(tl.uint8))
    tail = (cache + data + WIDTH - 64).to(tl.pointer_type(tl.bfloat16))
    tl.store(tail + at - (WIDTH - 64), x.to(tl.bfloat16), mask=is_tail)


@triton.jit
def store_wide_scaled(cache, row, x, page_stride, PAGE: tl.constexpr, WIDTH: tl.constexpr):
    """Pack float32 x [WIDTH] as `cached_values` of format 5 reads it."""
    data, scales = sectioned_places(row, page_stride, 5, PAGE, WIDTH)
    divided, _, factor = divided_groups(x, 5, WIDTH)
    code = tl.reshape(e4m3_code(divided), (WIDTH,))
    tl.store(cache + data + tl.arange(0, WIDTH), code)
    here = (cache + scales).to(tl.pointer_type(tl.float32))
    tl.store(here + tl.arange(0, WIDTH // 128), factor)


@triton.jit
def store_row(
    cache,
    row,
    y,
    cache_stride,
    page_stride,
    FORMAT: tl.constexpr,
    PAGE: tl.constexpr,
    WIDTH: tl.constexpr,
):
    """Pack float32 y [WIDTH] into a row."""
    if FORMAT == 0:
        tl.store(cache + row * cache_stride + tl.arange(0, WIDTH), y)
    elif FORMAT == 4:
        store_tailed(cache, row, y, page_stride, PAGE, WIDTH)
    elif FORMAT == 5:
        store_wide_scaled(cache, row, y, page_stride, PAGE, WIDTH)
    else:
        store_packed(cache + row * cache_stride, y, FORMAT, WIDTH)


@triton.jit
def insert_kernel(
    x,
    weight,
    cos,
    sin,
    where,
    cache,
    row_stride,
    turn_width,
    cache_stride,
    page_stride,
    eps,
    EARLY: tl.constexpr,
    HAS_NORM: tl.constexpr,
    FORMAT: tl.constexpr,
    PAGE: tl.constexpr,
    WIDTH: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, WIDTH)
    place = at - (WIDTH - turn_width)
    turned = place >= 0
    partner = tl.where(turned, tl.where(place % 2 == 0, at + 1, at - 1), at)
    if HAS_NORM:
        gain = tl.load(weight + at).to(tl.float32)
        other_gain = tl.load(weight + partner).to(tl.float32)
    wait_for_results(EARLY)
    # All that is read is on its way at once, for rows that go nowhere, too.
    to = tl.load(where + row).to(tl.int64)
    here = x + row * row_stride
    value = tl.load(here + at).to(tl.float32)
    other = tl.load(here + partner).to(tl.float32)
    c = tl.load(cos + row * turn_width + place, mask=turned, other=1.0).to(tl.float32)
    s = tl.load(sin + row * turn_width + place, mask=turned, other=0.0).to(tl.float32)
    if HAS_NORM:
        scale = tl.rsqrt(tl.sum(value * value, 0) / WIDTH + eps)
        # Rounded where the definition does.
        value = (value * scale * gain).to(x.dtype.element_ty).to(tl.float32)
        other = (other * scale * other_gain).to(x.dtype.element_ty).to(tl.float32)
    y = tl.where(turned, value * c + other * s, value)
    y = y.to(x.dtype.element_ty).to(tl.float32)
    if to >= 0:
        store_row(cache, to, y, cache_stride, page_stride, FORMAT, PAGE, WIDTH)


def insert_rows(
    cache: CachedRows, where: Tensor, x: Tensor, norm: RowNorm | None, turn: Rotation
) -> None:
    """See kernels.cache_ops.reference; x float32 or bfloat16, its width a power of two."""
    if x.stride(-1) != 1:
        x = x.contiguous()
    if len(x):
        cos, sin = turn.cos.contiguous(), turn.sin.contiguous()
        insert_kernel[(len(x),)](
            x,
            cos if norm is None else norm.weight,
            cos,
            sin,
            where.contiguous(),
            cache.tensor,
            x.stride(0),
            cos.shape[-1],
            cache.tensor.stride(0),
            cache.page_stride,
            0.0 if norm is None else norm.eps,
            HAS_NORM=norm is not None,
            FORMAT=NUMBERS[cache.packing],
            PAGE=cache.page_rows or 0,
            WIDTH=cache.width,
            num_warps=warps(cache.width),
            **early(),
        )
