"""Draws of a row among tokens that one program holds, from groups of tokens that may matter."""

from __future__ import annotations

import triton
import triton.language as tl

from kernels.sampling.triton_parts import (
    bound,
    draw_among,
    first_bits_of,
    logit_of,
    raised,
    share_of,
    slack,
)
from kernels.topk.triton_parts import (
    first_step,
    kth_of_held,
    kth_of_row,
    ordered,
    places_of,
    running_count,
    tile_at,
)

FEW = tl.constexpr(256)  # tokens that are ranked by comparing every two


@triton.jit
def choose_groups(groups, chosen, count, k, enough, GROUPS: tl.constexpr):
    """Put the k best of `count` groups together in order, or a few more, `enough` if that many can
    be told apart. Returns how many there are, what they reach as an ordered number, and the
    highest of the others.
    """
    mate = tile_at(0, GROUPS)
    high = tl.load(groups + mate, mask=mate < count, other=float("-inf"))
    rank = ordered(high)
    least = kth_of_held(rank, k, enough)
    is_chosen = (rank > 0) & (rank >= least)
    place, total = running_count(is_chosen.to(tl.int32))
    tl.store(chosen + place - 1, mate, mask=is_chosen)
    others = tl.max(tl.where(is_chosen, float("-inf"), high))
    tl.debug_barrier()
    return total, least, others


@triton.jit
def tokens_of(logits, chosen, total, vocab, GROUP: tl.constexpr, ROOM: tl.constexpr):
    """The ordered logits and the tokens of `total` groups, which there is room for."""
    at = tile_at(0, ROOM)
    mask = at // GROUP < total
    token = tl.load(chosen + at // GROUP, mask=mask, other=0) * GROUP + at % GROUP
    mask &= token < vocab
    part = ordered(tl.load(logits + token, mask=mask, other=float("-inf")))
    return part, token


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
def race(is_kept, logit, token, most, temperature, key):
    """The winner among tokens that are kept."""
    warmth = 1.0 / temperature.to(tl.float32)
    top = bound(raised(logit, warmth, first_bits_of(key, token))) + slack(most * warmth)
    top = tl.where(is_kept, top, float("-inf"))
    low = tl.full((), float("-inf"), tl.float64)
    first = tl.zeros((), tl.int32)
    none = tl.full((), float("-inf"), tl.float32)
    _, winner, _ = draw_among(top, logit, token, temperature, key, True, low, first, none)
    return winner


@triton.jit
def draw_ranked(held, held_at, count, k, p, least_share, most, temperature, key):
    """The winner among at most `FEW` tokens, the k best among them, after top-k, top-p and
    min-p: what comes before each is counted by comparing it with all.
    """
    warmth = 1.0 / temperature.to(tl.float32)
    at = tl.arange(0, FEW)
    rank = tl.load(held + at, mask=at < count, other=0)
    token = tl.load(held_at + at, mask=at < count, other=0)
    logit = logit_of(rank)
    share = share_of(logit, most, warmth)
    ahead = tl.zeros((FEW,), tl.int32)
    before = tl.zeros((FEW,), tl.float32)
    for start in range(0, count, 32):
        other = start + tl.arange(0, 32)
        its_rank = tl.load(held + other, mask=other < count, other=0)
        its_token = tl.load(held_at + other, mask=other < count, other=0)
        its_share = share_of(logit_of(its_rank), most, warmth)
        is_ahead = its_rank[None, :] > rank[:, None]
        is_ahead |= (its_rank[None, :] == rank[:, None]) & (its_token[None, :] < token[:, None])
        ahead += tl.sum(is_ahead.to(tl.int32), 1)
        before += tl.sum(tl.where(is_ahead, its_share[None, :], 0.0), 1)
    is_kept = (at < count) & (ahead < k)
    wanted = tl.where(p < 1.0, p * tl.sum(tl.where(is_kept, share, 0.0), 0), float("inf"))
    is_kept &= before < wanted
    is_kept &= share >= least_share
    return race(is_kept, logit, token, most, temperature, key)


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
def draw_held(part, token, k, p, least_share, most, temperature, key):
    """The winner among tokens that are held in order, by their ordered logits, after top-k,
    top-p and min-p.
    """
    warmth = 1.0 / temperature.to(tl.float32)
    least = kth_of_held(part, k, k)
    over = tl.sum((part > least).to(tl.int32))
    _, is_kept, _, _ = places_of(part, least, k.to(tl.int32) - over, 0, 0)
    logit = logit_of(part)
    share = tl.where(is_kept, share_of(logit, most, warmth), 0.0)
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
    return race(is_kept, logit, token, most, temperature, key)


@triton.jit
def draw_of_few(
    logits, groups, chosen, held, held_at, vocab, count, k, p, least_share, most, temperature,
    key, GROUP: tl.constexpr, GROUPS: tl.constexpr, STEP: tl.constexpr, ROOM: tl.constexpr,
):  # fmt: skip
    """The winner of a row among its k best, k at most the number of groups: as many logits reach
    the k-th best of the highest of `count` groups.
    """
    enough = tl.maximum(k + k // 8, ROOM // GROUP)
    total, least, _ = choose_groups(groups, chosen, count, k, enough, GROUPS)
    at = tile_at(0, ROOM)
    if total * GROUP <= ROOM:
        part, token = tokens_of(logits, chosen, total, vocab, GROUP, ROOM)
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
        tl.debug_barrier()
    is_reaching = (part > 0) & (part >= least)
    place, reaching = running_count(is_reaching.to(tl.int32))
    if reaching <= FEW:
        tl.store(held + place - 1, part, mask=is_reaching)
        tl.store(held_at + place - 1, token, mask=is_reaching)
        tl.debug_barrier()
        winner = draw_ranked(held, held_at, reaching, k, p, least_share, most, temperature, key)
    else:
        winner = draw_held(part, token, k, p, least_share, most, temperature, key)
    return winner


@triton.jit
def draw_chain(
    logits, groups, chosen, chain, chain_ids, vocab, count, limit, lowest, most, temperature, key,
    GROUP: tl.constexpr, GROUPS: tl.constexpr, ROOM: tl.constexpr,
):  # fmt: skip
    """The winner of a row among the tokens of at least `lowest`, then the one among those that
    come before it in order of logits, and so on to `limit`: as far as the groups that are put
    together are sure to hold it. Returns how many there are.
    """
    total, _, others = choose_groups(
        groups, chosen, count, ROOM // GROUP // 4, ROOM // GROUP, GROUPS
    )
    length = 0
    if total * GROUP <= ROOM:
        part, token = tokens_of(logits, chosen, total, vocab, GROUP, ROOM)
        logit = logit_of(part)
        warmth = 1.0 / temperature.to(tl.float32)
        top = bound(raised(logit, warmth, first_bits_of(key, token))) + slack(most * warmth)
        top = tl.where((part > 0) & (logit >= lowest), top, float("-inf"))
        low = others.to(tl.float64)
        missing = tl.full((), -1, tl.int32)
        none = tl.full((), float("-inf"), tl.float32)
        below = tl.zeros((), tl.uint32)  # everything comes before it
        below_token = tl.zeros((), tl.int32)
        is_open = total > 0
        while is_open:
            is_before = (part > below) | ((part == below) & (token < below_token))
            its_top = tl.where(is_before, top, float("-inf"))
            _best, winner, won = draw_among(
                its_top, logit, token, temperature, key, True, low, missing, none
            )
            if winner >= 0:
                tl.store(chain + length, won)
                tl.store(chain_ids + length, winner)
                length += 1
            below = ordered(won)
            below_token = winner
            is_open = (winner >= 0) & (length < limit)
    return length


@triton.jit
def store_pivots(logits, pivots, pivot_ids, vocab, k, ROOM: tl.constexpr):
    """A logit that likely fewer than k of a row exceed, and one that likely more do, by a sample
    of the row.
    """
    apart = tl.maximum(vocab // ROOM, 1)
    token = tile_at(0, ROOM) * apart
    part = ordered(tl.load(logits + token, mask=token < vocab, other=float("-inf")))
    sampled = tl.minimum(vocab // apart, ROOM)
    middle = k.to(tl.float32) * sampled.to(tl.float32) / vocab
    margin = 3.0 * tl.sqrt(middle)
    for slot in range(2):
        its_k = (middle + tl.where(slot == 0, -margin, margin)).to(tl.int32)
        least = kth_of_held(part, tl.maximum(its_k, 1), its_k + (margin * 0.25).to(tl.int32))
        pivot = tl.where(its_k < 1, float("inf"), logit_of(least))
        tl.store(pivots + slot, pivot)
        tl.store(pivot_ids + slot, 0)  # what equals it does not come before it
