"""What kernels that choose the best of a row are made of: numbers in order, counts, ranks."""

from __future__ import annotations

import triton
import triton.language as tl


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
def choose_held(
    index, best, out, table, column, part, least, k, NAMES: tl.constexpr, BLOCK_ROWS: tl.constexpr,
    IS_FINAL: tl.constexpr, PER_BLOCK: tl.constexpr,
):  # fmt: skip
    """Store the k best of a part whose k-th best is `least`; gives how many there are."""
    over = tl.sum((part > least).to(tl.int32))
    place, chosen, above, level = places_of(part, least, k - over, 0, 0)
    store_best(
        index, best, out, table, column, part, place, chosen, k, NAMES, BLOCK_ROWS, IS_FINAL,
        PER_BLOCK,
    )  # fmt: skip
    return above + tl.minimum(level, k - over)


@triton.jit
def search_row(
    scores, index, best, out, table, first, size, k, IS_ORDERED: tl.constexpr, NAMES: tl.constexpr,
    BLOCK_ROWS: tl.constexpr, IS_FINAL: tl.constexpr, PER_BLOCK: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Store the k best of a row of any kind; gives how many there are."""
    least = kth_of_row(scores, size, k, IS_ORDERED, BLOCK)
    over = 0
    for start in range(0, size, BLOCK):
        part = row_part(scores, start + tl.arange(0, BLOCK), size, IS_ORDERED)
        over += tl.sum((part > least).to(tl.int32), 0)
    above = 0
    level = 0
    for start in range(0, size, BLOCK):
        at = tile_at(start, BLOCK)
        part = row_part(scores, at, size, IS_ORDERED)
        place, chosen, above, level = places_of(part, least, k - over, above, level)
        store_best(
            index, best, out, table, first + at, part, place, chosen, k, NAMES, BLOCK_ROWS,
            IS_FINAL, PER_BLOCK,
        )  # fmt: skip
    return above + tl.minimum(level, k - over)


@triton.jit
def fill_rest(best, out, chosen_count, k, IS_FINAL: tl.constexpr, LANES: tl.constexpr):
    """What is told where there are fewer than k."""
    for start in range(0, k, LANES):
        at = start + tl.arange(0, LANES)
        mask = (at >= chosen_count) & (at < k)
        if IS_FINAL:
            tl.store(out + at, tl.full((LANES,), -1, tl.int64), mask=mask)
        else:
            tl.store(out + at, tl.zeros((LANES,), tl.int32), mask=mask)
            tl.store(best + at, tl.zeros((LANES,), tl.uint32), mask=mask)
