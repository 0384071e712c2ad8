"""Seeded choice on a CPU in one pass over the logits, which draws only for what may win.

The noise of a token is -log(-log(1 - v)), and -log(1 - v) is at least v: where a token's score
less log v, of the first 32 bits of v, does not reach the best so far, the token cannot win. That
is asked of neighbours by vector instructions; the few that are left are raced in float64.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from kernels.numba_bits import (
    compiled,
    doubles_at,
    exponential,
    floats_at,
    indices_at,
    number_of,
)
from kernels.sampling import reference
from kernels.sampling.reference import GREEDY_BELOW, MIX_A, MIX_B, WEYL, Choice, SamplingRules

_WEYL, _MIX_A, _MIX_B = np.uint64(WEYL), np.uint64(MIX_A), np.uint64(MIX_B)
_S12, _S20, _S27, _S30, _S31, _S32, _S44 = (
    np.uint64(bits) for bits in (12, 20, 27, 30, 31, 32, 44)
)
_HALF_WORD, _LOW_20 = np.uint64(0xFFFFFFFF), np.uint64(0xFFFFF)
_MARGIN = np.float32(1.001 * 2.0**32)  # for what float32 rounds
_SIGN, _MAGNITUDE = np.int32(31), np.int32(0x7FFFFFFF)
_INFINITY, _MINUS_INFINITY = np.int32(0x7F800000), np.int32(-0x7F800001)  # as they are ordered
GROUP = 32  # words that are asked together, two tokens each


def choose_highest(logits: Tensor) -> Choice:
    """See kernels.sampling.reference."""
    if logits.dtype is not torch.float32:
        return reference.choose_highest(logits)
    rows, vocab = logits.shape
    logits = logits.contiguous()
    token_ids, finite = logits.new_empty(2, rows, dtype=torch.int64)
    _choose_highest((logits.data_ptr(), token_ids.data_ptr(), finite.data_ptr()), rows, vocab)
    return Choice(token_ids, finite.bool())


def choose_tokens(logits: Tensor, positions: Tensor, rules: SamplingRules) -> Choice:
    """See kernels.sampling.reference; rows that leave tokens out are left to the definition."""
    if rules.narrowing is not None or logits.dtype is not torch.float32:
        return reference.choose_tokens(logits, positions, rules)
    rows, vocab = logits.shape
    logits, positions = logits.contiguous(), positions.contiguous()
    token_ids = positions.new_empty(rows)
    finite = positions.new_empty(rows)
    held = logits, positions, rules.temperatures.contiguous(), rules.seeds.contiguous()
    addresses = tuple(x.data_ptr() for x in (*held, token_ids, finite))
    _choose(addresses, rows, vocab)
    return Choice(token_ids, finite.bool())


@compiled
def _choose_highest(addresses, rows, vocab):
    given = floats_at(addresses[0], (rows, vocab))
    chosen, finite = indices_at(addresses[1], (rows,)), indices_at(addresses[2], (rows,))
    for row in range(rows):
        highest = _highest(given[row])
        finite[row] = highest >= 0 and np.isfinite(given[row, highest])
        chosen[row] = max(highest, 0)


@compiled
def _choose(addresses, rows, vocab):
    given = floats_at(addresses[0], (rows, vocab))
    at, seeds = indices_at(addresses[1], (rows,)), indices_at(addresses[3], (rows,))
    temperatures = doubles_at(addresses[2], (rows,))
    chosen, finite = indices_at(addresses[4], (rows,)), indices_at(addresses[5], (rows,))
    _choose_highest((addresses[0], *addresses[4:6]), rows, vocab)
    for row in range(rows):
        if finite[row] and temperatures[row] >= GREEDY_BELOW:
            key = _mixed(np.uint64(seeds[row]) + np.uint64(at[row] + 1) * _WEYL)
            chosen[row] = _race(given[row], chosen[row], temperatures[row], key)


@compiled
def _highest(logits):
    """The first of the highest; -1 where one is not a number.

    Ordered as whole numbers, of which vector instructions take the most: NaN lie beyond infinity.
    """
    words = logits.view(np.int32)
    most = least = _ordered(words[0])
    for token in range(1, len(words)):
        place = _ordered(words[token])
        most, least = max(most, place), min(least, place)
    if most > _INFINITY or least < _MINUS_INFINITY:
        return -1
    return _first_of(logits, number_of(_ordered(most)))


@compiled
def _ordered(word):
    """The bits of a float32 as a number that is greater for a greater float, and back again."""
    return np.int32(word ^ ((word >> _SIGN) & _MAGNITUDE))


@compiled
def _first_of(logits, value):
    for first in range(0, len(logits), GROUP):
        group, is_here = logits[first : first + GROUP], False
        for one in group:
            is_here |= one == value
        if is_here:
            for token in range(len(group)):
                if group[token] == value:
                    return first + token
    return -1


@compiled
def _race(logits, favourite, temperature, key):
    """The token whose score and noise sum to the most, the lowest of equal ones."""
    vocab = len(logits)
    best, winner = _raced(logits[favourite], favourite, temperature, key), favourite
    words = (vocab + 1) // 2
    for first in range(0, words, GROUP):
        last = min(first + GROUP, words)
        ahead = best - np.float64(logits[favourite]) / temperature
        if _may_win(logits, (first, min(last, vocab // 2)), favourite, temperature, key, ahead):
            for token in range(2 * first, min(2 * last, vocab)):
                found = _raced(logits[token], token, temperature, key)
                if found > best or (found == best and token < winner):
                    best, winner = found, token
    if vocab % 2:
        found = _raced(logits[vocab - 1], vocab - 1, temperature, key)
        if found > best:
            winner = vocab - 1
    return winner


@compiled
def _may_win(logits, words, favourite, temperature, key, ahead):
    """Whether a token of some words can reach what is `ahead` of the favourite's score."""
    scale, most = np.float32(1.0 / temperature), logits[favourite]
    bar, found = np.float32(ahead), False
    for word in range(words[0], words[1]):
        drawn = _mixed(key + np.uint64(word + 1) * _WEYL)
        even = np.float32(np.int64(drawn >> _S32))
        odd = np.float32(np.int64(drawn & _HALF_WORD))
        found |= even <= exponential((logits[2 * word] - most) * scale - bar) * _MARGIN
        found |= odd <= exponential((logits[2 * word + 1] - most) * scale - bar) * _MARGIN
    return found


@compiled
def _raced(logit, token, temperature, key):
    word = _mixed(key + np.uint64(token // 2 + 1) * _WEYL)
    more = _mixed(word + _WEYL)
    if token % 2:
        drawn = ((word & _HALF_WORD) << _S20) | ((more >> _S12) & _LOW_20)
    else:
        drawn = ((word >> _S32) << _S20) | (more >> _S44)
    uniform = 1.0 - (np.float64(np.int64(drawn)) + 0.5) * 2.0**-52
    return np.float64(logit) / temperature - np.log(-np.log(uniform))


@compiled
def _mixed(word):
    """See kernels.sampling.reference.mixed."""
    word = (word ^ (word >> _S30)) * _MIX_A
    word = (word ^ (word >> _S27)) * _MIX_B
    return word ^ (word >> _S31)
