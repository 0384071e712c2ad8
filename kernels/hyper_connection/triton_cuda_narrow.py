"""Hyper-connections of 2 or 4 bfloat16 streams: what lies between two sublayers in three launches.

The first writes a row's streams, what the next sublayer sees of them, and the sum of their
squares. The second multiplies the fresh streams by the mixing weights, which two bfloat16 hold:
matrix instructions on tiles as they lie, nothing computed before. The third adds the slices of
that product, whose length is fixed, in ascending order, so that a row comes out the same
whatever the batch, and turns them into mixing weights. Where the squares are not at hand a launch
of its own adds them up: a tile that fed both a pipelined product and a sum came out wrong, from
run to run, on sm_90 under Triton 3.6.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from kernels.dependent_launch import early, wait_for_results
from kernels.hyper_connection.reference import Between, Mixes, Mixing
from kernels.tuning import Tunable, chosen

SLICE = 640  # columns of one product
FEW_ROWS = 512  # up to here rows share a program in small groups: latency counts, not bytes
BLOCK = 128  # columns at once
WIDEST = 16384  # a row is held in registers

EXPAND = Tunable(
    name="expand_norm",
    op="between_sublayers",
    default={"CHUNK": 2048, "num_warps": 8},
    candidates=tuple(
        {"CHUNK": chunk, "num_warps": warps}
        for chunk, warps in (
            (512, 2), (512, 4), (1024, 4), (1024, 8), (2048, 8), (2048, 16), (8192, 16)
        )
    ),
)  # fmt: skip
PRODUCT = Tunable(
    name="mixing_product",
    op="mixes",
    default={"ROWS": 16, "num_warps": 4, "num_stages": 4},
    candidates=tuple(
        {"ROWS": rows, "num_warps": warps, "num_stages": stages}
        for rows in (16, 32, 64, 128)
        for warps in (4, 8)
        for stages in (3, 4)
    ),
)
WEIGHTS = Tunable(
    name="mixing_weights",
    op="mixes",
    default={"ROWS": 2, "num_warps": 1},
    candidates=tuple(
        {"ROWS": rows, "num_warps": warps}
        for rows, warps in ((1, 1), (2, 1), (4, 1), (8, 1), (8, 2), (16, 1), (16, 4), (32, 4))
    ),
)
TUNABLES = (EXPAND, PRODUCT, WEIGHTS)


@triton.jit
def chunk_of(y, streams, row, start, width, N: tl.constexpr, CHUNK: tl.constexpr):
    """A part of the sublayer's output, and of each stream."""
    at = start + tl.arange(0, CHUNK)
    inside = at < width
    held = (tl.load(y + row * width + at, mask=inside, other=0.0),)
    for s in tl.static_range(N):
        tile = tl.load(streams + (row * N + s) * width + at, mask=inside, other=0.0)
        held = held + (tile,)  # noqa: RUF005  the compiler knows no starred tuple
    return held


@triton.jit
def expand_norm_kernel(
    y, streams, pre, post, matrix, weight, out, x, squares, width, eps, EARLY: tl.constexpr,
    N: tl.constexpr, CHUNK: tl.constexpr, CHUNKS: tl.constexpr,
):  # fmt: skip
    """One row: streams after a sublayer, and the norm of what the next one reads of them."""
    wait_for_results(EARLY)
    row = tl.program_id(0).to(tl.int64)
    dtype = streams.dtype.element_ty
    gains = ()
    reads = ()
    shares = ()
    for t in tl.static_range(N):
        gain, read = tl.load(post + row * N + t), tl.load(pre + row * N + t)
        gains, reads = gains + (gain,), reads + (read,)  # noqa: RUF005
    for k in tl.static_range(N * N):
        share = tl.load(matrix + row * N * N + k)
        shares = shares + (share,)  # noqa: RUF005
    sizes = tl.zeros((CHUNK,), tl.float32)
    lengths = tl.zeros((CHUNK,), tl.float32)
    seen = ()
    held = chunk_of(y, streams, row, 0, width, N, CHUNK)
    for c in tl.static_range(CHUNKS):
        now = held
        if c + 1 < CHUNKS:  # before the stores, behind which no load is moved
            held = chunk_of(y, streams, row, (c + 1) * CHUNK, width, N, CHUNK)
        at = c * CHUNK + tl.arange(0, CHUNK)
        inside = at < width
        total = tl.zeros((CHUNK,), tl.float32)
        for t in tl.static_range(N):
            value = gains[t] * now[0].to(tl.float32)
            for s in tl.static_range(N):
                value += shares[s * N + t] * now[s + 1].to(tl.float32)
            stream = value.to(dtype)
            tl.store(out + (row * N + t) * width + at, stream, mask=inside)
            wide = stream.to(tl.float32)
            sizes += wide * wide
            total += reads[t] * wide
        rounded = total.to(dtype)  # where the definition rounds
        wide = rounded.to(tl.float32)
        lengths += wide * wide
        seen = seen + (rounded,)  # noqa: RUF005
    tl.store(squares + row, tl.sum(sizes, 0))
    scale = tl.rsqrt(tl.sum(lengths, 0) / width + eps)
    for c in tl.static_range(CHUNKS):
        at = c * CHUNK + tl.arange(0, CHUNK)
        inside = at < width
        gain = tl.load(weight + at, mask=inside, other=0.0).to(tl.float32)
        tl.store(x + row * width + at, seen[c].to(tl.float32) * scale * gain, mask=inside)


@triton.jit
def product_kernel(
    streams, halves, partial, rows, columns, EARLY: tl.constexpr, OUT: tl.constexpr,
    ROWS: tl.constexpr, SLICE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Products of one slice of columns."""
    wait_for_results(EARLY)
    part = tl.program_id(1)
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    here = row.to(tl.int64)
    inside = row < rows
    output = tl.arange(0, 2 * OUT)
    place = streams + here[:, None] * columns
    product = tl.zeros((2 * OUT, ROWS), tl.float32)
    for offset in range(0, SLICE, BLOCK):
        at = part * SLICE + offset + tl.arange(0, BLOCK)
        known = at < columns
        x = tl.load(place + at[None, :], mask=inside[:, None] & known[None, :], other=0.0)
        w = tl.load(
            halves + output[:, None] * columns + at[None, :], mask=known[None, :], other=0.0
        )
        product = tl.dot(w, tl.trans(x), product)
    both = tl.sum(tl.reshape(product, (2, OUT, ROWS)), 0)
    base = partial + (part.to(tl.int64) * rows + here) * OUT
    at = base[None, :] + tl.arange(0, OUT)[:, None]
    tl.store(at, both, mask=inside[None, :])


@triton.jit
def squares_kernel(streams, sizes, columns, EARLY: tl.constexpr, BLOCK: tl.constexpr):
    """The sum of the squares of one row."""
    wait_for_results(EARLY)
    row = tl.program_id(0).to(tl.int64)
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, columns, BLOCK):
        at = start + tl.arange(0, BLOCK)
        x = tl.load(streams + row * columns + at, mask=at < columns, other=0.0).to(tl.float32)
        total += x * x
    tl.store(sizes + row, tl.sum(total, 0))


@triton.jit
def weights_kernel(
    partial, sizes, base, scale, pre, post, matrix, rows, columns, parts, iterations,
    norm_eps, eps, EARLY: tl.constexpr, N: tl.constexpr, SQUARE: tl.constexpr,
    ROWS: tl.constexpr,
):  # fmt: skip
    """Add the slices, scale, squash, and normalise the matrices in turn. SQUARE is N * N."""
    wait_for_results(EARLY)
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    real = row < rows
    row = row.to(tl.int64)
    kind = tl.arange(0, 2 * SQUARE)
    raw = tl.zeros((ROWS, 2 * SQUARE), tl.float32)
    for part in range(parts):
        here = partial + (part * rows + row) * (2 * SQUARE)
        raw += tl.load(here[:, None] + kind[None, :], mask=real[:, None], other=0.0)
    squares = tl.load(sizes + row, mask=real, other=0.0)
    logits = raw * tl.rsqrt(squares / columns + norm_eps)[:, None]
    used = kind < SQUARE + 2 * N
    logits *= tl.load(scale + kind, mask=used, other=0.0)[None, :]
    logits += tl.load(base + kind, mask=used, other=0.0)[None, :]
    square, gates = tl.split(tl.permute(tl.reshape(logits, (ROWS, 2, SQUARE)), (0, 2, 1)))
    gate = tl.arange(0, SQUARE)[None, :]
    opened = tl.sigmoid(gates)
    at = row[:, None] * N + gate
    tl.store(pre + at, opened + eps, mask=real[:, None] & (gate < N))
    tl.store(post + at - N, 2.0 * opened, mask=real[:, None] & (gate >= N) & (gate < 2 * N))
    m = tl.reshape(square, (ROWS, N, N))
    m = tl.exp(m - tl.max(m, 2)[:, :, None])
    m = m * (1.0 / tl.sum(m, 2))[:, :, None] + eps
    m = m * (1.0 / (tl.sum(m, 1) + eps))[:, None, :]
    for _ in range(iterations - 1):
        m = m * (1.0 / (tl.sum(m, 2) + eps))[:, :, None]
        m = m * (1.0 / (tl.sum(m, 1) + eps))[:, None, :]
    flat = tl.reshape(m, (ROWS, SQUARE))
    tl.store(matrix + row[:, None] * SQUARE + gate, flat, mask=real[:, None])


def suits(n: int, width: int, dtype: torch.dtype) -> bool:
    """Whether streams are such as these kernels take."""
    return dtype == torch.bfloat16 and n in (2, 4) and width <= WIDEST


def mixes(streams: Tensor, mixing: Mixing) -> Mixes:
    """See kernels.hyper_connection.reference; streams as `suits` says."""
    streams = streams.contiguous()
    rows, n, width = streams.shape
    sizes = torch.empty(rows, dtype=torch.float32, device=streams.device)
    if rows:
        squares_kernel[(rows,)](streams, sizes, n * width, BLOCK=4096, num_warps=8, **early())
    return _mixed(streams, sizes, mixing)


def between_apart(
    y: Tensor, streams: Tensor, mixed: Mixes, weight: Tensor, eps: float, mixing: Mixing
) -> Between:
    """`between_sublayers`, streams as `suits` says; one order of sums for any number of rows."""
    y, streams = y.contiguous(), streams.contiguous()
    rows, n, width = streams.shape
    out, x = torch.empty_like(streams), torch.empty_like(y)
    sizes = torch.empty(rows, dtype=torch.float32, device=y.device)
    if rows:
        config = chosen(EXPAND, f"width {width}")
        expand_norm_kernel[(rows,)](
            y,
            streams,
            mixed.pre.contiguous(),
            mixed.post.contiguous(),
            mixed.matrix.contiguous(),
            weight,
            out,
            x,
            sizes,
            width,
            eps,
            N=n,
            CHUNKS=triton.cdiv(width, config["CHUNK"]),
            **config,
            **early(),
        )
    return Between(streams=out, x=x, mixed=_mixed(out, sizes, mixing))


def _mixed(streams: Tensor, sizes: Tensor, mixing: Mixing) -> Mixes:
    """Mixing weights; `sizes` [rows] are the sums of the streams' squares."""
    rows, n, width = streams.shape
    columns = n * width
    parts = triton.cdiv(columns, SLICE)
    kind = {"dtype": torch.float32, "device": streams.device}
    pre, post = torch.empty((rows, n), **kind), torch.empty((rows, n), **kind)
    matrix = torch.empty((rows, n, n), **kind)
    if not rows:
        return Mixes(pre=pre, post=post, matrix=matrix)
    partial = torch.empty((parts, rows, 2 * n * n), **kind)
    config = chosen(PRODUCT, "few rows" if rows <= FEW_ROWS else "many rows")
    product_kernel[(triton.cdiv(rows, config["ROWS"]), parts)](
        streams,
        mixing.halves,
        partial,
        rows,
        columns,
        OUT=2 * n * n,
        SLICE=SLICE,
        BLOCK=BLOCK,
        **config,
        **early(),
    )
    config = chosen(WEIGHTS, "any")
    weights_kernel[(triton.cdiv(rows, config["ROWS"]),)](
        partial,
        sizes,
        mixing.turned_base,
        mixing.turned_scale,
        pre,
        post,
        matrix,
        rows,
        columns,
        parts,
        mixing.sinkhorn_iterations,
        mixing.norm_eps,
        mixing.eps,
        N=n,
        SQUARE=n * n,
        **config,
        **early(),
    )
    return Mixes(pre=pre, post=post, matrix=matrix)
