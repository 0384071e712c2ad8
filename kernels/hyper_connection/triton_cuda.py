"""Hyper-connections: mixing weights in two launches, reading and writing of streams in one each.

The product of the mixing weights is cut into slices of a fixed length, which are added in
ascending order, group by group, so that a row comes out the same whatever the batch.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from kernels.dependent_launch import early, wait_for_results
from kernels.hyper_connection import triton_cuda_narrow as narrow
from kernels.hyper_connection import triton_fused
from kernels.hyper_connection.reference import Between, Mixes, Mixing
from kernels.matmul.triton_cuda import float32_product
from kernels.norm.triton_cuda import warps
from kernels.tuning import Tunable, chosen

SLICE = 320  # columns of one product
GROUP = 8  # slices that are added up before others are
ROWS = 64
FEW_ROWS = 512  # up to here each slice has a program of its own: latency counts, not bytes
WIDEST = 16384  # a collapsed row is held in registers

COLLAPSE = Tunable(
    name="collapse_norm",
    op="collapse_norm",
    default={"most_warps": 16},
    candidates=tuple({"most_warps": count} for count in (4, 8, 16)),
)
TUNABLES = (COLLAPSE,)


@triton.jit
def partial_kernel(
    streams,
    fn,
    partial,
    rows,
    columns,
    outputs,
    NARROW: tl.constexpr,
    GROUP: tl.constexpr,
    OUT: tl.constexpr,
    ROWS: tl.constexpr,
    SLICE: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Products of `GROUP` slices of columns, and in the last column the sum of squares."""
    part = tl.program_id(1)
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    output = tl.arange(0, OUT)
    inside = (row < rows)[:, None]
    product = tl.zeros((ROWS, OUT), tl.float32)
    squares = tl.zeros((ROWS,), tl.float32)
    for member in range(GROUP):
        sliced = tl.zeros((ROWS, OUT), tl.float32)
        squared = tl.zeros((ROWS,), tl.float32)
        start = (part * GROUP + member) * SLICE
        for offset in range(0, SLICE, BLOCK):
            at = start + offset + tl.arange(0, BLOCK)
            x = tl.load(
                streams + row.to(tl.int64)[:, None] * columns + at[None, :],
                mask=inside & (at < columns)[None, :],
                other=0.0,
            )
            w = tl.load(
                fn + output[None, :] * columns + at[:, None],
                mask=(output < outputs)[None, :] & (at < columns)[:, None],
                other=0.0,
            )
            sliced = float32_product(x, w, sliced, NARROW)
            wide = x.to(tl.float32)
            squared += tl.sum(wide * wide, 1)
        product += sliced
        squares += squared
    product = tl.where(output[None, :] == OUT - 1, squares[:, None], product)
    here = partial + (part.to(tl.int64) * rows + row[:, None]) * OUT + output[None, :]
    tl.store(here, product, mask=inside)


@triton.jit
def finish_kernel(
    partial, base, scale, pre, post, matrix, rows, columns, groups, iterations, norm_eps, eps,
    MEMBERS: tl.constexpr, N: tl.constexpr, N2: tl.constexpr, OUT: tl.constexpr,
):  # fmt: skip
    """Add the slices, scale, squash, and normalise the matrix in turn."""
    row = tl.program_id(0).to(tl.int64)
    one = tl.arange(0, N2)
    inside = one < N
    i = one[:, None]
    j = one[None, :]
    square = (i < N) & (j < N)
    place = 2 * N + i * N + j
    squares = 0.0
    raw_pre = tl.zeros((N2,), tl.float32)
    raw_post = tl.zeros((N2,), tl.float32)
    raw = tl.zeros((N2, N2), tl.float32)
    for group in range(groups):  # slices of a group first: one order whoever added them up
        group_squares = 0.0
        group_pre = tl.zeros((N2,), tl.float32)
        group_post = tl.zeros((N2,), tl.float32)
        group_raw = tl.zeros((N2, N2), tl.float32)
        for member in tl.static_range(MEMBERS):
            here = partial + ((group * MEMBERS + member) * rows + row) * OUT
            group_squares += tl.load(here + OUT - 1)
            group_pre += tl.load(here + one, mask=inside, other=0.0)
            group_post += tl.load(here + N + one, mask=inside, other=0.0)
            group_raw += tl.load(here + place, mask=square, other=0.0)
        squares += group_squares
        raw_pre += group_pre
        raw_post += group_post
        raw += group_raw
    norm = tl.rsqrt(squares / columns + norm_eps)
    first = raw_pre * norm * tl.load(scale + one, mask=inside, other=0.0)
    first += tl.load(base + one, mask=inside, other=0.0)
    tl.store(pre + row * N + one, tl.sigmoid(first) + eps, mask=inside)
    second = raw_post * norm * tl.load(scale + N + one, mask=inside, other=0.0)
    second += tl.load(base + N + one, mask=inside, other=0.0)
    tl.store(post + row * N + one, 2.0 * tl.sigmoid(second), mask=inside)
    logits = raw * norm * tl.load(scale + place, mask=square, other=0.0)
    logits += tl.load(base + place, mask=square, other=0.0)
    logits = tl.where(square, logits, float("-inf"))
    logits = tl.where(i < N, logits, 0.0)  # rows of padding stay finite
    grown = tl.exp(logits - tl.max(logits, 1)[:, None])
    m = tl.where(square, grown / tl.sum(grown, 1)[:, None] + eps, 0.0)
    m = m / (tl.sum(m, 0) + eps)[None, :]
    for _ in range(iterations - 1):
        m = m / (tl.sum(m, 1) + eps)[:, None]
        m = m / (tl.sum(m, 0) + eps)[None, :]
    tl.store(matrix + row * N * N + i * N + j, m, mask=square)


@triton.jit
def collapse_norm_kernel(
    streams, pre, weight, out, width, eps, EARLY: tl.constexpr, N: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    wait_for_results(EARLY)
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, BLOCK)
    inside = at < width
    total = tl.zeros((BLOCK,), tl.float32)
    for stream in tl.static_range(N):
        share = tl.load(pre + row * N + stream)
        here = streams + (row * N + stream) * width
        total += share * tl.load(here + at, mask=inside, other=0.0).to(tl.float32)
    wide = total.to(streams.dtype.element_ty).to(tl.float32)  # rounded where the definition does
    scale = tl.rsqrt(tl.sum(wide * wide, 0) / width + eps)
    gain = tl.load(weight + at, mask=inside, other=0.0).to(tl.float32)
    tl.store(out + row * width + at, wide * scale * gain, mask=inside)


@triton.jit
def expand_kernel(
    y, streams, post, matrix, out, width, blocks, N: tl.constexpr, BLOCK: tl.constexpr
):
    program = tl.program_id(0)
    row = (program // blocks).to(tl.int64)
    at = (program % blocks) * BLOCK + tl.arange(0, BLOCK)
    inside = at < width
    fresh = tl.load(y + row * width + at, mask=inside, other=0.0).to(tl.float32)
    for target in tl.static_range(N):
        total = tl.load(post + row * N + target) * fresh
        for source in tl.static_range(N):
            share = tl.load(matrix + row * N * N + source * N + target)
            here = streams + (row * N + source) * width
            total += share * tl.load(here + at, mask=inside, other=0.0).to(tl.float32)
        tl.store(out + (row * N + target) * width + at, total, mask=inside)


def mixes(streams: Tensor, mixing: Mixing) -> Mixes:
    """See kernels.hyper_connection.reference; streams float32 or bfloat16, up to 5 of them."""
    rows, n, width = streams.shape
    if narrow.suits(n, width, streams.dtype):
        return narrow.mixes(streams, mixing)
    streams = streams.contiguous()
    columns, outputs = n * width, (2 + n) * n
    out = triton.next_power_of_2(outputs + 1)  # the last column holds the sum of squares
    groups = triton.cdiv(columns, SLICE * GROUP)
    members = 1 if rows > FEW_ROWS else GROUP  # parts of a group that programs of their own add up
    kind = {"dtype": torch.float32, "device": streams.device}
    pre, post = torch.empty((rows, n), **kind), torch.empty((rows, n), **kind)
    matrix = torch.empty((rows, n, n), **kind)
    if not rows:
        return Mixes(pre=pre, post=post, matrix=matrix)
    partial = torch.empty((groups * members, rows, out), **kind)
    partial_kernel[(triton.cdiv(rows, ROWS), groups * members)](
        streams,
        mixing.fn,
        partial,
        rows,
        columns,
        outputs,
        NARROW=streams.dtype == torch.bfloat16,
        GROUP=GROUP // members,
        OUT=out,
        ROWS=ROWS,
        SLICE=SLICE,
        BLOCK=32,
        num_warps=8,
    )
    finish_kernel[(rows,)](
        partial,
        mixing.base,
        mixing.scale,
        pre,
        post,
        matrix,
        rows,
        columns,
        groups,
        mixing.sinkhorn_iterations,
        mixing.norm_eps,
        mixing.eps,
        MEMBERS=members,
        N=n,
        N2=max(triton.next_power_of_2(n), 2),
        OUT=out,
        num_warps=1,
    )
    return Mixes(pre=pre, post=post, matrix=matrix)


def collapse_norm(streams: Tensor, pre: Tensor, weight: Tensor, eps: float) -> Tensor:
    """See kernels.hyper_connection.reference; width up to `WIDEST`."""
    streams, pre = streams.contiguous(), pre.contiguous()
    rows, n, width = streams.shape
    out = torch.empty((rows, width), dtype=streams.dtype, device=streams.device)
    if rows:
        block = triton.next_power_of_2(width)
        collapse_norm_kernel[(rows,)](
            streams,
            pre,
            weight,
            out,
            width,
            eps,
            N=n,
            BLOCK=block,
            num_warps=warps(block, chosen(COLLAPSE, f"block {block}")["most_warps"]),
            **early(),
        )
    return out


def expand(y: Tensor, streams: Tensor, mixed: Mixes) -> Tensor:
    """See kernels.hyper_connection.reference."""
    y, streams = y.contiguous(), streams.contiguous()
    rows, n, width = streams.shape
    out = torch.empty_like(streams)
    if rows:
        block = min(triton.next_power_of_2(width), 1024)
        blocks = triton.cdiv(width, block)
        expand_kernel[(rows * blocks,)](
            y,
            streams,
            mixed.post.contiguous(),
            mixed.matrix.contiguous(),
            out,
            width,
            blocks,
            N=n,
            BLOCK=block,
            num_warps=4,
        )
    return out


def between_sublayers(
    y: Tensor, streams: Tensor, mixed: Mixes, weight: Tensor, eps: float, mixing: Mixing
) -> Between:
    """See kernels.hyper_connection.reference."""
    _, n, width = streams.shape
    if narrow.suits(n, width, streams.dtype):
        return triton_fused.between_sublayers(y, streams, mixed, weight, eps, mixing)
    return between_wide(y, streams, mixed, weight, eps, mixing)


def between_wide(
    y: Tensor, streams: Tensor, mixed: Mixes, weight: Tensor, eps: float, mixing: Mixing
) -> Between:
    """`between_sublayers` one operation after another, whatever the dtype; 2 to 5 streams."""
    out = expand(y, streams, mixed)
    x = collapse_norm(out, mixed.pre, weight, eps)
    return Between(streams=out, x=x, mixed=mixes(out, mixing))
