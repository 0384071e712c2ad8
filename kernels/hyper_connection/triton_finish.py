"""What ends the way between two sublayers: mixing weights from parts of products, and a norm.

Threads hold the matrices of a few rows in registers: nothing is exchanged while rows and columns
are normalised in turn. Parts are added in ascending order, however many rows a program has.
"""

from __future__ import annotations

import triton
import triton.language as tl

from kernels.dependent_launch import wait_for_results


@triton.jit
def nearest(x, IN_ASSEMBLY: tl.constexpr):
    """float32 as bfloat16, two in one instruction: alone, each would take a slow one.

    Not pure, lest every warp that multiplies the result computes it anew.
    """
    if IN_ASSEMBLY:
        return tl.inline_asm_elementwise(
            "cvt.rn.bf16x2.f32 $0, $2, $1;", "=r,r,r", [x], dtype=tl.bfloat16, is_pure=False, pack=2
        )
    return x.to(tl.bfloat16)


@triton.jit
def widened(x, IN_ASSEMBLY: tl.constexpr):
    """bfloat16 as float32."""
    if IN_ASSEMBLY:
        return tl.inline_asm_elementwise(
            "shl.b32 $0, $2, 16;\nand.b32 $1, $2, 0xFFFF0000;", "=&r,=r,r", [x],
            dtype=tl.float32, is_pure=True, pack=2,
        )  # fmt: skip
    return x.to(tl.float32)


@triton.jit
def reciprocal(x, IN_ASSEMBLY: tl.constexpr):
    """1 / x of a normal number, within a bit."""
    if IN_ASSEMBLY:
        return tl.inline_asm_elementwise(
            "rcp.approx.ftz.f32 $0, $1;", "=r,r", [x], dtype=tl.float32, is_pure=True, pack=1
        )
    return 1.0 / x


@triton.jit
def balanced(logits, iterations, eps, N: tl.constexpr, IN_ASSEMBLY: tl.constexpr):
    """`sinkhorn` of the first N * N of the logits of each row [rows, OUT], in place of them.

    N is even. Rows and columns of a matrix are scaled by factors of their own, which meet it at
    the end.
    """
    kind = tl.arange(0, logits.shape[1])[None, :]
    grown = ()
    for i in tl.static_range(N):
        raw = ()
        for j in tl.static_range(N):
            value = tl.sum(tl.where(kind == i * N + j, logits, 0.0), 1)
            raw = raw + (value,)  # noqa: RUF005
        most = raw[0]
        for j in tl.static_range(1, N):
            most = tl.maximum(most, raw[j])
        line = ()
        total = most * 0.0
        for j in tl.static_range(N):
            value = tl.exp(raw[j] - most)
            total += value
            line = line + (value,)  # noqa: RUF005
        scale = reciprocal(total, IN_ASSEMBLY)
        for j in tl.static_range(N):
            grown = grown + (line[j] * scale + eps,)  # noqa: RUF005
    down = ()
    across = ()
    for j in tl.static_range(N):
        total = grown[j] + eps
        for i in tl.static_range(1, N):
            total += grown[i * N + j]
        across = across + (reciprocal(total, IN_ASSEMBLY),)  # noqa: RUF005
        down = down + (total * 0.0 + 1.0,)  # noqa: RUF005
    for _ in range(iterations - 1):
        fresh = ()
        for i in tl.static_range(N):
            total = grown[i * N] * across[0]
            other = grown[i * N + 1] * across[1]
            for j in tl.static_range(2, N, 2):  # two sums, that one need not wait for the other
                total += grown[i * N + j] * across[j]
                other += grown[i * N + j + 1] * across[j + 1]
            scale = reciprocal(down[i] * (total + other) + eps, IN_ASSEMBLY)
            fresh = fresh + (down[i] * scale,)  # noqa: RUF005
        down = fresh
        fresh = ()
        for j in tl.static_range(N):
            total = grown[j] * down[0]
            other = grown[N + j] * down[1]
            for i in tl.static_range(2, N, 2):
                total += grown[i * N + j] * down[i]
                other += grown[i * N + N + j] * down[i + 1]
            scale = reciprocal(across[j] * (total + other) + eps, IN_ASSEMBLY)
            fresh = fresh + (across[j] * scale,)  # noqa: RUF005
        across = fresh
    for i in tl.static_range(N):
        for j in tl.static_range(N):
            value = grown[i * N + j] * down[i] * across[j]
            logits = tl.where(kind == i * N + j, value[:, None], logits)
    return logits


@triton.jit
def added_parts(
    partial, row, parts, N: tl.constexpr, OUT: tl.constexpr, AT_ONCE: tl.constexpr
):  # fmt: skip
    """The products of some rows [rows, OUT], of which AT_ONCE parts are under way at once."""
    kind = tl.arange(0, OUT)[None, :]
    used = kind < N * N + 2 * N
    place = partial + row[:, None] * (parts * OUT) + kind
    raw = tl.zeros((row.shape[0], OUT), tl.float32)
    for first in range(0, parts, AT_ONCE):
        for k in tl.static_range(AT_ONCE):
            mask = used & (first + k < parts)
            raw += tl.load(place + (first + k) * OUT, mask=mask, other=0.0)
    return raw


@triton.jit
def store_mixes(
    partial, sums, gain, shift, pre, post, matrix, row, rows, width, parts, iterations, norm_eps,
    eps, IN_ASSEMBLY: tl.constexpr, N: tl.constexpr, OUT: tl.constexpr, PARTS: tl.constexpr,
    AT_ONCE: tl.constexpr,
):  # fmt: skip
    """The mixing weights of some rows. See `mix_norm_kernel`."""
    kind = tl.arange(0, OUT)[None, :]
    real = row < rows
    row = tl.minimum(row, rows - 1).to(tl.int64)
    if PARTS == 0:
        sizes = tl.load(sums + row)
    else:
        part = tl.arange(0, PARTS)[None, :]
        place = sums + (row[:, None] * parts + part) * 2
        sizes = tl.sum(tl.load(place, mask=part < parts, other=0.0), 1)
    raw = added_parts(partial, row, parts, N, OUT, AT_ONCE)
    scaled = raw * tl.rsqrt(sizes / (N * width) + norm_eps)[:, None]
    logits = scaled * gain[None, :] + shift[None, :]
    opened = tl.sigmoid(logits)
    row = row[:, None]
    real = real[:, None]
    gate = kind - N * N
    tl.store(pre + row * N + gate, opened + eps, mask=real & (gate >= 0) & (gate < N))
    tl.store(post + row * N + gate - N, 2.0 * opened, mask=real & (gate >= N) & (gate < 2 * N))
    even = balanced(logits, iterations, eps, N, IN_ASSEMBLY)
    tl.store(matrix + row * N * N + kind, even, mask=real & (kind < N * N))


@triton.jit
def norm_row(
    sums, weight, x, row, width, parts, eps, IN_ASSEMBLY: tl.constexpr, PARTS: tl.constexpr,
    BLOCK: tl.constexpr, BLOCKS: tl.constexpr,
):  # fmt: skip
    """A row of `x` becomes its norm."""
    part = tl.arange(0, PARTS)
    lengths = tl.load(sums + (row * parts + part) * 2 + 1, mask=part < parts, other=0.0)
    x += row * width
    held = ()
    for c in tl.static_range(BLOCKS):
        at = c * BLOCK + tl.arange(0, BLOCK)
        held = held + (tl.load(x + at, mask=at < width, other=0.0),)  # noqa: RUF005
    factor = tl.rsqrt(tl.sum(lengths, 0) / width + eps)
    for c in tl.static_range(BLOCKS):
        at = c * BLOCK + tl.arange(0, BLOCK)
        gain = tl.load(weight + at, mask=at < width, other=0.0).to(tl.float32)
        value = widened(held[c], IN_ASSEMBLY) * factor * gain
        tl.store(x + at, nearest(value, IN_ASSEMBLY), mask=at < width)


@triton.jit(do_not_specialize=["rows", "mixers"])
def mix_norm_kernel(
    partial,
    sums,
    base,
    scale,
    weight,
    x,
    pre,
    post,
    matrix,
    rows,
    mixers,
    width,
    parts,
    iterations,
    norm_eps,
    eps,
    x_eps,
    EARLY: tl.constexpr,
    IN_ASSEMBLY: tl.constexpr,
    N: tl.constexpr,
    OUT: tl.constexpr,
    PARTS: tl.constexpr,
    MIXED: tl.constexpr,
    AT_ONCE: tl.constexpr,
    BLOCK: tl.constexpr,
    BLOCKS: tl.constexpr,
):
    """The mixing weights of MIXED rows, by the first `mixers` programs; by others a row's norm.

    Of partial [rows, parts, OUT] products, and sums [rows, parts, 2] of the squares of the streams
    and of `x`; with PARTS 0 sums [rows] of the squares of the streams, and no norms.
    """
    kind = tl.arange(0, OUT)
    used = kind < N * N + 2 * N
    gain = tl.load(scale + kind, mask=used, other=0.0)  # parameters need not be waited for
    shift = tl.load(base + kind, mask=used, other=0.0)
    wait_for_results(EARLY)
    one = tl.program_id(0)
    if PARTS == 0 or one < mixers:
        some = one * MIXED + tl.arange(0, MIXED)
        store_mixes(
            partial, sums, gain, shift, pre, post, matrix, some, rows, width, parts, iterations,
            norm_eps, eps, IN_ASSEMBLY, N, OUT, PARTS, AT_ONCE,
        )  # fmt: skip
    else:
        row = (one - mixers).to(tl.int64)
        norm_row(sums, weight, x, row, width, parts, x_eps, IN_ASSEMBLY, PARTS, BLOCK, BLOCKS)
