"""Hyper-connections of 2 or 4 bfloat16 streams: what lies between two sublayers in three launches.

The first writes a row's streams, what the next sublayer sees of them, and the sum of their
squares. The second multiplies the fresh streams by the mixing weights, which two bfloat16 hold: a
program keeps those of one slice of columns and goes through rows. The third adds the slices of that
product, whose length is fixed, in ascending order, so that a row comes out the same whatever the
batch, and turns them into mixing weights. Where the squares are not at hand a launch of its own
adds them up: a tile that fed both a pipelined product and a sum came out wrong, from run to run, on
sm_90 under Triton 3.6.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from kernels.dependent_launch import early, wait_for_results
from kernels.hyper_connection.reference import Between, Mixes, Mixing
from kernels.hyper_connection.triton_finish import mix_norm_kernel
from kernels.tuning import Tunable, chosen

SLICE = 512  # columns of one product
FEW_ROWS = 512  # up to here each row is mixed by a warp: latency counts, not bytes
FEW_AT_ONCE = 40  # slices of a row whose products are under way at once: all of 4 * 5,120 columns
MIXED, AT_ONCE = 4, 8  # the same with more rows, and how many of these a warp mixes
WIDEST = 16384  # a row is held in registers

EXPAND = Tunable(
    name="expand_norm",
    op="between_sublayers",
    default={"CHUNK": 2048, "num_warps": 8, "maxnreg": 128},
    candidates=tuple(
        {"CHUNK": chunk, "num_warps": warps, "maxnreg": registers}
        for chunk, warps, registers in (
            (2048, 8, 128), (1024, 4, 128), (1024, 4, 168), (1024, 8, 128), (512, 2, 168),
            (2048, 16, 128),
        )
    ),
)  # fmt: skip
PRODUCT = Tunable(
    name="mixing_product",
    op="mixes",
    default={"ROWS": 16, "GROUPS": 4, "num_warps": 4, "num_stages": 2},
    candidates=tuple(
        {"ROWS": rows, "GROUPS": groups, "num_warps": warps, "num_stages": stages}
        for rows, groups, warps, stages in (
            (16, 4, 4, 2), (16, 6, 4, 2), (16, 6, 8, 2), (16, 3, 4, 4), (16, 3, 8, 4),
            (32, 3, 4, 4), (32, 3, 8, 4), (32, 3, 4, 3), (64, 3, 4, 2), (64, 3, 8, 2),
        )
    ),
)  # fmt: skip
TUNABLES = (EXPAND, PRODUCT)


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
    weights = ()
    for c in tl.static_range(CHUNKS):  # under way while sums are taken
        at = c * CHUNK + tl.arange(0, CHUNK)
        held = tl.load(weight + at, mask=at < width, other=0.0)
        weights = weights + (held,)  # noqa: RUF005
    tl.store(squares + row, tl.sum(sizes, 0))
    scale = tl.rsqrt(tl.sum(lengths, 0) / width + eps)
    for c in tl.static_range(CHUNKS):
        at = c * CHUNK + tl.arange(0, CHUNK)
        value = seen[c].to(tl.float32) * scale * weights[c].to(tl.float32)
        tl.store(x + row * width + at, value, mask=at < width)


@triton.jit(do_not_specialize=["rows", "groups"])
def product_kernel(
    streams, halves, partial, rows, columns, parts, groups, EARLY: tl.constexpr,
    OUT: tl.constexpr, USED: tl.constexpr, SLICE: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """Products of one slice of columns with every `groups`-th tile of rows: the slice's weights
    stay in shared memory. partial [rows, parts, OUT], of which USED are written.
    """
    part = tl.program_id(0) % parts
    group = tl.program_id(0) // parts
    at = part * SLICE + tl.arange(0, SLICE)
    known = (at < columns)[None, :]
    output = tl.arange(0, 2 * OUT)
    used = (output % OUT < USED)[:, None] & known  # the others are zeros
    w = tl.load(halves + output[:, None] * columns + at[None, :], mask=used, other=0.0)
    wait_for_results(EARLY)  # parameters need not be waited for
    tiles = tl.cdiv(rows, ROWS)
    for step in range(tl.cdiv(tiles - group, groups)):
        # The last rows first: they have just been written, and may still be in the cache.
        row = (tiles - 1 - group - step * groups) * ROWS + tl.arange(0, ROWS)
        inside = row < rows
        row = row.to(tl.int64)
        place = streams + row[:, None] * columns + at[None, :]
        x = tl.load(place, mask=inside[:, None] & known, other=0.0)
        product = tl.dot(w, tl.trans(x))
        both = tl.sum(tl.reshape(product, (2, OUT, ROWS)), 0)
        one = tl.arange(0, OUT)[:, None]
        to = partial + (row * parts + part)[None, :] * OUT + one
        tl.store(to, both, mask=inside[None, :] & (one < USED))


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
    columns, outputs = n * width, 2 * n * n
    parts = triton.cdiv(columns, SLICE)
    kind = {"dtype": torch.float32, "device": streams.device}
    pre, post = torch.empty((rows, n), **kind), torch.empty((rows, n), **kind)
    matrix = torch.empty((rows, n, n), **kind)
    if not rows:
        return Mixes(pre=pre, post=post, matrix=matrix)
    partial = torch.empty((rows, parts, outputs), **kind)
    config = chosen(PRODUCT, "few rows" if rows <= FEW_ROWS else "many rows")
    groups = min(config["GROUPS"], triton.cdiv(rows, config["ROWS"]))
    product_kernel[(parts * groups,)](
        streams,
        mixing.halves,
        partial,
        rows,
        columns,
        parts,
        groups,
        OUT=outputs,
        USED=n * n + 2 * n,
        SLICE=SLICE,
        ROWS=config["ROWS"],
        num_warps=config["num_warps"],
        num_stages=config["num_stages"],
        **early(),
    )
    together, at_once = (1, FEW_AT_ONCE) if rows <= FEW_ROWS else (MIXED, AT_ONCE)
    mixers = triton.cdiv(rows, together)
    mix_norm_kernel[(mixers,)](
        partial,
        sizes,
        mixing.turned_base,
        mixing.turned_scale,
        None,
        None,
        pre,
        post,
        matrix,
        rows,
        mixers,
        width,
        parts,
        mixing.sinkhorn_iterations,
        mixing.norm_eps,
        mixing.eps,
        0.0,
        IN_ASSEMBLY=streams.is_cuda,
        N=n,
        OUT=outputs,
        PARTS=0,
        MIXED=together,
        AT_ONCE=min(at_once, parts),
        BLOCK=0,
        BLOCKS=0,
        num_warps=1,
        **early(),
    )
    return Mixes(pre=pre, post=post, matrix=matrix)
