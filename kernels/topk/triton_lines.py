"""The best of a row of scores in three readings without a pause in any.

As `kernels.topk.triton_cuda`, whose parts this uses; but where that ranks a block of scores before
it reads the next, this first counts what each line of 32 scores has of those that reach the least
of interest, adds the counts up once, and then writes every line where it belongs. Scores are
compared as they are, and put in order only once they are few.
"""

from __future__ import annotations

import triton
import triton.language as tl

from kernels.topk.triton_parts import (
    choose_held,
    fill_rest,
    first_step,
    ordered,
    row_part,
    search_row,
    step_up,
    tile_at,
)
from kernels.tuning import Tunable

LINE = tl.constexpr(32)
LOWEST = tl.constexpr(0x00800000)  # of the numbers of scores
MOST_LINES = 4096  # whose counts are added up at once

BEST = Tunable(
    name="best_rows",
    op="best_rows",
    default={"LINES": 0, "BLOCK": 4096, "HELD": 4096, "num_warps": 8},
    candidates=(
        {"LINES": 0, "BLOCK": 4096, "HELD": 4096, "num_warps": 8},
        *(
            {"LINES": 1, "BLOCK": block, "HELD": held, "num_warps": warps}
            for block, held, warps in (
                (4096, 4096, 8), (4096, 4096, 16), (8192, 4096, 16), (4096, 2048, 8),
                (4096, 2048, 16),
            )
        ),
    ),
)  # fmt: skip


@triton.jit
def kth_of_few(part, k, enough):
    """`kth_of_held` of fewer than 2^15 numbers, whose counts one instruction adds for a warp."""
    reached = tl.sum((part > 0).to(tl.int32))
    least = tl.zeros((), tl.uint32)
    if reached >= k:
        low = tl.min(tl.where(part > 0, part, 0xFFFFFFFF).to(tl.uint32))
        least, unit = first_step(low, tl.max(part))
        while (unit > 0) & (reached > enough):
            once = (part >= (least | unit)).to(tl.int32)
            twice = (part >= (least | (unit * 2))).to(tl.int32)
            both = tl.sum(once + (twice << 16))
            thrice = tl.sum((part >= (least | (unit * 3))).to(tl.int32)).to(tl.int64)
            found = (both & 0xFFFF).to(tl.int64) | ((both >> 16).to(tl.int64) << 21)
            least, wide = step_up(found | (thrice << 42), k, least, unit, reached.to(tl.int64))
            reached = wide.to(tl.int32)
            unit = unit >> 2
    return least


@triton.jit
def score_of(number):
    """The score that `ordered` gives a number; NaN beyond that of infinity."""
    signed = (number ^ 0x80000000).to(tl.int32, bitcast=True)
    bits = signed ^ ((signed >> 31) & 0x7FFFFFFF)
    return bits.to(tl.float32, bitcast=True)


@triton.jit
def starts_of(lines, size, k, MOST: tl.constexpr):
    """Where what each line keeps begins, in place of how many reach the least and exceed it.

    Lines keep those that equal the least until k of them are kept: the line that has the k-th
    keeps all, which the top of its number says. Gives how many are kept.
    """
    line = tl.arange(0, MOST)
    each = tl.load(lines + line, mask=line * LINE < size, other=0)
    tl.debug_barrier()
    before = tl.cumsum(each, 0) - each
    above = (before >> 32).to(tl.int32)
    level = (before & 0xFFFFFFFF).to(tl.int32) - above
    is_kept = level < k
    own = (each & 0xFFFFFFFF).to(tl.int32) - (each >> 32).to(tl.int32)
    most = tl.max(tl.where(is_kept, level + own, 0), 0)
    start = above + tl.minimum(level, most)
    tl.store(lines + line, start.to(tl.int64) | (is_kept.to(tl.int64) << 32))
    tl.debug_barrier()
    return (tl.sum(each, 0) >> 32).to(tl.int32) + most


@triton.jit
def best_lines_kernel(
    scores,
    index,
    table,
    lines,
    held,
    best,
    out,
    n,
    k,
    shared,
    span,
    parts,
    table_stride,
    index_stride,
    NAMES: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    IS_FINAL: tl.constexpr,
    PER_BLOCK: tl.constexpr,
    LANES: tl.constexpr,
    ROOM: tl.constexpr,
    BLOCK: tl.constexpr,
    MOST: tl.constexpr,
    UNROLL: tl.constexpr,
):
    """The k best of one of `parts` spans of a row of n, of at most MOST lines.

    lines int64 [programs, MOST] and held int32 [programs, ROOM] are for itself.
    """
    program = tl.program_id(0).to(tl.int64)
    row, first = program // parts, (program % parts).to(tl.int32) * span
    scores += row * n + first
    index += row * index_stride
    table += row // shared * table_stride
    out += program * k
    best += program * k
    held += program * ROOM
    lines += program * MOST
    size = tl.minimum(n - first, span)
    is_few = size <= ROOM
    total = size
    if not is_few:
        most = tl.full((LANES,), float("-inf"), tl.float32)
        for start in tl.range(0, size, LANES, loop_unroll_factor=UNROLL):
            at = start + tl.arange(0, LANES)
            most = tl.maximum(most, tl.load(scores + at, mask=at < size, other=float("-inf")))
        number = tl.maximum(kth_of_few(ordered(most), k, k + k // 8), LOWEST)
        least, above = score_of(number), score_of(number + 1)
        line = tl.arange(0, BLOCK // LINE)
        for start in tl.range(0, size, BLOCK, loop_unroll_factor=2):
            at = tile_at(start, BLOCK)
            score = tl.load(scores + at, mask=at < size, other=float("-inf"))
            both = (score >= least).to(tl.int32) + ((score >= above).to(tl.int32) << 16)
            each = tl.sum(both, 1)
            wide = (each & 0xFFFF).to(tl.int64) | ((each >> 16).to(tl.int64) << 32)
            tl.store(lines + start // LINE + line, wide)
        tl.debug_barrier()
        total = starts_of(lines, size, k, MOST)
        if total <= ROOM:
            for start in tl.range(0, size, BLOCK, loop_unroll_factor=2):
                at = tile_at(start, BLOCK)
                score = tl.load(scores + at, mask=at < size, other=float("-inf"))
                before = tl.load(lines + start // LINE + line)
                floor = tl.where(before >> 32 > 0, least, above)
                is_kept = score >= floor[:, None]
                place = before.to(tl.int32)[:, None] + tl.cumsum(is_kept.to(tl.int32), 1) - 1
                place = tl.where(is_kept, place, -1)  # all that has to meet another thread
                tl.store(held + place, at, mask=place >= 0)
            tl.debug_barrier()
    chosen_count = 0
    if total <= ROOM:
        at = tile_at(0, ROOM)
        if not is_few:
            at = tl.load(held + at, mask=at < total, other=size)
        part = row_part(scores, at, size, False)
        chosen_count = choose_held(
            index, best, out, table, first + at, part, kth_of_few(part, k, k), k, NAMES, BLOCK_ROWS,
            IS_FINAL, PER_BLOCK,
        )  # fmt: skip
    else:
        chosen_count = search_row(
            scores, index, best, out, table, first, size, k, False, NAMES, BLOCK_ROWS, IS_FINAL,
            PER_BLOCK, BLOCK,
        )  # fmt: skip
    fill_rest(best, out, chosen_count, k, IS_FINAL, LANES)
