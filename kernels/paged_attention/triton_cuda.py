"""Causal attention over paged caches: fresh rows are normed, rotated, stored and attended to.

A sequence that runs one row (decoding) is one launch: each program takes one key head and a
split of the keys of fixed length, and the program of the last split makes and stores the fresh
key. A second launch joins the splits in ascending order where there can be more than one. Both
begin before the launch before them has ended, where the device can (see `kernels.fused_linear`);
cached keys are nobody's result, so a split of one tile fetches them while it waits. Other
sequences run two launches: `insert_kernel` over their rows, then `extend_kernel` over tiles of
their queries.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from kernels.fused_linear.triton_cuda import starts_early
from kernels.paged_attention.reference import Context, Heads
from kernels.rotary.reference import Rotation

KEYS = 64  # of a tile of `extend_kernel`
PROGRAMS = 132  # that a decoding step should have before its splits grow
TILE_ROWS = 64  # queries of a tile, all heads of a group counted
LOG2_E = 1.4426950408889634


@triton.jit
def turned_heads(
    x, row, head, mask, gain, cos, sin, eps, row_stride, HAS_NORM: tl.constexpr, DIM: tl.constexpr
):
    """Some heads of a row of x, normed and rotated: [heads, DIM] in the dtype of x."""
    at = tl.arange(0, DIM)
    partner = tl.where(at % 2 == 0, at + 1, at - 1)
    here = x + row * row_stride + head[:, None] * DIM
    value = tl.load(here + at[None, :], mask=mask, other=0.0).to(tl.float32)
    other = tl.load(here + partner[None, :], mask=mask, other=0.0).to(tl.float32)
    if HAS_NORM:
        scale = tl.rsqrt(tl.sum(value * value, 1) / DIM + eps)[:, None]
        value = value * scale * tl.load(gain + at).to(tl.float32)[None, :]
        other = other * scale * tl.load(gain + partner).to(tl.float32)[None, :]
        # Rounded where the definition does.
        value = value.to(x.dtype.element_ty).to(tl.float32)
        other = other.to(x.dtype.element_ty).to(tl.float32)
    c = tl.load(cos + row * DIM + at)[None, :]
    s = tl.load(sin + row * DIM + at)[None, :]
    return (value * c + other * s).to(x.dtype.element_ty)


@triton.jit
def insert_kernel(
    qkv,
    query_gain,
    key_gain,
    cos,
    sin,
    cache,
    table,
    owner,
    positions,
    queries,
    table_stride,
    row_stride,
    query_eps,
    key_eps,
    HAS_NORM: tl.constexpr,
    QUERIES: tl.constexpr,
    HEADS: tl.constexpr,
    BLOCK_TOKENS: tl.constexpr,
    DIM: tl.constexpr,
    CHUNK: tl.constexpr,
):
    """Queries go to a buffer, keys and values to the cache; CHUNK heads of a row a program."""
    row = tl.program_id(0).to(tl.int64)
    part = tl.program_id(1)
    at = tl.arange(0, DIM)
    query_parts: tl.constexpr = (QUERIES + CHUNK - 1) // CHUNK
    if part < query_parts:
        head = part * CHUNK + tl.arange(0, CHUNK)
        mask = (head < QUERIES)[:, None]
        y = turned_heads(
            qkv, row, head, mask, query_gain, cos, sin, query_eps, row_stride, HAS_NORM, DIM
        )
        tl.store(queries + (row * QUERIES + head[:, None]) * DIM + at[None, :], y, mask=mask)
    else:
        head = (part - query_parts) * CHUNK + tl.arange(0, CHUNK)
        mask = (head < HEADS)[:, None]
        k = turned_heads(
            qkv, row, QUERIES + head, mask, key_gain, cos, sin, key_eps, row_stride, HAS_NORM, DIM
        )
        value_head = (QUERIES + HEADS + head)[:, None] * DIM + at[None, :]
        v = tl.load(qkv + row * row_stride + value_head, mask=mask, other=0.0)
        position = tl.load(positions + row)
        sequence = tl.load(owner + row)
        block = tl.load(table + sequence * table_stride + position // BLOCK_TOKENS).to(tl.int64)
        first = block * 2 * HEADS + head[:, None]
        to = cache + (first * BLOCK_TOKENS + position % BLOCK_TOKENS) * DIM + at[None, :]
        tl.store(to, k, mask=mask)
        tl.store(to + HEADS * BLOCK_TOKENS * DIM, v, mask=mask)


@triton.jit
def stored_tile(
    cache, table, head, first, limit,
    HEADS: tl.constexpr, BLOCK_TOKENS: tl.constexpr, DIM: tl.constexpr, KEYS: tl.constexpr,
):  # fmt: skip
    """Cached keys and values [KEYS, DIM] of one head, zeros from `limit` on.

    first is a multiple of KEYS, so that a tile which divides a block lies in one.
    """
    key = first + tl.arange(0, KEYS)
    exists = key < limit
    at = tl.arange(0, DIM)
    if BLOCK_TOKENS % KEYS == 0:
        block = tl.load(table + first // BLOCK_TOKENS, mask=first < limit, other=0).to(tl.int64)
        place = (block * 2 * HEADS + head) * BLOCK_TOKENS + first % BLOCK_TOKENS
        here = cache + place * DIM + tl.arange(0, KEYS)[:, None] * DIM + at[None, :]
    else:
        block = tl.load(table + key // BLOCK_TOKENS, mask=exists, other=0).to(tl.int64)
        place = (block * 2 * HEADS + head) * BLOCK_TOKENS + key % BLOCK_TOKENS
        here = cache + (place * DIM)[:, None] + at[None, :]
    keys = tl.load(here, mask=exists[:, None], other=0.0)
    values = tl.load(here + HEADS * BLOCK_TOKENS * DIM, mask=exists[:, None], other=0.0)
    return keys, values


@triton.jit
def joined(query, keys, values, visible, most, total, acc, factor):
    """One tile of keys more; visible [queries, keys]. Scores are in powers of two."""
    score = tl.dot(query, tl.trans(keys), input_precision="ieee") * factor
    score = tl.where(visible, score, float("-inf"))
    higher = tl.maximum(most, tl.max(score, 1))  # finite: `most` starts so
    share = tl.exp2(score - higher[:, None])
    shrink = tl.exp2(most - higher)
    total = total * shrink + tl.sum(share, 1)
    acc = tl.dot(share.to(values.dtype), values, acc * shrink[:, None], input_precision="ieee")
    return higher, total, acc


@triton.jit(do_not_specialize=["splits"])  # see kernels.indexer.triton_cuda: modulo `splits`
def decode_kernel(
    qkv,
    query_gain,
    key_gain,
    cos,
    sin,
    cache,
    table,
    positions,
    out,
    tops,
    table_stride,
    row_stride,
    splits,
    query_eps,
    key_eps,
    factor,
    HAS_NORM: tl.constexpr,
    IS_WHOLE: tl.constexpr,
    IS_EARLY: tl.constexpr,
    QUERIES: tl.constexpr,
    HEADS: tl.constexpr,
    GROUP: tl.constexpr,
    BLOCK_TOKENS: tl.constexpr,
    DIM: tl.constexpr,
    KEYS: tl.constexpr,
    SPLIT: tl.constexpr,
):
    """One key head of one row over one split of its keys."""
    program = tl.program_id(0)
    split = program % splits
    head = program // splits % HEADS
    row = (program // splits // HEADS).to(tl.int64)
    position = tl.load(positions + row).to(tl.int32)
    first = split * SPLIT * KEYS
    if first <= position:
        at = tl.arange(0, DIM)
        here = table + row * table_stride
        key = first + tl.arange(0, KEYS)
        if SPLIT == 1:
            keys, values = stored_tile(
                cache, here, head, first, position, HEADS, BLOCK_TOKENS, DIM, KEYS
            )
        if IS_EARLY:
            gdc_launch_dependents()
            gdc_wait()
        member = tl.arange(0, GROUP)
        per_key: tl.constexpr = QUERIES // HEADS
        query_head = head * per_key + member
        mask = (member < per_key)[:, None]
        query = turned_heads(
            qkv, row, query_head, mask, query_gain, cos, sin, query_eps, row_stride, HAS_NORM, DIM
        )
        most = tl.full((GROUP,), -1e30, tl.float32)
        total = tl.zeros((GROUP,), tl.float32)
        acc = tl.zeros((GROUP, DIM), tl.float32)
        if SPLIT == 1:
            visible = (key < position)[None, :]
            most, total, acc = joined(query, keys, values, visible, most, total, acc, factor)
        else:
            for start in range(first, tl.minimum(first + SPLIT * KEYS, position), KEYS):
                key = start + tl.arange(0, KEYS)
                keys, values = stored_tile(
                    cache, here, head, start, position, HEADS, BLOCK_TOKENS, DIM, KEYS
                )
                visible = (key < position)[None, :]
                most, total, acc = joined(query, keys, values, visible, most, total, acc, factor)
        if position < first + SPLIT * KEYS:  # the fresh key is in this split, and its last
            one = tl.arange(0, 1)
            key_head = QUERIES + head + one
            fresh = turned_heads(
                qkv, row, key_head, (one == 0)[:, None], key_gain, cos, sin, key_eps, row_stride,
                HAS_NORM, DIM,
            )  # fmt: skip
            value = tl.load(qkv + row * row_stride + (QUERIES + HEADS + head) * DIM + at)
            block = tl.load(here + position // BLOCK_TOKENS).to(tl.int64)
            place = ((block * 2 * HEADS + head) * BLOCK_TOKENS + position % BLOCK_TOKENS) * DIM
            tl.store(cache + place + one[:, None] + at[None, :], fresh)
            tl.store(cache + place + HEADS * BLOCK_TOKENS * DIM + at, value)
            score = tl.sum(query.to(tl.float32) * fresh.to(tl.float32), 1) * factor
            higher = tl.maximum(most, score)
            share = tl.exp2(score - higher)
            shrink = tl.exp2(most - higher)
            total = total * shrink + share
            acc = acc * shrink[:, None] + share[:, None] * value.to(tl.float32)[None, :]
            most = higher
        if IS_WHOLE:
            to = out + (row * QUERIES + query_head[:, None]) * DIM + at[None, :]
            tl.store(to, acc / total[:, None], mask=mask)
        else:
            part = (row * splits + split) * QUERIES + query_head
            tl.store(out + part[:, None] * DIM + at[None, :], acc, mask=mask)
            tl.store(tops + 2 * part, most, mask=member < per_key)
            tl.store(tops + 2 * part + 1, total, mask=member < per_key)


@triton.jit
def join_kernel(
    parts, tops, positions, out, splits, span,
    IS_EARLY: tl.constexpr, QUERIES: tl.constexpr, DIM: tl.constexpr,
):  # fmt: skip
    """The splits of one head of one row."""
    if IS_EARLY:
        gdc_launch_dependents()
        gdc_wait()
    row = (tl.program_id(0) // QUERIES).to(tl.int64)
    head = tl.program_id(0) % QUERIES
    at = tl.arange(0, DIM)
    live = tl.load(positions + row).to(tl.int32) // span + 1
    most = -1e30
    weight = 0.0
    acc = tl.zeros((DIM,), tl.float32)
    for split in range(live):
        part = (row * splits + split) * QUERIES + head
        top = tl.load(tops + 2 * part)
        higher = tl.maximum(most, top)
        shrink = tl.exp2(most - higher)
        share = tl.exp2(top - higher)
        weight = weight * shrink + tl.load(tops + 2 * part + 1) * share
        acc = acc * shrink + tl.load(parts + part * DIM + at) * share
        most = higher
    tl.store(out + (row * QUERIES + head) * DIM + at, acc / weight)


@triton.jit(do_not_specialize=["tiles"])
def extend_kernel(
    queries,
    cache,
    table,
    positions,
    first_rows,
    out,
    table_stride,
    tiles,
    factor,
    QUERIES: tl.constexpr,
    HEADS: tl.constexpr,
    GROUP: tl.constexpr,
    BLOCK_TOKENS: tl.constexpr,
    DIM: tl.constexpr,
    KEYS: tl.constexpr,
    ROWS: tl.constexpr,
):
    """A tile of the rows of one sequence, all query heads of one key head."""
    program = tl.program_id(0)
    head = program % HEADS
    tile = program // HEADS % tiles
    sequence = (program // HEADS // tiles).to(tl.int64)
    begin = tl.load(first_rows + sequence)
    end = tl.load(first_rows + sequence + 1)
    start = begin + tile * ROWS
    if start < end:
        at = tl.arange(0, DIM)
        per_key: tl.constexpr = QUERIES // HEADS
        slot = tl.arange(0, ROWS * GROUP)
        row = start + slot // GROUP
        member = slot % GROUP
        mask = (row < end) & (member < per_key)
        where = ((row * QUERIES + head * per_key + member) * DIM)[:, None] + at[None, :]
        here = table + sequence * table_stride
        query = tl.load(queries + where, mask=mask[:, None], other=0.0)
        limit = tl.load(positions + row, mask=mask, other=0).to(tl.int32) + 1
        most = tl.full((ROWS * GROUP,), -1e30, tl.float32)
        total = tl.zeros((ROWS * GROUP,), tl.float32)
        acc = tl.zeros((ROWS * GROUP, DIM), tl.float32)
        for first in range(0, tl.max(limit, 0), KEYS):
            key = first + tl.arange(0, KEYS)
            keys, values = stored_tile(
                cache, here, head, first, tl.max(limit, 0), HEADS, BLOCK_TOKENS, DIM, KEYS
            )
            visible = key[None, :] < limit[:, None]
            most, total, acc = joined(query, keys, values, visible, most, total, acc, factor)
        tl.store(out + where, acc / total[:, None], mask=mask[:, None])


def tile_keys(dtype: torch.dtype) -> int:
    """Keys of a tile, so that several fit the shared memory of a program."""
    return KEYS if dtype == torch.bfloat16 else KEYS // 2


def next_power_of_2(n: int) -> int:
    """The same as Triton's, which takes 3 us a call: several of those a launch."""
    return 1 << (n - 1).bit_length() if n > 0 else 0


def decode_sizes(
    count: int, heads: Heads, longest: int, dtype: torch.dtype
) -> tuple[int, int, int, int]:
    """Keys of a tile, tiles of a split, warps and stages: the best of a sweep on an H200.

    Splits as long as leave a program to every processor of the device.
    """
    wanted = longest * count * heads.keys // PROGRAMS
    span = min(max(next_power_of_2(wanted), 64), 512)
    if dtype != torch.bfloat16:
        return 32, span // 32, 4, 2
    if span <= 256:
        return min(span, 128), max(1, span // 128), 8 if span == 64 else 4, 2
    return 64, span // 64, 2 if count * heads.keys >= 8 * PROGRAMS else 4, 2


def attend_fresh(
    qkv: Tensor, heads: Heads, turn: Rotation, cache: Tensor, context: Context
) -> Tensor:
    """See kernels.paged_attention.reference; float32 or bfloat16, heads a power of two wide."""
    out = torch.empty((len(qkv), heads.queries * heads.dim), dtype=qkv.dtype, device=qkv.device)
    single = context.singles
    if single:
        decode(qkv, heads, turn, cache, context, out, single)
    if single < len(context.lengths):
        extend(qkv, heads, turn, cache, context, out)
    return out


def decode(
    qkv: Tensor,
    heads: Heads,
    turn: Rotation,
    cache: Tensor,
    context: Context,
    out: Tensor,
    count: int,
    *,
    sizes: tuple[int, int, int, int] | None = None,
    early: bool | None = None,
) -> None:
    """The first `count` sequences, which run one row each. sizes: see `decode_sizes`."""
    longest = max(context.lengths[:count])
    keys, split, warps, stages = sizes or decode_sizes(count, heads, longest, qkv.dtype)
    is_early = starts_early(qkv) if early is None else early
    splits = -(-longest // (keys * split))
    parts, tops = out, out
    if splits > 1:
        kind = {"dtype": torch.float32, "device": qkv.device}
        parts = torch.empty((count, splits, heads.queries, heads.dim), **kind)
        tops = torch.empty((count, splits, heads.queries, 2), **kind)
    query_norm, key_norm = heads.query_norm, heads.key_norm
    has_norm = query_norm is not None and key_norm is not None
    decode_kernel[(count * heads.keys * splits,)](
        qkv,
        query_norm.weight if has_norm else qkv,
        key_norm.weight if has_norm else qkv,
        turn.cos,
        turn.sin,
        cache,
        context.table,
        context.positions,
        parts,
        tops,
        context.table.stride(0),
        qkv.stride(0),
        splits,
        query_norm.eps if has_norm else 0.0,
        key_norm.eps if has_norm else 0.0,
        heads.scale * LOG2_E,
        HAS_NORM=has_norm,
        IS_WHOLE=splits == 1,
        IS_EARLY=is_early,
        QUERIES=heads.queries,
        HEADS=heads.keys,
        GROUP=max(16, next_power_of_2(heads.queries // heads.keys)),
        BLOCK_TOKENS=context.block_tokens,
        DIM=heads.dim,
        KEYS=keys,
        SPLIT=split,
        num_warps=warps,
        num_stages=stages,
        launch_pdl=is_early,
    )
    if splits > 1:
        join_kernel[(count * heads.queries,)](
            parts,
            tops,
            context.positions,
            out,
            splits,
            keys * split,
            IS_EARLY=is_early,
            QUERIES=heads.queries,
            DIM=heads.dim,
            num_warps=1,
            launch_pdl=is_early,
        )


def extend(
    qkv: Tensor,
    heads: Heads,
    turn: Rotation,
    cache: Tensor,
    context: Context,
    out: Tensor,
) -> None:
    """The sequences behind those that run one row each, whatever rows they run."""
    behind = context.behind
    row = behind.row
    count, rows_behind = len(behind.table), len(behind.positions)
    cos, sin = turn.cos, turn.sin
    if row:
        qkv, cos, sin, out = qkv[row:], cos[row:], sin[row:], out[row:]
    queries = torch.empty_like(out)
    query_norm, key_norm = heads.query_norm, heads.key_norm
    has_norm = query_norm is not None and key_norm is not None
    chunk = 8
    parts = -(-heads.queries // chunk) - (-heads.keys // chunk)
    table_stride = context.table.stride(0)
    insert_kernel[(rows_behind, parts)](
        qkv,
        query_norm.weight if has_norm else qkv,
        key_norm.weight if has_norm else qkv,
        cos,
        sin,
        cache,
        context.table,
        behind.owner,
        behind.positions,
        queries,
        table_stride,
        qkv.stride(0),
        query_norm.eps if has_norm else 0.0,
        key_norm.eps if has_norm else 0.0,
        HAS_NORM=has_norm,
        QUERIES=heads.queries,
        HEADS=heads.keys,
        BLOCK_TOKENS=context.block_tokens,
        DIM=heads.dim,
        CHUNK=chunk,
        num_warps=2,
    )
    group = next_power_of_2(heads.queries // heads.keys)
    rows = max(1, TILE_ROWS // group)
    tiles = -(-behind.longest // rows)
    extend_kernel[(count * tiles * heads.keys,)](
        queries,
        cache,
        behind.table,
        behind.positions,
        behind.first_rows,
        out,
        table_stride,
        tiles,
        heads.scale * LOG2_E,
        QUERIES=heads.queries,
        HEADS=heads.keys,
        GROUP=group,
        BLOCK_TOKENS=context.block_tokens,
        DIM=heads.dim,
        KEYS=tile_keys(qkv.dtype),
        ROWS=rows,
        num_warps=4,
        num_stages=2,
    )
