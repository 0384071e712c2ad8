"""Norm, rotation, packing and storing of cache rows in one launch."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from kernels.cache_ops.reference import CachedRows, RowNorm
from kernels.norm.triton_cuda import warps
from kernels.quantize.triton_cuda import NUMBERS, store_packed
from kernels.rotary.reference import Rotation


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
    eps,
    HAS_NORM: tl.constexpr,
    FORMAT: tl.constexpr,
    WIDTH: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    to = tl.load(where + row).to(tl.int64)
    if to >= 0:
        at = tl.arange(0, WIDTH)
        place = at - (WIDTH - turn_width)
        turned = place >= 0
        partner = tl.where(turned, tl.where(place % 2 == 0, at + 1, at - 1), at)
        here = x + row * row_stride
        value = tl.load(here + at).to(tl.float32)
        other = tl.load(here + partner).to(tl.float32)
        if HAS_NORM:
            scale = tl.rsqrt(tl.sum(value * value, 0) / WIDTH + eps)
            value = value * scale * tl.load(weight + at).to(tl.float32)
            other = other * scale * tl.load(weight + partner).to(tl.float32)
            # Rounded where the definition does.
            value = value.to(x.dtype.element_ty).to(tl.float32)
            other = other.to(x.dtype.element_ty).to(tl.float32)
        c = tl.load(cos + row * turn_width + place, mask=turned, other=1.0).to(tl.float32)
        s = tl.load(sin + row * turn_width + place, mask=turned, other=0.0).to(tl.float32)
        y = tl.where(turned, value * c + other * s, value)
        if FORMAT == 0:
            tl.store(cache + to * cache_stride + at, y)
        else:
            y = y.to(x.dtype.element_ty).to(tl.float32)
            store_packed(cache + to * cache_stride, y, FORMAT, WIDTH)


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
            0.0 if norm is None else norm.eps,
            HAS_NORM=norm is not None,
            FORMAT=NUMBERS[cache.packing],
            WIDTH=cache.width,
            num_warps=warps(cache.width),
        )
