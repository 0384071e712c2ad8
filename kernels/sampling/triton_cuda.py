"""Seeded sampling in one pass over the logits, and a second look at what that leaves open.

First every part of a row tells the highest score that one of its tokens can have, by a bound of
the noise from the first 32 bits of its hash. A row then draws exactly, in float64 and with all
bits, for those tokens alone that can still win: mostly one.

Where a row leaves tokens out, its groups tell the same. Where top-k is small, as many groups of
tokens as hold the k best are put together and the draw is among them. Else the groups that may
hold a winner are put together, and a chain of winners is drawn: each among the tokens that come
before the last one in order of their logits. What top-p and top-k keep are the first tokens of
that order, so the row's token is the first of the chain that they keep: `triton_nucleus` counts
what comes before each of the chain, all parts of a row at once.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from kernels.dependent_launch import early, wait_for_results
from kernels.sampling.reference import Choice, SamplingRules
from kernels.sampling.triton_few import draw_chain, draw_of_few, store_pivots
from kernels.sampling.triton_nucleus import PIVOTS, SLOTS, count_kernel, decide_kernel
from kernels.sampling.triton_parts import (
    GREEDY_BELOW,
    bound,
    draw,
    first_bits,
    higher,
    key_of,
    raised,
    share_of,
    slack,
)

PART = 4096  # tokens
GROUP = 32  # tokens that tell together
ROOM = 4096  # tokens that a row holds
STEP = 4096  # tokens that are looked at together
SCAN_WARPS, DRAW_WARPS, NARROW_WARPS, COUNT_WARPS, DECIDE_WARPS = 4, 8, 16, 4, 16


@triton.jit
def scan_kernel(
    logits,
    positions,
    temperatures,
    seeds,
    top_k,
    top_p,
    tops,
    highest,
    shares,
    groups,
    vocab,
    row_stride,
    parts,
    EARLY: tl.constexpr,
    EACH: tl.constexpr,
    HAS_NARROWING: tl.constexpr,
    PART: tl.constexpr,
    GROUP: tl.constexpr,
    GROUPS: tl.constexpr,
):
    """What a part of a row tells: how high its tokens may score, its highest logit (NaN where it
    holds one), the sum of its exponentials; and of each group how high its tokens may score, or
    its highest logit where top-k is small.
    """
    wait_for_results(EARLY)
    row = (tl.program_id(0) // parts).to(tl.int64)
    part = tl.program_id(0) % parts
    token = part * PART + tl.arange(0, PART)
    inside = token < vocab
    logit = tl.load(logits + row * row_stride + token, mask=inside, other=float("-inf"))
    logit = logit.to(tl.float32)
    temperature = tl.load(temperatures + row // EACH)
    most = tl.reduce(logit, 0, higher)
    place = row * parts + part
    tl.store(highest + place, most)
    PER_PART: tl.constexpr = PART // GROUP
    group = (row * parts + part) * PER_PART + tl.arange(0, PER_PART)
    is_short = False
    is_open = False
    if HAS_NARROWING:
        k = tl.load(top_k + row // EACH)
        p = tl.load(top_p + row // EACH)
        is_short = (k < vocab) & (k <= GROUPS)
        is_open = (k < vocab) | (p < 1.0)
    if temperature < GREEDY_BELOW:
        tl.store(tops + place, most)
    elif is_short:
        tl.store(groups + group, tl.max(tl.reshape(logit, (PER_PART, GROUP)), 1))
    else:
        warmth = 1.0 / temperature.to(tl.float32)
        key = key_of(seeds, positions, row, EACH)
        rise = raised(logit, warmth, first_bits(key, part * PART, PART))
        more = tl.where(most > float("-inf"), slack(most * warmth), 0.0)
        if is_open:
            if HAS_NARROWING:
                high = tl.max(tl.reshape(rise, (PER_PART, GROUP)), 1)
                tl.store(groups + group, bound(high) + more)
                tl.store(tops + place, bound(tl.max(high, 0)) + more)
                share = 0.0
                if most > float("-inf"):
                    share = tl.sum(share_of(logit, most, warmth), 0)
                tl.store(shares + place, share)
        else:
            tl.store(tops + place, bound(tl.max(rise, 0)) + more)


@triton.jit
def choose_kernel(
    logits,
    positions,
    temperatures,
    seeds,
    top_k,
    top_p,
    min_p,
    tops,
    highest,
    groups,
    chosen,
    held,
    held_at,
    chain,
    chain_ids,
    ends,
    token_ids,
    is_finite,
    vocab,
    row_stride,
    parts,
    EARLY: tl.constexpr,
    EACH: tl.constexpr,
    HAS_NARROWING: tl.constexpr,
    PART: tl.constexpr,
    PARTS: tl.constexpr,
    GROUP: tl.constexpr,
    GROUPS: tl.constexpr,
    ROOM: tl.constexpr,
    STEP: tl.constexpr,
    SLOTS: tl.constexpr,
):
    """The token of a row, from what its parts told; or, where top-p or a large top-k leave tokens
    out, a chain that it is of, and where that ends (0 where it is not asked for).
    """
    wait_for_results(EARLY)
    row = tl.program_id(0).to(tl.int64)
    logits += row * row_stride
    at = tl.arange(0, PARTS)
    high = tl.load(highest + row * parts + at, mask=at < parts, other=float("-inf"))
    most = tl.reduce(high, 0, higher)
    finite = (most > float("-inf")) & (most < float("inf"))
    tl.store(is_finite + row, finite)
    winner = tl.zeros((), tl.int32)
    end = tl.zeros((), tl.int32)
    if finite:
        temperature = tl.load(temperatures + row // EACH)
        is_warm = temperature >= GREEDY_BELOW
        temperature = tl.where(is_warm, temperature, 1.0)
        key = key_of(seeds, positions, row, EACH)
        lowest = tl.full((), float("-inf"), tl.float32)
        is_short = False
        is_open = False
        if HAS_NARROWING:
            k = tl.load(top_k + row // EACH)
            p = tl.load(top_p + row // EACH).to(tl.float32)
            least_share = tl.load(min_p + row // EACH).to(tl.float32)
            if is_warm & (least_share > 0.0):
                lowest = most + temperature.to(tl.float32) * tl.log(least_share)
            is_short = is_warm & (k < vocab) & (k <= GROUPS)
            is_open = is_warm & ((k < vocab) | (p < 1.0))
        if is_short:
            if HAS_NARROWING:
                PER_ROW: tl.constexpr = PARTS * (PART // GROUP)
                count = parts * (PART // GROUP)
                winner = draw_of_few(
                    logits, groups + row * count, chosen + row * count, held + row * ROOM,
                    held_at + row * ROOM, vocab, count, k, p, least_share, most, temperature, key,
                    GROUP, PER_ROW, STEP, ROOM,
                )  # fmt: skip
        elif is_open:
            if HAS_NARROWING:
                count = parts * (PART // GROUP)
                first = row * SLOTS
                if (k < vocab) & (p < 1.0):
                    store_pivots(logits, chain + first, chain_ids + first, vocab, k, ROOM)
                first += PIVOTS
                limit = SLOTS - PIVOTS
                if k >= vocab:  # so many lie outside of top-p once in thousands of draws
                    limit = tl.where(p >= 0.9, 3, tl.where(p >= 0.7, 4, limit))
                end = PIVOTS + draw_chain(
                    logits, groups + row * count, chosen + row * count, chain + first,
                    chain_ids + first, vocab, count, limit, lowest, most, temperature, key, GROUP,
                    PARTS * (PART // GROUP), ROOM,
                )  # fmt: skip
        else:
            below = tl.zeros((), tl.uint32)  # everything comes before it
            winner, _ = draw(
                logits, tops + row * parts, vocab, parts, temperature, key, is_warm, below, 0,
                lowest, PART, PARTS,
            )  # fmt: skip
    tl.store(token_ids + row, winner.to(tl.int64))
    if HAS_NARROWING:
        tl.store(ends + row, end)


@triton.jit
def highest_kernel(logits, tops, token_ids, vocab, row_stride, parts, PART: tl.constexpr):
    """The highest logit of a part of a row and its token; infinite where there is a NaN."""
    row = (tl.program_id(0) // parts).to(tl.int64)
    part = tl.program_id(0) % parts
    token = part * PART + tl.arange(0, PART)
    mask = token < vocab
    logit = tl.load(logits + row * row_stride + token, mask=mask, other=float("-inf"))
    logit = logit.to(tl.float32)
    logit = tl.where(logit == logit, logit, float("inf"))  # the row is not finite either way
    most, place = tl.max(logit, 0, return_indices=True, return_indices_tie_break_left=True)
    tl.store(tops + tl.program_id(0), most)
    tl.store(token_ids + tl.program_id(0), part * PART + place)


@triton.jit
def highest_part_kernel(tops, part_ids, token_ids, is_finite, parts, PARTS: tl.constexpr):
    """The highest of the parts of a row."""
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, PARTS)
    top = tl.load(tops + row * parts + at, mask=at < parts, other=float("-inf"))
    most, place = tl.max(top, 0, return_indices=True, return_indices_tie_break_left=True)
    finite = (most > float("-inf")) & (most < float("inf"))
    tl.store(is_finite + row, finite)
    token = tl.load(part_ids + row * parts + place, mask=finite, other=0)
    tl.store(token_ids + row, token.to(tl.int64))


def choose_highest(logits: Tensor) -> Choice:
    """See kernels.sampling.reference; logits float32 or bfloat16."""
    logits = prepared(logits)
    choice = _empty_choice(logits)
    if len(logits):
        tops, part_ids = launch_highest_of_parts(logits)
        parts = tops.shape[1]
        highest_part_kernel[(len(logits),)](
            tops, part_ids, *choice, parts, PARTS=triton.next_power_of_2(parts), num_warps=1
        )
    return choice


def choose_tokens(logits: Tensor, positions: Tensor, rules: SamplingRules) -> Choice:
    """See kernels.sampling.reference; logits float32 or bfloat16."""
    logits = prepared(logits)
    choice = _empty_choice(logits)
    if len(logits):
        launch_draw(logits, positions, rules, choice)
    return choice


def prepared(logits: Tensor) -> Tensor:
    """Logits [rows, vocab] whose rows are contiguous."""
    return logits if logits.stride(-1) == 1 else logits.contiguous()


def launch_highest_of_parts(logits: Tensor) -> tuple[Tensor, Tensor]:
    """The highest logit of each part of at least one row of `prepared` logits, and its token: both
    [rows, parts].
    """
    rows, vocab = logits.shape
    parts = triton.cdiv(vocab, PART)
    tops = torch.empty((rows, parts), device=logits.device)
    part_ids = torch.empty((rows, parts), dtype=torch.int32, device=logits.device)
    highest_kernel[(rows * parts,)](
        logits, tops, part_ids, vocab, logits.stride(0), parts, PART=PART, num_warps=4
    )
    return tops, part_ids


def launch_draw(logits: Tensor, first: Tensor, rules: SamplingRules, choice: Choice) -> None:
    """Draw a token for each row of `prepared` logits, at least one, into `choice`, whose finiteness
    may be of any integer type. Each rule, with the position `first` of its first row, is for as
    many consecutive rows.
    """
    rows, vocab = logits.shape
    device, narrowing = logits.device, rules.narrowing
    parts = triton.cdiv(vocab, PART)
    tops, highest, shares = torch.empty((3, rows, parts), device=device)
    groups, chosen, held, held_at = tops, tops, tops, tops  # not read
    chain, chain_ids, ends = tops, tops, tops
    top_k, top_p, min_p = first, rules.temperatures, rules.temperatures  # not read
    if narrowing is not None:
        groups = torch.empty((rows, parts * (PART // GROUP)), device=device)
        chosen = torch.empty_like(groups, dtype=torch.int32)
        held = torch.empty((rows, ROOM), dtype=torch.uint32, device=device)
        held_at = torch.empty((rows, ROOM), dtype=torch.int32, device=device)
        chain = torch.empty((rows, SLOTS), device=device)
        chain_ids = torch.empty_like(chain, dtype=torch.int32)
        ends = torch.empty(rows, dtype=torch.int32, device=device)
        top_k, top_p, min_p = narrowing.top_k, narrowing.top_p, narrowing.min_p
    numbers = (first, rules.temperatures, rules.seeds, top_k, top_p, min_p)
    *numbers, min_p = (values.contiguous() for values in numbers)
    rule = (logits, *numbers)
    sizes = (vocab, logits.stride(0), parts)
    parted = {"EACH": rows // len(first), "PART": PART}
    padded = {"PARTS": triton.next_power_of_2(parts), "SLOTS": SLOTS}
    kind = {"HAS_NARROWING": narrowing is not None, "GROUP": GROUP, "GROUPS": vocab // GROUP}
    scan_kernel[(rows * parts,)](
        *rule,
        tops,
        highest,
        shares,
        groups,
        *sizes,
        **parted,
        **kind,
        num_warps=SCAN_WARPS,
        **early(),
    )
    choose_kernel[(rows,)](
        *rule, min_p, tops, highest, groups, chosen, held, held_at, chain, chain_ids, ends,
        *choice, *sizes, **parted, **kind, **padded, ROOM=ROOM, STEP=STEP,
        num_warps=DRAW_WARPS if narrowing is None else NARROW_WARPS, **early(),
    )  # fmt: skip
    if narrowing is None:
        return
    _, temperatures, _, top_k, top_p = numbers
    counts = torch.empty((rows, parts, SLOTS), dtype=torch.int32, device=device)
    masses = torch.empty_like(counts, dtype=torch.float32)
    told = (chain, chain_ids, ends, counts, masses)
    count_kernel[(rows * parts,)](
        logits, temperatures, top_k, top_p, highest, *told, *sizes, **parted, **padded,
        num_warps=COUNT_WARPS, **early(),
    )  # fmt: skip
    decide_kernel[(rows,)](
        *rule, min_p, tops, highest, shares, *told, choice.token_ids, *sizes, **parted, **padded,
        STEP=STEP, num_warps=DECIDE_WARPS, **early(),
    )  # fmt: skip


def _empty_choice(logits: Tensor) -> Choice:
    token_ids = torch.empty(len(logits), dtype=torch.int64, device=logits.device)
    return Choice(token_ids, torch.empty_like(token_ids, dtype=torch.bool))
