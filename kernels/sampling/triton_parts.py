"""What kernels that draw tokens are made of: hashes, bounds of the noise, races, counts."""

from __future__ import annotations

import triton
import triton.language as tl

from kernels.sampling import reference
from kernels.topk.triton_parts import ordered

GREEDY_BELOW = tl.constexpr(reference.GREEDY_BELOW)
WEYL = tl.constexpr(reference.WEYL)
MIX_A = tl.constexpr(reference.MIX_A)
MIX_B = tl.constexpr(reference.MIX_B)
LN2 = tl.constexpr(0.6931471805599453)
LOG2E = tl.constexpr(1.4426950408889634)


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
    """The first 32 bits of the hashes of tokens from an even `start` on, or one less: [PART].

    Words are four in a line, which a thread that loads eight tokens has: one product serves them.
    The last bit of even tokens is left out. It saves an instruction, and without one the compiler
    would make floats of 64 bits, which is slow.
    """
    line = (start // 2 + 1 + tl.arange(0, PART // 8) * 4).to(tl.uint64)
    word = (key + line * WEYL)[:, None] + (tl.arange(0, 4).to(tl.uint64) * WEYL)[None, :]
    word = (word ^ (word >> 30)) * MIX_A
    word = (word ^ (word >> 27)) * MIX_B
    first = (word >> 32).to(tl.uint32) & 0xFFFFFFFE
    last = word.to(tl.uint32) ^ (word >> 31).to(tl.uint32)
    return tl.reshape(tl.join(first, last), (PART,))


@triton.jit
def first_bits_of(key, token):
    """The same of any tokens."""
    word = mix(key + (token // 2 + 1).to(tl.uint64) * WEYL)
    return (word >> tl.where(token % 2 == 0, 32, 0).to(tl.uint64)).to(tl.uint32)


@triton.jit
def raised(logit, warmth, bits):
    """Rises with what `logit * warmth + noise` cannot exceed, but for rounding, for noise whose
    first bits are known; `bound` says how high that is.

    Noise is below -log(x), with x = 1 - uniform; and log2(x) is at least the exponent of x plus
    its mantissa less one, which the bits of a float are in units of 2^-23.
    """
    exponent = bits.to(tl.float32).to(tl.int32, bitcast=True).to(tl.float32)
    return logit * (warmth * (LOG2E * 2.0**23)) - exponent


@triton.jit
def bound(rise):
    """What a score that is `raised` so much cannot exceed."""
    return rise * (LN2 * 2.0**-23) + 159.0 * LN2


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
            its_top = bound(raised(logit, warmth, first_bits(key, part * PART, PART)))
            its_top += slack(tl.max(logit, 0) * warmth)
        its_top = tl.where(is_before & (logit >= lowest), its_top, float("-inf"))
        best, winner, won = draw_among(
            its_top, logit, token, temperature, key, is_warm, best, winner, won
        )
        top = tl.where(at == part, float("-inf"), top)
        most = tl.max(top, 0)
    return winner, won


@triton.jit
def higher(a, b):
    """The higher of two, NaN where either is."""
    return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def share_of(logit, most, warmth):
    """How likely a token is, as a part of how likely the likeliest is."""
    return tl.exp2((logit - most) * (warmth * LOG2E))


@triton.jit
def logit_of(rank):
    """What `ordered` was made of; -inf for 0."""
    signed = (rank ^ 0x80000000).to(tl.int32, bitcast=True)
    bits = signed ^ ((signed >> 31) & 0x7FFFFFFF)
    return tl.where(rank > 0, bits.to(tl.float32, bitcast=True), float("-inf"))


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
        share += tl.where(is_before, share_of(logit, most, warmth), 0.0)
    return tl.sum(count, 0), tl.sum(share, 0)
