"""The best of a row of scores in one launch: a threshold found bit by bit, then one pass.

Exact for every row, whatever ties: no sampling and no atomics.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from kernels.cache_ops.reference import Pages

HELD = 8192  # scores that a program holds; of longer rows it reads as many at a time


@triton.jit
def ordered_scores(scores, at, n):
    """Unsigned numbers that rise with the scores; below 2^23 for -inf, NaN and beyond the row."""
    score = tl.load(scores + at, mask=at < n, other=float("-inf"))
    score = tl.where(score == score, score, float("-inf"))
    score = tl.where(score == 0.0, 0.0, score)  # one zero
    bits = score.to(tl.int32, bitcast=True)
    signed = bits ^ ((bits >> 31) & 0x7FFFFFFF)
    return signed.to(tl.uint32, bitcast=True) ^ 0x80000000


@triton.jit
def three_counts(part, least, unit):
    """How many reach each of the three steps above `least`: three numbers of 21 bits in one."""
    once = (part >= (least | unit)).to(tl.int64)
    twice = (part >= (least | (unit * 2))).to(tl.int64)
    thrice = (part >= (least | (unit * 3))).to(tl.int64)
    return once + (twice << 21) + (thrice << 42)


@triton.jit
def best_kernel(
    scores, table, out, n, k, per_block, table_stride, IS_HELD: tl.constexpr, BLOCK: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64)
    scores += row * n
    lane = tl.arange(0, BLOCK)
    held = ordered_scores(scores, lane, n)
    least = tl.zeros((), tl.uint32)
    for step in range(16):  # two bits at a time
        unit = tl.full((), 0x40000000, tl.uint32) >> (2 * step)
        if IS_HELD:
            found = tl.sum(three_counts(held, least, unit), 0)
        else:
            found = tl.zeros((), tl.int64)
            for start in range(0, n, BLOCK):
                part = ordered_scores(scores, start + lane, n)
                found += tl.sum(three_counts(part, least, unit), 0)
        bits = ((found & 0x1FFFFF) >= k).to(tl.uint32)
        bits += (((found >> 21) & 0x1FFFFF) >= k).to(tl.uint32)
        bits += ((found >> 42) >= k).to(tl.uint32)
        least = least | (bits * unit)
    floor = tl.full((), 0x007FFFFF, tl.uint32)  # -inf
    least = tl.where(least > floor, least, floor)
    above = 0
    for start in range(0, n, BLOCK):
        part = held if IS_HELD else ordered_scores(scores, start + lane, n)
        above += tl.sum((part > least).to(tl.int32), 0)
    room = k - above
    chosen = 0
    level = 0
    for start in range(0, n, BLOCK):
        at = start + lane
        part = held if IS_HELD else ordered_scores(scores, at, n)
        is_level = ((part == least) & (least > floor)).to(tl.int32)
        rank = level + tl.cumsum(is_level, 0)
        is_chosen = ((part > least) | ((is_level > 0) & (rank <= room))).to(tl.int32)
        place = chosen + tl.cumsum(is_chosen, 0) - 1
        mask = is_chosen > 0
        block = tl.load(table + row * table_stride + at // per_block, mask=mask, other=0)
        physical = block.to(tl.int64) * per_block + at % per_block
        tl.store(out + row * k + place, physical, mask=mask)
        level += tl.sum(is_level, 0)
        chosen += tl.sum(is_chosen, 0)
    for start in range(0, k, BLOCK):
        at = start + lane
        nothing = tl.full((BLOCK,), -1, tl.int64)
        tl.store(out + row * k + at, nothing, mask=(at >= chosen) & (at < k))


def best_rows(scores: Tensor, k: int, pages: Pages) -> Tensor:
    """See kernels.topk.reference; scores float32, fewer than 2^21 a row."""
    scores = scores.contiguous()
    rows, n = scores.shape
    out = torch.empty((rows, k), dtype=torch.int64, device=scores.device)
    if rows:
        block = min(max(triton.next_power_of_2(n), 128), HELD)
        best_kernel[(rows,)](
            scores,
            pages.table,
            out,
            n,
            k,
            pages.rows_per_block,
            pages.table.stride(0),
            IS_HELD=n <= block,
            BLOCK=block,
            num_warps=min(max(block // 512, 1), 8),
        )
    return out
