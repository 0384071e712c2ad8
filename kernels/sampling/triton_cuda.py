"""Seeded sampling in one pass over the logits, and a second look at what that leaves open.

First every part of a row tells the highest score that one of its tokens can have, by a bound of
the noise from the first 32 bits of its hash. A row then draws exactly, in float64 and with all
bits, for those tokens alone that can still win: mostly one. Where top-k is small, as many groups
of tokens as hold the k best are put together and the draw is among them. Else a winner is drawn
among all, and what comes before it is counted: where top-p or top-k leave the winner out, they
leave out all that come after it too, and the draw is repeated among those before it.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from kernels.sampling import reference
from kernels.sampling.reference import Choice, SamplingRules
from kernels.topk.triton_parts import (
    first_step,
    kth_of_held,
    kth_of_row,
    ordered,
    places_of,
    running_count,
    tile_at,
)

GREEDY_BELOW = tl.constexpr(reference.GREEDY_BELOW)
WEYL = tl.constexpr(reference.WEYL)
MIX_A = tl.constexpr(reference.MIX_A)
MIX_B = tl.constexpr(reference.MIX_B)
LN2 = tl.constexpr(0.6931471805599453)
LOG2E = tl.constexpr(1.4426950408889634)

PART = 4096  # tokens
GROUP = 32  # tokens that tell their highest logit together
ROOM = 4096  # tokens that a row holds
STEP = 4096  # tokens that are looked at together
SCAN_WARPS, CHOOSE_WARPS = 4, 16


@triton.jit
def mix(word):
    word = (word ^ (word >> 30)) * MIX_A
    word = (word ^ (word >> 27)) * MIX_B
    return word ^ (word >> 31)


@triton.jit
def key_of(seeds, positions, row, EACH: tl.constexpr):
    """The key of one of `EACH` consecutive rows, whose seed and first position lie together."""
    rule = row // EACH
    seed = tl.load(seeds + rule).to(tl.uint64, bitcast=True)
    position = tl.load(positions + rule) + (row - rule * EACH)
    return mix(seed + (position + 1).to(tl.uint64, bitcast=True) * WEYL)


@triton.jit
def first_bits(key, start, PART: tl.constexpr):
    """The first 32 bits of the hashes of tokens from an even `start` on: [PART]."""
    pair = (start // 2 + 1 + tl.arange(0, PART // 2)).to(tl.uint64)
    word = mix(key + pair * WEYL)
    return tl.interleave((word >> 32).to(tl.uint32), (word & 0xFFFFFFFF).to(tl.uint32))


@triton.jit
def first_bits_of(key, token):
    """The same of any tokens."""
    word = mix(key + (token // 2 + 1).to(tl.uint64) * WEYL)
    return (word >> tl.where(token % 2 == 0, 32, 0).to(tl.uint64)).to(tl.uint32)


@triton.jit
def bound(logit, warmth, bits):
    """What logit * warmth + noise cannot exceed, but for rounding, for noise whose first bits
    are known.

    With x = 1 - uniform, the noise is -log(x) - (x/2 + 5x^2/24 + ...), all terms positive; and
    log2(x) is at least the exponent of x plus its mantissa less one.
    """
    whole = bits.to(tl.float32)  # 2^32 x
    exponent = whole.to(tl.int32, bitcast=True).to(tl.float32)
    noise = exponent * (-LN2 * 2.0**-23) + 159.0 * LN2
    noise -= whole * (0.5 * 2.0**-32 + whole * (0.2083 * 2.0**-64))
    return logit * warmth + noise


@triton.jit
def slack(most):
    """What rounding may add to scores that can win where `most` is the highest logit * warmth:
    noise is between -4 and 37.
    """
    return (tl.abs(most) + 100.0) * 1e-6


@triton.jit
def exact(logit, temperature, key, token):
    """Score and noise of one token, as the definition has them."""
    word = mix(key + (token // 2 + 1).to(tl.uint64) * WEYL)
    more = mix(word + WEYL)
    is_even = token % 2 == 0
    first = (word >> tl.where(is_even, 32, 0).to(tl.uint64)) & 0xFFFFFFFF
    last = (more >> tl.where(is_even, 44, 12).to(tl.uint64)) & 0xFFFFF
    drawn = ((first << 20) | last).to(tl.int64).to(tl.float64)
    uniform = 1.0 - (drawn + 0.5) * (2.0**-52)
    return logit.to(tl.float64) / temperature - tl.log(-tl.log(uniform))


@triton.jit
def draw_among(top, logit, token, temperature, key, is_warm, best, winner, won):
    """The winner among tokens whose scores are at most `top`, and one from elsewhere whose exact
    score is `best`. Returns its score, itself and its logit.
    """
    most = tl.max(top)
    while most.to(tl.float64) > best:
        its_token = tl.min(tl.where(top == most, token, 0x7FFFFFFF))
        here = token == its_token
        its_logit = tl.max(tl.where(here, logit, float("-inf")))
        score = its_logit.to(tl.float64)
        if is_warm:
            score = exact(its_logit, temperature, key, its_token)
        if score > best:
            best = score
            winner = its_token
            won = its_logit
        top = tl.where(here, float("-inf"), top)
        most = tl.max(top)
    return best, winner, won


@triton.jit
def draw(
    logits, tops, vocab, parts, temperature, key, is_warm, below, below_token, lowest,
    PART: tl.constexpr, PARTS: tl.constexpr,
):  # fmt: skip
    """The winner of a row among the tokens of at least `lowest` that come before another one, in
    order of their logits, given as its ordered logit and its token; and its logit.
    """
    at = tl.arange(0, PARTS)
    top = tl.load(tops + at, mask=at < parts, other=float("-inf"))
    best = tl.full((), float("-inf"), tl.float64)
    winner = tl.zeros((), tl.int32)
    won = tl.full((), float("-inf"), tl.float32)
    most = tl.max(top, 0)
    warmth = 1.0 / temperature.to(tl.float32)
    while most.to(tl.float64) > best:
        part = tl.argmax(top, 0, tie_break_left=True)
        token = part * PART + tl.arange(0, PART)
        inside = token < vocab
        logit = tl.load(logits + token, mask=inside, other=float("-inf")).to(tl.float32)
        rank = ordered(logit)
        is_before = (rank > below) | ((rank == below) & (token < below_token))
        its_top = logit
        if is_warm:
            its_top = bound(logit, warmth, first_bits(key, part * PART, PART))
            its_top += slack(tl.max(logit, 0) * warmth)
        its_top = tl.where(is_before & (logit >= lowest), its_top, float("-inf"))
        best, winner, won = draw_among(
            its_top, logit, token, temperature, key, is_warm, best, winner, won
        )
        top = tl.where(at == part, float("-inf"), top)
        most = tl.max(top, 0)
    return winner, won


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
    EACH: tl.constexpr,
    HAS_NARROWING: tl.constexpr,
    PART: tl.constexpr,
    GROUP: tl.constexpr,
    GROUPS: tl.constexpr,
):
    """What a part of a row tells: how high its tokens may score, its highest logit (infinite
    where it holds a NaN), the sum of its exponentials, and the highest logit of each group.
    """
    row = (tl.program_id(0) // parts).to(tl.int64)
    part = tl.program_id(0) % parts
    token = part * PART + tl.arange(0, PART)
    inside = token < vocab
    logit = tl.load(logits + row * row_stride + token, mask=inside, other=float("-inf"))
    logit = logit.to(tl.float32)
    temperature = tl.load(temperatures + row // EACH)
    most = tl.max(tl.where(logit == logit, logit, float("inf")), 0)
    place = row * parts + part
    tl.store(highest + place, most)
    is_short = False
    if HAS_NARROWING:
        k = tl.load(top_k + row // EACH)
        is_short = (k < vocab) & (k <= GROUPS)
    if temperature < GREEDY_BELOW:
        tl.store(tops + place, most)
    elif is_short:
        PER_PART: tl.constexpr = PART // GROUP
        group = tl.max(tl.reshape(logit, (PER_PART, GROUP)), 1)
        at = part * PER_PART + tl.arange(0, PER_PART)
        tl.store(groups + row * (parts * PER_PART) + at, group)
    else:
        warmth = 1.0 / temperature.to(tl.float32)
        key = key_of(seeds, positions, row, EACH)
        top = bound(logit, warmth, first_bits(key, part * PART, PART))
        tl.store(tops + place, tl.max(top, 0) + slack(most * warmth))
        if HAS_NARROWING:
            share = 0.0
            if (tl.load(top_p + row // EACH) < 1.0) & (most > float("-inf")):
                share = tl.sum(tl.exp2((logit - most) * (warmth * LOG2E)), 0)
            tl.store(shares + place, share)


@triton.jit
def nucleus(part, share, wanted):
    """The highest number that tokens holding at least `wanted` reach; 0 where they hold less."""
    low = tl.min(tl.where(part > 0, part, 0xFFFFFFFF).to(tl.uint32))
    least, unit = first_step(low, tl.max(part))
    unit = unit * 2
    held = tl.sum(tl.where(part >= least, share, 0.0))
    least = tl.where(held >= wanted, least, 0)
    unit = tl.where(held >= wanted, unit, 0)
    while unit > 0:
        held = tl.sum(tl.where(part >= (least | unit), share, 0.0))
        least = tl.where(held >= wanted, least | unit, least)
        unit = unit >> 1
    return least


@triton.jit
def logit_of(rank):
    """What `ordered` was made of; -inf for 0."""
    signed = (rank ^ 0x80000000).to(tl.int32, bitcast=True)
    bits = signed ^ ((signed >> 31) & 0x7FFFFFFF)
    return tl.where(rank > 0, bits.to(tl.float32, bitcast=True), float("-inf"))


@triton.jit
def draw_held(part, token, k, p, least_share, most, temperature, key):
    """The winner among tokens that are held in order, by their ordered logits, after top-k,
    top-p and min-p.
    """
    warmth = 1.0 / temperature.to(tl.float32)
    least = kth_of_held(part, k, k)
    over = tl.sum((part > least).to(tl.int32))
    _, is_kept, _, _ = places_of(part, least, k.to(tl.int32) - over, 0, 0)
    logit = logit_of(part)
    share = tl.where(is_kept, tl.exp2((logit - most) * (warmth * LOG2E)), 0.0)
    if p < 1.0:
        wanted = p * tl.sum(share)
        rank = tl.where(is_kept, part, 0)
        least = nucleus(rank, share, wanted)
        before = tl.sum(tl.where(rank > least, share, 0.0))
        is_level = (rank == least) & is_kept
        level, _ = running_count(is_level.to(tl.int32))
        is_kept = (rank > least) | (
            is_level & (before + (level - 1).to(tl.float32) * share < wanted)
        )
    is_kept &= share >= least_share
    top = bound(logit, warmth, first_bits_of(key, token)) + slack(most * warmth)
    top = tl.where(is_kept, top, float("-inf"))
    low = tl.full((), float("-inf"), tl.float64)
    first = tl.zeros((), tl.int32)
    none = tl.full((), float("-inf"), tl.float32)
    _, winner, _ = draw_among(top, logit, token, temperature, key, True, low, first, none)
    return winner


@triton.jit
def gather(
    logits, groups, held, held_at, vocab, count, least, room, HAS_GROUPS: tl.constexpr,
    GROUP: tl.constexpr, STEP: tl.constexpr, ROOM: tl.constexpr,
):  # fmt: skip
    """Put together, in order, what exceeds `least` and the first `room` that equal it, of the
    whole row or of `count` of its groups. Returns how many there are, of which `ROOM` are put.
    """
    above = 0
    level = 0
    end = count * GROUP if HAS_GROUPS else vocab
    for start in range(0, end, STEP):
        token = tile_at(start, STEP)
        if HAS_GROUPS:
            member = tl.load(groups + token // GROUP, mask=token < end, other=0)
            token = tl.where(token < end, member * GROUP + token % GROUP, vocab)
        logit = tl.load(logits + token, mask=token < vocab, other=float("-inf"))
        part = ordered(logit)
        place, chosen, above, level = places_of(part, least, room, above, level)
        mask = chosen & (place < ROOM)
        tl.store(held + place, part, mask=mask)
        tl.store(held_at + place, token, mask=mask)
    tl.debug_barrier()
    return above + tl.minimum(level, room)


@triton.jit
def draw_of_few(
    logits, groups, chosen, held, held_at, vocab, count, k, p, least_share, most, temperature,
    key, GROUP: tl.constexpr, GROUPS: tl.constexpr, STEP: tl.constexpr, ROOM: tl.constexpr,
):  # fmt: skip
    """The winner of a row among its k best, k at most the number of groups: as many logits reach
    the k-th best of the highest of `count` groups.
    """
    mate = tile_at(0, GROUPS)
    group = ordered(tl.load(groups + mate, mask=mate < count, other=float("-inf")))
    least = kth_of_held(group, k, k + k // 8)
    is_chosen = (group > 0) & (group >= least)
    place, total = running_count(is_chosen.to(tl.int32))
    tl.store(chosen + place - 1, mate, mask=is_chosen)
    tl.debug_barrier()
    at = tile_at(0, ROOM)
    if total * GROUP <= ROOM:
        mask = at // GROUP < total
        token = tl.load(chosen + at // GROUP, mask=mask, other=0) * GROUP + at % GROUP
        mask &= token < vocab
        part = ordered(tl.load(logits + token, mask=mask, other=float("-inf")))
    else:
        room = k.to(tl.int32)
        held_count = gather(
            logits, chosen, held, held_at, vocab, total, least, room, True, GROUP, STEP, ROOM
        )
        if held_count > ROOM:
            least = kth_of_row(logits, vocab, k, False, STEP)
            held_count = gather(
                logits, chosen, held, held_at, vocab, total, least, room, False, GROUP, STEP, ROOM
            )
        part = tl.load(held + at, mask=at < held_count, other=0)
        token = tl.load(held_at + at, mask=at < held_count, other=0)
    return draw_held(part, token, k, p, least_share, most, temperature, key)


@triton.jit
def count_before(logits, vocab, below, below_token, most, warmth, STEP: tl.constexpr):
    """How many tokens come before one in order of logits, and the sum of their exponentials."""
    count = tl.zeros((STEP,), tl.int32)
    share = tl.zeros((STEP,), tl.float32)
    for start in tl.range(0, vocab, STEP, loop_unroll_factor=4):
        token = start + tl.arange(0, STEP)
        logit = tl.load(logits + token, mask=token < vocab, other=float("-inf")).to(tl.float32)
        part = ordered(logit)
        is_before = (part > below) | ((part == below) & (token < below_token))
        count += is_before.to(tl.int32)
        share += tl.where(is_before, tl.exp2((logit - most) * (warmth * LOG2E)), 0.0)
    return tl.sum(count, 0), tl.sum(share, 0)


@triton.jit
def draw_of_nucleus(
    logits, tops, vocab, parts, k, p, lowest, total, most, temperature, key, winner, won,
    STEP: tl.constexpr, PART: tl.constexpr, PARTS: tl.constexpr,
):  # fmt: skip
    """The winner of a row under top-k and top-p, where one among all its tokens is known. `total`
    is the sum of exponentials of the whole row.
    """
    warmth = 1.0 / temperature.to(tl.float32)
    if (k < vocab) & (p < 1.0):
        level = kth_of_row(logits, vocab, k, False, STEP)
        over, above = count_before(logits, vocab, level, 0, most, warmth, STEP)
        share = tl.exp2((logit_of(level) - most) * (warmth * LOG2E))
        total = above + (k - over).to(tl.float32) * share
    is_open = True
    while is_open:
        below = ordered(won)
        count, before = count_before(logits, vocab, below, winner, most, warmth, STEP)
        is_open = ((count >= k) | ((p < 1.0) & (before >= p * total))) & (count > 0)
        if is_open:
            winner, won = draw(
                logits, tops, vocab, parts, temperature, key, True, below, winner, lowest, PART,
                PARTS,
            )  # fmt: skip
    return winner


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
    shares,
    groups,
    chosen,
    held,
    held_at,
    token_ids,
    is_finite,
    vocab,
    row_stride,
    parts,
    EACH: tl.constexpr,
    HAS_NARROWING: tl.constexpr,
    PART: tl.constexpr,
    PARTS: tl.constexpr,
    GROUP: tl.constexpr,
    GROUPS: tl.constexpr,
    ROOM: tl.constexpr,
    STEP: tl.constexpr,
):
    """The token of a row, from what its parts told."""
    row = tl.program_id(0).to(tl.int64)
    logits += row * row_stride
    tops += row * parts
    at = tl.arange(0, PARTS)
    high = tl.load(highest + row * parts + at, mask=at < parts, other=float("-inf"))
    most = tl.max(high, 0)
    finite = (most > float("-inf")) & (most < float("inf"))
    tl.store(is_finite + row, finite)
    winner = tl.zeros((), tl.int32)
    if finite:
        temperature = tl.load(temperatures + row // EACH)
        is_warm = temperature >= GREEDY_BELOW
        temperature = tl.where(is_warm, temperature, 1.0)
        key = key_of(seeds, positions, row, EACH)
        lowest = tl.full((), float("-inf"), tl.float32)
        is_short = False
        if HAS_NARROWING:
            k = tl.load(top_k + row // EACH)
            p = tl.load(top_p + row // EACH).to(tl.float32)
            least_share = tl.load(min_p + row // EACH).to(tl.float32)
            if is_warm & (least_share > 0.0):
                lowest = most + temperature.to(tl.float32) * tl.log(least_share)
            is_short = is_warm & (k < vocab) & (k <= GROUPS)
        if is_short:
            if HAS_NARROWING:
                PER_ROW: tl.constexpr = PARTS * (PART // GROUP)
                count = parts * (PART // GROUP)
                winner = draw_of_few(
                    logits, groups + row * count, chosen + row * count, held + row * ROOM,
                    held_at + row * ROOM, vocab, count, k, p, least_share, most, temperature, key,
                    GROUP, PER_ROW, STEP, ROOM,
                )  # fmt: skip
        else:
            below = tl.zeros((), tl.uint32)  # everything comes before it
            winner, won = draw(
                logits, tops, vocab, parts, temperature, key, is_warm, below, 0, lowest, PART,
                PARTS,
            )  # fmt: skip
            if HAS_NARROWING:  # noqa: SIM102 (known when it is compiled)
                if is_warm & ((p < 1.0) | (k < vocab)):
                    share = tl.load(shares + row * parts + at, mask=at < parts, other=0.0)
                    warmth = 1.0 / temperature.to(tl.float32)
                    total = tl.sum(share * tl.exp2((high - most) * (warmth * LOG2E)), 0)
                    winner = draw_of_nucleus(
                        logits, tops, vocab, parts, k, p, lowest, total, most, temperature, key,
                        winner, won, STEP, PART, PARTS,
                    )  # fmt: skip
    tl.store(token_ids + row, winner.to(tl.int64))


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
    groups, chosen, held, held_at = tops, tops, tops, tops
    if narrowing is not None:
        groups = torch.empty((rows, parts * (PART // GROUP)), device=device)
        chosen = torch.empty_like(groups, dtype=torch.int32)
        held = torch.empty((rows, ROOM), dtype=torch.uint32, device=device)
        held_at = torch.empty((rows, ROOM), dtype=torch.int32, device=device)
    top_k, top_p, min_p = (
        (first, rules.temperatures, rules.temperatures)  # not read
        if narrowing is None
        else (narrowing.top_k, narrowing.top_p, narrowing.min_p)
    )
    numbers = (first, rules.temperatures, rules.seeds, top_k, top_p, min_p)
    *numbers, min_p = (values.contiguous() for values in numbers)
    rule = (logits, *numbers)
    sizes = (vocab, logits.stride(0), parts)
    constants = {
        "EACH": rows // len(first),
        "HAS_NARROWING": narrowing is not None,
        "PART": PART,
        "GROUP": GROUP,
        "GROUPS": vocab // GROUP,
    }
    scan_kernel[(rows * parts,)](
        *rule, tops, highest, shares, groups, *sizes, **constants, num_warps=SCAN_WARPS
    )
    choose_kernel[(rows,)](
        *rule, min_p, tops, highest, shares, groups, chosen, held, held_at, *choice, *sizes,
        **constants, PARTS=triton.next_power_of_2(parts), ROOM=ROOM, STEP=STEP,
        num_warps=8 if narrowing is None else CHOOSE_WARPS,
    )  # fmt: skip


def _empty_choice(logits: Tensor) -> Choice:
    token_ids = torch.empty(len(logits), dtype=torch.int64, device=logits.device)
    return Choice(token_ids, torch.empty_like(token_ids, dtype=torch.bool))
