"""What top-p and top-k leave of rows whose winners are a chain: counts by all parts of a row at
once, then a program for each row.
"""

from __future__ import annotations

import triton
import triton.language as tl

from kernels.dependent_launch import wait_for_results
from kernels.sampling.triton_parts import (
    count_before,
    draw,
    key_of,
    logit_of,
    share_of,
)
from kernels.topk.triton_parts import first_step, ordered, step_up, three_counts

PIVOTS = tl.constexpr(2)  # slots before those of the chain
SLOTS = 8


@triton.jit
def count_kernel(
    logits,
    temperatures,
    top_k,
    top_p,
    highest,
    chain,
    chain_ids,
    ends,
    counts,
    masses,
    vocab,
    row_stride,
    parts,
    EARLY: tl.constexpr,
    EACH: tl.constexpr,
    PART: tl.constexpr,
    PARTS: tl.constexpr,
    SLOTS: tl.constexpr,
):
    """How many tokens of a part come before each of the chain and exceed each pivot, and what
    they are likely.
    """
    wait_for_results(EARLY)
    row = (tl.program_id(0) // parts).to(tl.int64)
    part = tl.program_id(0) % parts
    end = tl.load(ends + row)
    if end > 0:
        k = tl.load(top_k + row // EACH)
        p = tl.load(top_p + row // EACH).to(tl.float32)
        token = part * PART + tl.arange(0, PART)
        inside = token < vocab
        logit = tl.load(logits + row * row_stride + token, mask=inside, other=float("-inf"))
        logit = logit.to(tl.float32)
        at = tl.arange(0, PARTS)
        high = tl.load(highest + row * parts + at, mask=at < parts, other=float("-inf"))
        warmth = 1.0 / tl.load(temperatures + row // EACH).to(tl.float32)
        share = share_of(logit, tl.max(high, 0), warmth)
        place = (row * parts + part) * SLOTS
        for slot in range(tl.where((k < vocab) & (p < 1.0), 0, PIVOTS), end):
            below = tl.load(chain + row * SLOTS + slot)
            below_token = tl.load(chain_ids + row * SLOTS + slot)
            is_before = (logit > below) | ((logit == below) & (token < below_token))
            tl.store(counts + place + slot, tl.sum(is_before.to(tl.int32), 0))
            tl.store(masses + place + slot, tl.sum(tl.where(is_before, share, 0.0), 0))


@triton.jit
def kth_between(logits, vocab, k, low, high, STEP: tl.constexpr):
    """The k-th best of a row among ordered logits above `low` and up to `high`, of which there are
    as many; it is read once and once more for every two bits in which they differ.
    """
    lower = tl.full((STEP,), 0xFFFFFFFF, tl.uint32)
    upper = tl.zeros((STEP,), tl.uint32)
    held = tl.zeros((STEP,), tl.int32)
    for start in range(0, vocab, STEP):
        token = start + tl.arange(0, STEP)
        part = ordered(tl.load(logits + token, mask=token < vocab, other=float("-inf")))
        inside = (part > low) & (part <= high)
        lower = tl.where(inside, tl.minimum(lower, part), lower)
        upper = tl.where(inside, tl.maximum(upper, part), upper)
        held += inside.to(tl.int32)
    reached = tl.sum(held, 0).to(tl.int64)
    least = tl.zeros((), tl.uint32)
    if reached >= k:
        least, unit = first_step(tl.min(lower, 0), tl.max(upper, 0))
        while (unit > 0) & (reached > k):
            found = tl.zeros((STEP,), tl.int64)
            for start in range(0, vocab, STEP):
                token = start + tl.arange(0, STEP)
                part = ordered(tl.load(logits + token, mask=token < vocab, other=float("-inf")))
                part = tl.where((part > low) & (part <= high), part, 0)
                found += three_counts(part, least, unit)
            least, reached = step_up(tl.sum(found, 0), k, least, unit, reached)
            unit = unit >> 2
    return least


@triton.jit
def draw_on(
    logits, tops, vocab, parts, k, p, lowest, total, most, temperature, key, winner, won,
    STEP: tl.constexpr, PART: tl.constexpr, PARTS: tl.constexpr,
):  # fmt: skip
    """The winner of a row under top-k and top-p, where one that they leave out is known, or none:
    a token of the highest number. `total` is the sum of exponentials that top-p is of.
    """
    warmth = 1.0 / temperature.to(tl.float32)
    below = ordered(won)
    is_open = True
    while is_open:
        winner, won = draw(
            logits, tops, vocab, parts, temperature, key, True, below, winner, lowest, PART, PARTS
        )
        below = ordered(won)
        count, before = count_before(logits, vocab, below, winner, most, warmth, STEP)
        is_open = ((count >= k) | ((p < 1.0) & (before >= p * total))) & (count > 0)
    return winner


@triton.jit
def at_slot(values, slot, which):
    """One of the values of slots."""
    return tl.sum(tl.where(slot == which, values, 0), 0)


@triton.jit
def first_kept(count, mass, is_chain, slot, k, p, total, SLOTS: tl.constexpr):
    """The first slot of the chain that top-k and top-p keep, where top-p is of `total`; SLOTS
    where there is none.
    """
    wanted = tl.where(p < 1.0, p * total, float("inf"))
    is_kept = (count < k) & (mass < wanted)
    return tl.min(tl.where(is_chain & (is_kept | (count == 0)), slot, SLOTS), 0)


@triton.jit
def decide_kernel(
    logits,
    positions,
    temperatures,
    seeds,
    top_k,
    top_p,
    min_p,
    tops,
    highest,
    shares,
    chain,
    chain_ids,
    ends,
    counts,
    masses,
    token_ids,
    vocab,
    row_stride,
    parts,
    EARLY: tl.constexpr,
    EACH: tl.constexpr,
    PART: tl.constexpr,
    PARTS: tl.constexpr,
    SLOTS: tl.constexpr,
    STEP: tl.constexpr,
):
    """The first of a row's chain that top-k and top-p keep, or what is drawn after it.

    Top-p of the k best is of their sum, which lies between two that the pivots tell. Where those
    are too far apart to decide, the k-th best is searched for.
    """
    wait_for_results(EARLY)
    row = tl.program_id(0).to(tl.int64)
    end = tl.load(ends + row)
    if end > 0:
        at = tl.arange(0, PARTS)
        high = tl.load(highest + row * parts + at, mask=at < parts, other=float("-inf"))
        part_share = tl.load(shares + row * parts + at, mask=at < parts, other=0.0)
        k = tl.load(top_k + row // EACH)
        p = tl.load(top_p + row // EACH).to(tl.float32)
        temperature = tl.load(temperatures + row // EACH)
        warmth = 1.0 / temperature.to(tl.float32)
        most = tl.max(high, 0)
        is_both = (k < vocab) & (p < 1.0)

        slot = tl.arange(0, SLOTS)
        is_chain = (slot >= PIVOTS) & (slot < end)
        is_used = is_chain | (is_both & (slot < PIVOTS))
        place = (row * parts + at)[:, None] * SLOTS + slot[None, :]
        mask = (at < parts)[:, None] & is_used[None, :]
        count = tl.sum(tl.load(counts + place, mask=mask, other=0), 0)
        mass = tl.sum(tl.load(masses + place, mask=mask, other=0.0), 0)
        logit = tl.load(chain + row * SLOTS + slot, mask=is_used, other=float("-inf"))
        token = tl.load(chain_ids + row * SLOTS + slot, mask=is_used, other=0)

        most_total = tl.sum(part_share * share_of(high, most, warmth), 0)
        least_total = most_total
        lower = tl.zeros((), tl.uint32)
        upper = tl.full((), 0xFFFFFFFF, tl.uint32)
        beyond = tl.zeros((), tl.int32)
        if is_both:
            above, reaching = at_slot(count, slot, 0), at_slot(count, slot, 1)
            upper_logit, lower_logit = at_slot(logit, slot, 0), at_slot(logit, slot, 1)
            are_all_kept = (above <= k) & (upper_logit == float("-inf"))
            are_all_kept |= (reaching <= k) & (lower_logit == float("-inf"))
            is_between = (above <= k) & (reaching >= k)
            rest = (k - above).to(tl.float32)
            surely = at_slot(mass, slot, 0)
            if is_between:
                least_total = surely + rest * share_of(lower_logit, most, warmth)
                most_total = surely + rest * share_of(upper_logit, most, warmth)
                most_total = tl.minimum(most_total, at_slot(mass, slot, 1))
                lower = ordered(lower_logit)
                upper = ordered(upper_logit)
                beyond = above
            elif not are_all_kept:
                least_total = 0.0

        first = first_kept(count, mass, is_chain, slot, k, p, most_total, SLOTS)
        surest = first_kept(count, mass, is_chain, slot, k, p, least_total, SLOTS)
        winner = at_slot(token, slot, first)
        if (first < surest) | (first == SLOTS):
            total = most_total
            if least_total < most_total:
                level = kth_between(
                    logits + row * row_stride, vocab, k - beyond, lower, upper, STEP
                )
                over, total = count_before(
                    logits + row * row_stride, vocab, level, 0, most, warmth, STEP
                )
                total += (k - over).to(tl.float32) * share_of(logit_of(level), most, warmth)
                first = first_kept(count, mass, is_chain, slot, k, p, total, SLOTS)
                winner = at_slot(token, slot, first)
            if first == SLOTS:
                lowest = tl.full((), float("-inf"), tl.float32)
                least_share = tl.load(min_p + row // EACH).to(tl.float32)
                if least_share > 0.0:
                    lowest = most + temperature.to(tl.float32) * tl.log(least_share)
                last = tl.max(tl.where(is_chain, slot, -1), 0)
                won = tl.max(tl.where(slot == last, logit, float("-inf")), 0)
                winner = draw_on(
                    logits + row * row_stride, tops + row * parts, vocab, parts, k, p, lowest,
                    total, most, temperature, key_of(seeds, positions, row, EACH),
                    at_slot(token, slot, last), won, STEP, PART, PARTS,
                )  # fmt: skip
        tl.store(token_ids + row, winner.to(tl.int64))
