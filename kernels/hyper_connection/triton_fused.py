"""Between two sublayers in two launches, for 2 or 4 bfloat16 streams.

The first takes some rows and a part of the width: it writes the fresh streams there and what the
next sublayer sees of them before its norm, and multiplies them by the mixing weights while it has
them. The second adds the parts of each row, all at once and so in one order whatever the batch,
turns them into mixing weights, and norms what the sublayer sees. It reads the weights once for
each tile of rows, so that many rows are better served by launches apart.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from kernels.dependent_launch import early, wait_for_results
from kernels.hyper_connection.reference import Between, Mixes, Mixing
from kernels.hyper_connection.triton_cuda_narrow import between_apart
from kernels.hyper_connection.triton_finish import mix_norm_kernel, nearest, widened
from kernels.tuning import Config, Tunable, chosen

FUSED = Tunable(
    name="between_fused",
    op="between_sublayers",
    default={"FUSED": 0, "TILES": 1},
    candidates=(
        {"FUSED": 0, "TILES": 1},
        *({"FUSED": 1, "TILES": tiles} for tiles in (1, 2, 4, 8, 16)),
    ),
)
"""FUSED 0: by the launches of `kernels.hyper_connection.triton_cuda_narrow`."""
TUNABLES = (FUSED,)
FEW_ROWS, SOME_ROWS = 64, 512  # 2,048 and more were slower so on an H200
ROWS = 16  # of a tile, the narrow side of a matrix instruction
BLOCK = 128  # columns of a part: the order of sums
WARPS, REGISTERS = 8, 128  # two programs to a processor
LEAST_PARTS = 2
NORM_BLOCK = 1024  # of a row, by one warp
AT_ONCE = 40  # parts whose products are under way at once: all of 5,120 columns


@triton.jit
def tile_of(y, streams, first, rows, at, width, N: tl.constexpr, ROWS: tl.constexpr):
    """A part of some rows of the sublayer's output, and of each stream: [ROWS, columns] each."""
    row = first + tl.arange(0, ROWS)
    here = row.to(tl.int64)[:, None]
    mask = (row < rows)[:, None] & (at < width)[None, :]
    held = (tl.load(y + here * width + at[None, :], mask=mask, other=0.0),)
    for s in tl.static_range(N):
        tile = tl.load(streams + (here * N + s) * width + at[None, :], mask=mask, other=0.0)
        held = held + (tile,)  # noqa: RUF005  the compiler knows no starred tuple
    return held


@triton.jit(do_not_specialize=["parts", "tiles"])  # see kernels.indexer.triton_cuda: modulo `parts`
def expand_product_kernel(
    y,
    streams,
    pre,
    post,
    matrix,
    halves,
    out,
    x,
    partial,
    sums,
    rows,
    width,
    parts,
    tiles,
    EARLY: tl.constexpr,
    IN_ASSEMBLY: tl.constexpr,
    N: tl.constexpr,
    OUT: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """`tiles` times ROWS rows in one part of the width: partial [rows, parts, OUT] products with
    the weights, sums [rows, parts, 2] of the squares of the streams and of `x`. OUT is 2 * N * N.
    """
    part = tl.program_id(0) % parts
    first = tl.program_id(0) // parts * (ROWS * tiles)
    at = part * BLOCK + tl.arange(0, BLOCK)
    known = at < width
    weights = ()
    output = tl.arange(0, 2 * OUT)  # both halves of one beside each other
    used = (output // 2 < N * N + 2 * N)[:, None] & known[None, :]  # the others are zeros
    output = output % 2 * OUT + output // 2
    for s in tl.static_range(N):  # parameters: nobody has to be waited for
        place = halves + output[:, None] * (N * width) + s * width + at[None, :]
        w = tl.load(place, mask=used, other=0.0)
        weights = weights + (w,)  # noqa: RUF005
    wait_for_results(EARLY)
    last = tl.minimum(first + ROWS * tiles, rows)
    held = tile_of(y, streams, first, last, at, width, N, ROWS)  # while weights are under way
    for begin in tl.range(first, last, ROWS, num_stages=1):
        row = begin + tl.arange(0, ROWS)
        inside = row < rows
        mask = inside[:, None] & known[None, :]
        here = row.to(tl.int64)
        fresh = widened(held[0], IN_ASSEMBLY)
        wides = ()
        for s in tl.static_range(N):
            wides = wides + (widened(held[s + 1], IN_ASSEMBLY),)  # noqa: RUF005
        sizes = tl.zeros((ROWS, BLOCK), tl.float32)
        total = tl.zeros((ROWS, BLOCK), tl.float32)
        product = tl.zeros((ROWS, 2 * OUT), tl.float32)
        for t in tl.static_range(N):
            value = tl.load(post + here * N + t, mask=inside, other=0.0)[:, None] * fresh
            for s in tl.static_range(N):
                share = tl.load(matrix + here * N * N + s * N + t, mask=inside, other=0.0)
                value += share[:, None] * wides[s]
            stream = nearest(value, IN_ASSEMBLY)
            tl.store(out + (here * N + t)[:, None] * width + at[None, :], stream, mask=mask)
            wide = widened(stream, IN_ASSEMBLY)
            sizes += wide * wide
            total += tl.load(pre + here * N + t, mask=inside, other=0.0)[:, None] * wide
            product = tl.dot(stream, tl.trans(weights[t]), product)
        rounded = nearest(total, IN_ASSEMBLY)  # where the definition rounds
        tl.store(x + here[:, None] * width + at[None, :], rounded, mask=mask)
        wide = widened(rounded, IN_ASSEMBLY)
        item = here * parts + part
        tl.store(sums + item * 2, tl.sum(sizes, 1), mask=inside)
        tl.store(sums + item * 2 + 1, tl.sum(wide * wide, 1), mask=inside)
        both = tl.sum(tl.reshape(product, (ROWS, OUT, 2)), 2)
        one = tl.arange(0, OUT)[None, :]
        kept = inside[:, None] & (one < N * N + 2 * N)
        tl.store(partial + item[:, None] * OUT + one, both, mask=kept)
        held = tile_of(y, streams, begin + ROWS, last, at, width, N, ROWS)


def between_sublayers(
    y: Tensor, streams: Tensor, mixed: Mixes, weight: Tensor, eps: float, mixing: Mixing
) -> Between:
    """See kernels.hyper_connection.reference; streams as `triton_cuda_narrow.suits` says.

    Few rows and many may be added up in different orders.
    """
    rows, n, width = streams.shape
    count = "few" if rows <= FEW_ROWS else "some" if rows <= SOME_ROWS else "many"
    config = chosen(FUSED, f"{n} streams of {width}, {count} rows")
    if rows and config["FUSED"]:
        return _fused(y, streams, mixed, weight, eps, mixing, config)
    return between_apart(y, streams, mixed, weight, eps, mixing)


def _fused(
    y: Tensor, streams: Tensor, mixed: Mixes, weight: Tensor, eps: float, mixing: Mixing,
    config: Config,
) -> Between:  # fmt: skip
    y, streams = y.contiguous(), streams.contiguous()
    rows, n, width = streams.shape
    parts, outputs = triton.cdiv(width, BLOCK), 2 * n * n
    tiles = config["TILES"]
    kind = {"dtype": torch.float32, "device": streams.device}
    out, x = torch.empty_like(streams), torch.empty_like(y)
    partial = torch.empty((rows, parts, outputs), **kind)
    sums = torch.empty((rows, parts, 2), **kind)
    shared = {"IN_ASSEMBLY": y.is_cuda, "N": n, "OUT": outputs, **early()}
    expand_product_kernel[(triton.cdiv(rows, ROWS * tiles) * parts,)](
        y,
        streams,
        mixed.pre.contiguous(),
        mixed.post.contiguous(),
        mixed.matrix.contiguous(),
        mixing.halves,
        out,
        x,
        partial,
        sums,
        rows,
        width,
        parts,
        tiles,
        ROWS=ROWS,
        BLOCK=BLOCK,
        num_warps=WARPS,
        maxnreg=REGISTERS,
        **shared,
    )
    fresh = Mixes(
        pre=torch.empty((rows, n), **kind),
        post=torch.empty((rows, n), **kind),
        matrix=torch.empty((rows, n, n), **kind),
    )
    mix_norm_kernel[(2 * rows,)](  # a warp each
        partial,
        sums,
        mixing.turned_base,
        mixing.turned_scale,
        weight,
        x,
        *fresh,
        rows,
        rows,
        width,
        parts,
        mixing.sinkhorn_iterations,
        mixing.norm_eps,
        mixing.eps,
        eps,
        PARTS=max(triton.next_power_of_2(parts), LEAST_PARTS),
        MIXED=1,
        AT_ONCE=min(AT_ONCE, parts),
        BLOCK=NORM_BLOCK,
        BLOCKS=triton.cdiv(width, NORM_BLOCK),
        num_warps=1,
        **shared,
    )
    return Between(streams=out, x=x, mixed=fresh)
