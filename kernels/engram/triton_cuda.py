"""n-gram memory: rows found and gathered in one launch, gated and added in another."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from kernels.dependent_launch import early, wait_for_results
from kernels.engram.reference import HashConstants
from kernels.norm.triton_cuda import warps


@triton.jit
def look_up_kernel(
    ids,
    multipliers,
    primes,
    offsets,
    table,
    out,
    heads,
    columns,
    dim,
    EARLY: tl.constexpr,
    NGRAM: tl.constexpr,
    COLUMNS: tl.constexpr,
    DIM: tl.constexpr,
):
    wait_for_results(EARLY)
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, COLUMNS)
    real = column < columns
    running = tl.load(ids + row * NGRAM) * tl.load(multipliers)
    hashed = tl.zeros((COLUMNS,), tl.int64)
    for back in tl.static_range(1, NGRAM):
        running = running ^ (tl.load(ids + row * NGRAM + back) * tl.load(multipliers + back))
        hashed = tl.where(column // heads == back - 1, running, hashed)
    place = hashed % tl.load(primes + column, mask=real, other=1)
    place += tl.load(offsets + column, mask=real, other=0)
    at = tl.arange(0, DIM)
    mask = real[:, None] & (at < dim)[None, :]
    value = tl.load(table + place[:, None] * dim + at[None, :], mask=mask, other=0.0)
    tl.store(out + (row * columns + column[:, None]) * dim + at[None, :], value, mask=mask)


@triton.jit
def gated_add_kernel(
    streams,
    kv,
    weight,
    out,
    width,
    eps,
    scale,
    EARLY: tl.constexpr,
    N: tl.constexpr,
    BLOCK: tl.constexpr,
):
    wait_for_results(EARLY)
    program = tl.program_id(0).to(tl.int64)
    row = program // N
    number = program % N
    at = tl.arange(0, BLOCK)
    inside = at < width
    stream = tl.load(streams + program * width + at, mask=inside, other=0.0).to(tl.float32)
    here = kv + row * (N + 1) * width
    key = tl.load(here + number * width + at, mask=inside, other=0.0).to(tl.float32)
    gain = tl.load(weight + number * width + at, mask=inside, other=0.0).to(tl.float32)
    norm = tl.rsqrt(tl.sum(stream * stream, 0) / width + eps)
    norm = norm * tl.rsqrt(tl.sum(key * key, 0) / width + eps)
    fit = tl.sum(stream * gain * key, 0) * norm * scale
    size = tl.sqrt_rn(tl.maximum(tl.abs(fit), 1e-6))
    gate = tl.sigmoid(tl.where(fit > 0, size, tl.where(fit < 0, -size, fit)))
    value = tl.load(here + N * width + at, mask=inside, other=0.0).to(tl.float32)
    tl.store(out + program * width + at, stream + gate * value, mask=inside)


def look_up(ids: Tensor, constants: HashConstants, table: Tensor) -> Tensor:
    """See kernels.engram.reference."""
    rows, ngram = ids.shape
    heads, columns, dim = constants.primes.shape[1], constants.primes.numel(), table.shape[1]
    out = torch.empty((rows, columns * dim), dtype=table.dtype, device=table.device)
    if rows:
        look_up_kernel[(rows,)](
            ids.contiguous(),
            constants.multipliers,
            constants.primes,
            constants.offsets,
            table,
            out,
            heads,
            columns,
            dim,
            NGRAM=ngram,
            COLUMNS=triton.next_power_of_2(columns),
            DIM=triton.next_power_of_2(dim),
            num_warps=4,
            **early(),
        )
    return out


def gated_add(streams: Tensor, kv: Tensor, weight: Tensor, eps: float) -> Tensor:
    """See kernels.engram.reference; float32 or bfloat16."""
    streams, kv = streams.contiguous(), kv.contiguous()
    rows, n, width = streams.shape
    out = torch.empty_like(streams)
    if rows:
        block = triton.next_power_of_2(width)
        gated_add_kernel[(rows * n,)](
            streams,
            kv,
            weight,
            out,
            width,
            eps,
            width**-0.5,
            N=n,
            BLOCK=block,
            num_warps=warps(block),
            **early(),
        )
    return out
