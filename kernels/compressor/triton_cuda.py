"""Pooling, norm, rotation, packing and storing of global rows in one launch."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from kernels.cache_ops.reference import RowNorm
from kernels.cache_ops.triton_cuda import store_row
from kernels.compressor.reference import GlobalRows, Pairs
from kernels.dependent_launch import early, wait_for_results
from kernels.norm.triton_cuda import warps
from kernels.quantize.triton_cuda import NUMBERS


@triton.jit
def latent_kernel(
    x,
    tails,
    old,
    previous,
    keep,
    weight,
    cos,
    sin,
    where,
    cache,
    out,
    sequences,
    row_stride,
    turn_width,
    cache_stride,
    page_stride,
    eps,
    EARLY: tl.constexpr,
    HAS_PAIRS: tl.constexpr,
    FORMAT: tl.constexpr,
    PAGE: tl.constexpr,
    WIDTH: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, WIDTH)
    gain = tl.load(weight + at).to(tl.float32)
    wait_for_results(EARLY)
    to = tl.load(where + row).to(tl.int64)
    here = x + row * row_stride
    value = tl.load(here + at).to(tl.float32)
    if HAS_PAIRS:
        gate = tl.load(here + WIDTH + at)
        kept = tails + tl.load(keep + row).to(tl.int64) * (2 * WIDTH)
        number = tl.load(previous + row).to(tl.int64)
        is_old = number < sequences
        place = tl.load(old + number, mask=is_old, other=0).to(tl.int64)
        before = tails + place * (2 * WIDTH)
        fresh = x + tl.maximum(number - sequences, 0) * row_stride
        first = tl.where(is_old, tl.load(before + at), tl.load(fresh + at))
        first_gate = tl.where(is_old, tl.load(before + WIDTH + at), tl.load(fresh + WIDTH + at))
        tl.store(kept + at, value)
        tl.store(kept + WIDTH + at, gate)
        most = tl.maximum(gate, first_gate)
        share, first_share = tl.exp(gate - most), tl.exp(first_gate - most)
        value = tl.div_rn(first * first_share + value * share, share + first_share)
    dtype = out.dtype.element_ty
    value = value.to(dtype).to(tl.float32)
    scale = tl.rsqrt(tl.sum(value * value, 0) / WIDTH + eps)
    latent = (value * scale * gain).to(dtype)
    if to < 0:
        latent = tl.zeros_like(latent)
    tl.store(out + row * WIDTH + at, latent)
    if to >= 0:
        even, odd = tl.split(tl.reshape(latent.to(tl.float32), (WIDTH // 2, 2)))
        pair = 2 * tl.arange(0, WIDTH // 2) - (WIDTH - turn_width)
        turned = pair >= 0
        c = tl.load(cos + row * turn_width + pair, mask=turned, other=1.0).to(tl.float32)
        s = tl.load(sin + row * turn_width + pair + 1, mask=turned, other=0.0).to(tl.float32)
        y = tl.reshape(tl.join(even * c - odd * s, odd * c + even * s), (WIDTH,))
        y = y.to(dtype).to(tl.float32)
        store_row(cache, to, y, cache_stride, page_stride, FORMAT, PAGE, WIDTH)


def write_latents(
    x: Tensor, pairs: Pairs | None, norm: RowNorm, into: GlobalRows, dtype: torch.dtype
) -> Tensor:
    """See kernels.compressor.reference; `dtype` float32 or bfloat16, a width of two's power."""
    if x.stride(-1) != 1:
        x = x.contiguous()
    rows, width = len(x), into.cache.width
    out = torch.empty((rows, width), dtype=dtype, device=x.device)
    if rows:
        cos, sin = into.turn.cos.contiguous(), into.turn.sin.contiguous()
        held = (x, into.where, into.where, into.where)
        if pairs is not None:
            rows_of = (pairs.old, pairs.previous, pairs.keep)
            held = (pairs.tails, *(numbers.contiguous() for numbers in rows_of))
        latent_kernel[(rows,)](
            x,
            *held,
            norm.weight,
            cos,
            sin,
            into.where.contiguous(),
            into.cache.tensor,
            out,
            0 if pairs is None else len(pairs.old),
            x.stride(0),
            cos.shape[-1],
            into.cache.tensor.stride(0),
            into.cache.page_stride,
            norm.eps,
            HAS_PAIRS=pairs is not None,
            FORMAT=NUMBERS[into.cache.packing],
            PAGE=into.cache.page_rows or 0,
            WIDTH=width,
            num_warps=warps(width),
            **early(),
        )
    return out
