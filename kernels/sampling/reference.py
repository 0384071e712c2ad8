"""Which token comes next, as a function of logits, a rule, a seed and a position: the definition.

Greedy below `GREEDY_BELOW`: the highest logit, the lowest id on ties. Else of logits /
temperature the `top_k` best, of those the nucleus of `top_p` (renormalised), of those the ones
no less likely than `min_p` times the likeliest; and then the highest of score + noise. The noise
has Gumbel's distribution, so that this draws exactly from the softmax of what is left.

The noise of a token at a position is a hash of (seed, position, token): SplitMix64 (Steele, Lea,
Flood 2014) as a counter-based generator. Two tokens share a word: 32 bits each, and 20 more of
the word's successor, which only a token that may win needs. A text therefore does not depend on
batch, chunks, preemptions or drafts.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

GREEDY_BELOW = 1e-5  # as DeepInfer does; a colder division would overflow

WEYL = 0x9E3779B97F4A7C15
MIX_A = 0xBF58476D1CE4E5B9
MIX_B = 0x94D049BB133111EB
_WORD = (1 << 64) - 1


@dataclass(frozen=True, kw_only=True)
class Narrowing:
    """What each row leaves out before it draws, on the device of the logits."""

    top_k: Tensor  # [rows] int64, at least 1; the vocabulary or more leaves every token
    top_p: Tensor  # [rows] float64 in (0, 1]
    min_p: Tensor  # [rows] float64 in [0, 1]


@dataclass(frozen=True, kw_only=True)
class SamplingRules:
    """The rule of each row, on the device of the logits."""

    temperatures: Tensor  # [rows] float64, at least 0
    seeds: Tensor  # [rows] int64: `mixed` seeds
    narrowing: Narrowing | None = None  # None: of no row


class Choice(NamedTuple):
    """Chosen tokens [rows] int64, within the vocabulary; those of rows that are not finite mean
    nothing. A row is finite where its highest logit is, and it holds no NaN.
    """

    token_ids: Tensor
    is_finite: Tensor


def choose_highest(logits: Tensor) -> Choice:
    """The highest logit of each row of [rows, vocab], the lowest id on ties."""
    best, token_ids = logits.max(dim=-1)  # the first, so the lowest, of equal ones
    return Choice(token_ids, torch.isfinite(best))


def choose_tokens(logits: Tensor, positions: Tensor, rules: SamplingRules) -> Choice:
    """Choose a token for each row of logits [rows, vocab], each at its absolute position [rows]."""
    is_warm = rules.temperatures >= GREEDY_BELOW
    scores = logits.double()
    warm = scores / torch.where(is_warm, rules.temperatures, 1.0).unsqueeze(-1)
    if rules.narrowing is not None:
        warm = narrowed(warm, rules.narrowing)
    raced = warm + noise(rules.seeds, positions, logits.shape[-1])
    return choose_highest(torch.where(is_warm.unsqueeze(-1), raced, scores))


def narrowed(scores: Tensor, narrowing: Narrowing) -> Tensor:
    """Set what is left out of scores [rows, vocab], which temperature has divided, to -inf."""
    ordered, ids = scores.sort(dim=-1, descending=True, stable=True)
    rank = torch.arange(scores.shape[-1], device=scores.device)
    is_out = rank >= narrowing.top_k.unsqueeze(-1)
    share = ordered.masked_fill(is_out, -math.inf).softmax(dim=-1)
    before = share.cumsum(dim=-1) - share
    top_p = narrowing.top_p.unsqueeze(-1)
    is_out |= (before >= top_p) & (top_p < 1)
    is_out |= (ordered - ordered[:, :1]).exp() < narrowing.min_p.unsqueeze(-1)
    is_out[:, :1].fill_(False)  # rounding must not leave a row without a token
    kept = ordered.masked_fill(is_out, -math.inf)
    return torch.empty_like(kept).scatter_(-1, ids, kept)


def noise(seeds: Tensor, positions: Tensor, vocab: int) -> Tensor:
    """Noise [rows, vocab] in float64 by the mixed seeds and positions [rows] of rows."""
    keys = mixed_words(seeds + (positions + 1) * signed(WEYL))
    counter = torch.arange(1, (vocab + 1) // 2 + 1, dtype=torch.int64, device=keys.device)
    word = mixed_words(keys.unsqueeze(-1) + counter * signed(WEYL))
    more = mixed_words(word + signed(WEYL))
    even = (shifted(word, 32) << 20) | shifted(more, 44)
    odd = ((word & 0xFFFFFFFF) << 20) | (shifted(more, 12) & 0xFFFFF)
    drawn = torch.stack((even, odd), -1).flatten(-2)[..., :vocab]
    uniform = 1 - (drawn.double() + 0.5) * 2.0**-52  # never 0, never 1
    return uniform.log_().neg_().log_().neg_()


def mixed(word: int) -> int:
    """The finalizer of SplitMix64, of a word of 64 bits."""
    word = (word ^ (word >> 30)) * MIX_A & _WORD
    word = (word ^ (word >> 27)) * MIX_B & _WORD
    return word ^ (word >> 31)


def mixed_words(word: Tensor) -> Tensor:
    """`mixed` of int64 tensors, which wrap like 64-bit words."""
    word = (word ^ shifted(word, 30)) * signed(MIX_A)
    word = (word ^ shifted(word, 27)) * signed(MIX_B)
    return word ^ shifted(word, 31)


def shifted(word: Tensor, bits: int) -> Tensor:
    """int64 words shifted right as if they had no sign."""
    return (word >> bits) & ((1 << (64 - bits)) - 1)


def signed(word: int) -> int:
    """A word of 64 bits as an int64."""
    return word - (1 << 64) if word >> 63 else word
