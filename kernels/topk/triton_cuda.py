"""The best of a row of scores, exactly and in order, whatever ties: no sampling and no atomics.

A row is read twice. First for the maxima of `lanes` interleaved groups: at least k scores reach
the k-th best of those. Then for the few scores that do, which are put together in order; among
them the k-th best is found bit by bit. Where more reach it than there is room for, the whole row
is searched instead. Long rows are cut into parts, whose best are chosen among again.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from kernels.cache_ops.reference import Pages
from kernels.topk.reference import Blocks


@triton.jit
def ordered(score):
    """Unsigned numbers that rise with the scores; 0 for -inf and NaN."""
    score = score.to(tl.float32)
    score = tl.where(score == 0.0, 0.0, score)  # one zero
    bits = score.to(tl.int32, bitcast=True)
    signed = bits ^ ((bits >> 31) & 0x7FFFFFFF)
    rising = signed.to(tl.uint32, bitcast=True) ^ 0x80000000
    return tl.where(score > float("-inf"), rising, 0)


@triton.jit
def row_part(scores, at, n, IS_ORDERED: tl.constexpr):
    """Ordered scores at places of a row; 0 beyond it."""
    if IS_ORDERED:
        part = tl.load(scores + at, mask=at < n, other=0)
    else:
        part = ordered(tl.load(scores + at, mask=at < n, other=float("-inf")))
    return part


@triton.jit
def three_counts(part, least, unit):
    """How many reach each of the three steps above `least`: three numbers of 21 bits in one."""
    once = (part >= (least | unit)).to(tl.int64)
    twice = (part >= (least | (unit * 2))).to(tl.int64)
    thrice = (part >= (least | (unit * 3))).to(tl.int64)
    return once + (twice << 21) + (thrice << 42)


@triton.jit
def step_up(found, k, least, unit, reached):
    """The highest of the steps that at least k reach, and how many do."""
    once, twice, thrice = found & 0x1FFFFF, (found >> 21) & 0x1FFFFF, found >> 42
    bits = (once >= k).to(tl.uint32) + (twice >= k).to(tl.uint32) + (thrice >= k).to(tl.uint32)
    reached = tl.where(once >= k, once, reached)
    reached = tl.where(twice >= k, twice, reached)
    reached = tl.where(thrice >= k, thrice, reached)
    return least | (bits * unit), reached


@triton.jit
def first_step(low, high):
    """The prefix that two numbers share, and the unit of the pair of bits after it."""
    apart = (low ^ high).to(tl.float32).to(tl.int32, bitcast=True)
    bit = tl.minimum(tl.maximum((apart >> 23) - 127, 0), 31)  # the highest that differs, or above
    unit = tl.full((), 1, tl.uint32) << (bit // 2 * 2).to(tl.uint32)
    return high - (high & (unit * 4 - 1)), unit  # 4 of the highest unit wrap to 0


@triton.jit
def kth_of_held(part, k, enough):
    """A number that at least k of `part` reach, and no more than `enough` if one such can be
    found; 0 where fewer than k are above 0.
    """
    reached = tl.sum((part > 0).to(tl.int32)).to(tl.int64)
    least = tl.zeros((), tl.uint32)
    if reached >= k:
        low = tl.min(tl.where(part > 0, part, 0xFFFFFFFF).to(tl.uint32))
        least, unit = first_step(low, tl.max(part))
        while (unit > 0) & (reached > enough):
            found = tl.sum(three_counts(part, least, unit))
            least, reached = step_up(found, k, least, unit, reached)
            unit = unit >> 2
    return least


@triton.jit
def kth_of_row(scores, n, k, IS_ORDERED: tl.constexpr, BLOCK: tl.constexpr):
    """The k-th best of a row, which is read 16 times; 0 where fewer are above 0."""
    least = tl.zeros((), tl.uint32)
    reached = tl.zeros((), tl.int64) + n
    unit = tl.full((), 1 << 30, tl.uint32)
    while (unit > 0) & (reached > k):
        found = tl.zeros((), tl.int64)
        for start in range(0, n, BLOCK):
            part = row_part(scores, start + tl.arange(0, BLOCK), n, IS_ORDERED)
            found += tl.sum(three_counts(part, least, unit), 0)
        least, reached = step_up(found, k, least, unit, reached)
        unit = unit >> 2
    return least


@triton.jit
def tile_at(start, SIZE: tl.constexpr):
    """Consecutive places, 32 in a line: most of a running count stays within few threads."""
    line = tl.arange(0, SIZE // 32) * 32
    return start + line[:, None] + tl.arange(0, 32)[None, :]


@triton.jit
def running_count(each):
    """The sum of a tile up to each place and with it, and of the whole tile."""
    line = tl.sum(each, 1)
    before = tl.cumsum(line, 0) - line
    return tl.cumsum(each, 1) + before[:, None], tl.sum(line, 0)


@triton.jit
def places_of(part, least, room, above, level):
    """Where what exceeds `least`, and the first `room` that equal it, go; and the counts so far.

    `above` and `level` of them came before this tile. Returns places, which are chosen, and both
    counts after it.
    """
    is_above = part > least
    is_level = (part == least) & (part > 0)
    rank, total = running_count(is_above.to(tl.int32) + (is_level.to(tl.int32) << 16))
    levels = level + (rank >> 16)
    place = above + (rank & 0xFFFF) + tl.minimum(levels, room) - 1
    chosen = is_above | (is_level & (levels <= room))
    return place, chosen, above + (total & 0xFFFF), level + (total >> 16)


@triton.jit
def store_best(
    index, best, out, table, column, part, place, chosen, k, NAMES: tl.constexpr,
    BLOCK_ROWS: tl.constexpr, IS_FINAL: tl.constexpr, PER_BLOCK: tl.constexpr,
):  # fmt: skip
    """Put the chosen of a part where they belong: rows, or rows and ordered scores for later.

    NAMES: 0, a column is the logical row; 1, `index` has the row of each column; 2, that of each
    block of BLOCK_ROWS columns. PER_BLOCK: rows of a page, or 0 where logical rows are wanted.
    """
    mask = chosen & (place < k)
    if NAMES == 0:
        logical = column
    elif NAMES == 1:
        logical = tl.load(index + column, mask=mask, other=0)
    else:
        block = tl.load(index + column // BLOCK_ROWS, mask=mask, other=0).to(tl.int32)
        logical = block * BLOCK_ROWS + column % BLOCK_ROWS
    if IS_FINAL:
        if PER_BLOCK:
            page = tl.load(table + logical // PER_BLOCK, mask=mask, other=0)
            row = page.to(tl.int64) * PER_BLOCK + logical % PER_BLOCK
        else:
            row = logical.to(tl.int64)
        tl.store(out + place, row, mask=mask)
    else:
        tl.store(out + place, logical, mask=mask)
        tl.store(best + place, part, mask=mask)


@triton.jit
def best_kernel(
    scores,
    index,
    table,
    held,
    held_at,
    best,
    out,
    n,
    k,
    shared,
    span,
    parts,
    table_stride,
    index_stride,
    IS_ORDERED: tl.constexpr,
    NAMES: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    IS_FINAL: tl.constexpr,
    PER_BLOCK: tl.constexpr,
    LANES: tl.constexpr,
    ROOM: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """The k best of one of `parts` spans of a row of n."""
    program = tl.program_id(0).to(tl.int64)
    row, first = program // parts, (program % parts).to(tl.int32) * span
    scores += row * n + first
    index += row * index_stride
    table += row // shared * table_stride
    out += program * k
    best += program * k
    held += program * ROOM
    held_at += program * ROOM
    size = tl.minimum(n - first, span)
    least = tl.zeros((), tl.uint32)
    is_few = size <= ROOM
    total = size
    if not is_few:
        most = tl.zeros((LANES,), tl.uint32)
        for start in tl.range(0, size, LANES, loop_unroll_factor=4):
            part = row_part(scores, start + tl.arange(0, LANES), size, IS_ORDERED)
            most = tl.maximum(most, part)
        least = kth_of_held(most, k, k + k // 8)
        above = 0
        level = 0
        for start in range(0, size, BLOCK):
            at = tile_at(start, BLOCK)
            part = row_part(scores, at, size, IS_ORDERED)
            place, chosen, above, level = places_of(part, least, k, above, level)
            mask = chosen & (place < ROOM)
            tl.store(held + place, part, mask=mask)
            tl.store(held_at + place, first + at, mask=mask)
        total = above + tl.minimum(level, k)
    above = 0
    level = 0
    chosen_count = 0
    if total <= ROOM:
        at = tile_at(0, ROOM)
        if is_few:
            part = row_part(scores, at, size, IS_ORDERED)
            column = first + at
        else:
            tl.debug_barrier()
            part = tl.load(held + at, mask=at < total, other=0)
            column = tl.load(held_at + at, mask=at < total, other=0)
        least = kth_of_held(part, k, k)
        over = tl.sum((part > least).to(tl.int32))
        place, chosen, above, level = places_of(part, least, k - over, 0, 0)
        store_best(
            index, best, out, table, column, part, place, chosen, k, NAMES, BLOCK_ROWS, IS_FINAL,
            PER_BLOCK,
        )  # fmt: skip
        chosen_count = above + tl.minimum(level, k - over)
    else:
        least = kth_of_row(scores, size, k, IS_ORDERED, BLOCK)
        over = 0
        for start in range(0, size, BLOCK):
            part = row_part(scores, start + tl.arange(0, BLOCK), size, IS_ORDERED)
            over += tl.sum((part > least).to(tl.int32), 0)
        for start in range(0, size, BLOCK):
            at = tile_at(start, BLOCK)
            part = row_part(scores, at, size, IS_ORDERED)
            place, chosen, above, level = places_of(part, least, k - over, above, level)
            store_best(
                index, best, out, table, first + at, part, place, chosen, k, NAMES, BLOCK_ROWS,
                IS_FINAL, PER_BLOCK,
            )  # fmt: skip
        chosen_count = above + tl.minimum(level, k - over)
    for start in range(0, k, LANES):
        at = start + tl.arange(0, LANES)
        mask = (at >= chosen_count) & (at < k)
        if IS_FINAL:
            tl.store(out + at, tl.full((LANES,), -1, tl.int64), mask=mask)
        else:
            tl.store(out + at, tl.zeros((LANES,), tl.int32), mask=mask)
            tl.store(best + at, tl.zeros((LANES,), tl.uint32), mask=mask)


@dataclass(frozen=True, kw_only=True)
class Shape:
    """How a row is cut. The result does not depend on it."""

    block: int = 4096  # scores that are ranked at once
    warps: int = 8
    span: int = 32768  # of the parts of a long row, where there are few rows
    lanes: int = 1024  # least groups


SHAPE = Shape()
MANY = Shape(block=2048, warps=4)  # small programs, several to a processor
FEW_ROWS, MANY_ROWS = 64, 1024
HELD = 4096  # most columns that are held at once without looking for the best groups


@dataclass(frozen=True, kw_only=True)
class Names:
    """What the columns of scores stand for, and how the chosen are told."""

    index: Tensor | None = None  # [rows, columns] int32, or [rows, blocks] int64
    block_rows: int = 0  # of a block, where `index` has blocks
    pages: Pages | None = None  # None: logical rows are told


def best_rows(scores: Tensor, k: int, pages: Pages) -> Tensor:
    """See kernels.topk.reference; scores float32, fewer than 2^21 a row."""
    return launch_best(scores, k, Names(pages=pages), shape_for(scores))


def best_of_blocks(scores: Tensor, k: int, pages: Pages, blocks: Blocks) -> Tensor:
    """See kernels.topk.reference; scores float32, fewer than 2^21 a row."""
    names = Names(index=blocks.index.contiguous(), block_rows=blocks.rows, pages=pages)
    return launch_best(scores, k, names, shape_for(scores))


def shape_for(scores: Tensor) -> Shape:
    """The shape that was fastest for so many rows on an H200."""
    return MANY if len(scores) >= MANY_ROWS else SHAPE


def launch_best(scores: Tensor, k: int, names: Names, shape: Shape) -> Tensor:
    """The k best columns of scores [rows, n] by programs of a shape: [rows, k] int64."""
    scores = scores.contiguous()
    rows, n = scores.shape
    out = torch.empty((rows, k), dtype=torch.int64, device=scores.device)
    if not rows * k:
        return out
    if rows <= FEW_ROWS and n > 2 * shape.span and shape.span >= 4 * k:
        parts = triton.cdiv(n, shape.span)
        best = torch.empty((rows, parts * k), dtype=torch.uint32, device=scores.device)
        index = torch.empty((rows, parts * k), dtype=torch.int32, device=scores.device)
        _launch(scores, names, index, best, k, parts, shape)
        _launch(best, Names(index=index, pages=names.pages), out, None, k, 1, shape)
    else:
        _launch(scores, names, out, None, k, 1, shape)
    return out


def _launch(
    scores: Tensor, names: Names, out: Tensor, best: Tensor | None, k: int, parts: int,
    shape: Shape,
) -> None:  # fmt: skip
    rows, n = scores.shape
    span = n if parts == 1 else shape.span
    lanes = max(triton.next_power_of_2(2 * k), shape.lanes)
    room = max(triton.next_power_of_2(span), 128) if span <= HELD else 2 * lanes
    kept = room if span > room else 1
    held = torch.empty((rows * parts, kept), dtype=torch.uint32, device=out.device)
    held_at = torch.empty_like(held, dtype=torch.int32)
    index = held_at if names.index is None else names.index
    table = out if names.pages is None else names.pages.table
    kind = 0 if names.index is None else 2 if names.block_rows else 1
    best_kernel[(rows * parts,)](
        scores,
        index,
        table,
        held,
        held_at,
        held if best is None else best,
        out,
        n,
        k,
        max(rows // max(len(table), 1), 1),
        span,
        parts,
        table.stride(0),
        index.stride(0),
        IS_ORDERED=scores.dtype == torch.uint32,
        NAMES=kind,
        BLOCK_ROWS=names.block_rows,
        IS_FINAL=best is None,
        PER_BLOCK=0 if names.pages is None else names.pages.rows_per_block,
        LANES=lanes,
        ROOM=room,
        BLOCK=min(shape.block, max(triton.next_power_of_2(span), 128)),
        num_warps=_warps(span, room, shape),
    )


def _warps(span: int, room: int, shape: Shape) -> int:
    if span > 4096:
        return shape.warps
    return min(max(room // 256, 1), 16) if span <= room else 8
