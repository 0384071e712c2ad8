"""One row of queries, keys and values on a CPU: norm, rotate, store, attend, in compiled loops.

Sums and exponentials are float32.
"""

from __future__ import annotations

import numpy as np

from kernels.numba_bits import compiled, exponential, floats_at, high, joined, low, narrow, widen

_ONE = np.float32(1.0)
_ZERO = np.float32(0.0)
_LOWEST = np.float32(-np.inf)


@compiled
def _ends_opened_block(owners, row, offset, tokens):
    """Whether a row is the last in a block that got its first row in this step.

    What such a block held before would meet a weight of zero, and nothing times NaN is NaN.
    """
    start = row - offset
    is_opened = start >= 0 and owners[start] == owners[row]
    is_last = row + 1 == len(owners) or owners[row + 1] != owners[row]
    return is_opened and is_last and offset + 1 < tokens


@compiled
def _take(pairs, gain, eps, head):
    """The even and the odd values of a head [2, dim / 2], normed where there is a gain."""
    half = len(pairs)
    for i in range(half):
        head[0, i], head[1, i] = low(pairs[i]), high(pairs[i])
    if gain:
        weight = floats_at(gain, (half, 2))
        squares = _ZERO
        for i in range(half):
            squares += head[0, i] * head[0, i] + head[1, i] * head[1, i]
        scale = _ONE / np.sqrt(squares / np.float32(2 * half) + np.float32(eps))
        for i in range(half):
            head[0, i] = widen(narrow(head[0, i] * scale * weight[i, 0]))
            head[1, i] = widen(narrow(head[1, i] * scale * weight[i, 1]))


@compiled
def _turn(head, cosine, sine, turned):
    for i in range(len(turned)):
        even, odd = head[0, i], head[1, i]
        turned[i] = joined(
            narrow(even * cosine[i] - odd * sine[i]), narrow(odd * cosine[i] + even * sine[i])
        )


@compiled
def _widen(given, wide):
    for row in range(given.shape[0]):
        for i in range(given.shape[1]):
            wide[row, i] = widen(given[row, i])


@compiled
def _narrow(given, narrowed):
    for row in range(given.shape[0]):
        for i in range(given.shape[1]):
            narrowed[row, i] = narrow(given[row, i])


@compiled
def _score(asked, keys, scores):
    """Products of queries [queries, dim] and keys [keys, dim]: scores [queries, keys].

    Four keys at once share the loads of a query.
    """
    count, dim = keys.shape
    for query in range(asked.shape[0]):
        for group in range(count // 4):
            at = 4 * group
            a = b = c = d = _ZERO
            for i in range(dim):
                value = asked[query, i]
                a += keys[at, i] * value
                b += keys[at + 1, i] * value
                c += keys[at + 2, i] * value
                d += keys[at + 3, i] * value
            scores[query, at], scores[query, at + 1] = a, b
            scores[query, at + 2], scores[query, at + 3] = c, d
        for at in range(count // 4 * 4, count):
            total = _ZERO
            for i in range(dim):
                total += keys[at, i] * asked[query, i]
            scores[query, at] = total


@compiled
def _softmax(scores):
    highest, total = _LOWEST, _ZERO
    for at in range(len(scores)):
        highest = max(highest, scores[at])
    for at in range(len(scores)):
        scores[at] = exponential(scores[at] - highest)
        total += scores[at]
    for at in range(len(scores)):
        scores[at] /= total


@compiled
def _mix(weights, values, mixed):
    """Add values [keys, dim] by the weights of each query [queries, keys] to mixed [queries, dim].

    Four values at once share the loads and stores of a sum.
    """
    count, dim = values.shape
    for query in range(mixed.shape[0]):
        for group in range(count // 4):
            at = 4 * group
            a, b = weights[query, at], weights[query, at + 1]
            c, d = weights[query, at + 2], weights[query, at + 3]
            for i in range(dim):
                mixed[query, i] += (
                    a * values[at, i]
                    + b * values[at + 1, i]
                    + c * values[at + 2, i]
                    + d * values[at + 3, i]
                )
        for at in range(count // 4 * 4, count):
            weight = weights[query, at]
            for i in range(dim):
                mixed[query, i] += weight * values[at, i]


@compiled
def insert_head(row, key, given, made, places, turns, numbers, gains, head) -> None:
    """What of one fresh row of given [T, heads, dim / 2] belongs to one key head.

    Its queries go to made, the rest to its block.
    """
    cosines, sines, tables, owners, positions = turns
    asking, keys, tokens = made.shape[1], places.shape[2], places.shape[3]
    shared, offset = asking // keys, positions[row] % tokens
    place = places[tables[owners[row], positions[row] // tokens]]
    for one in range(key * shared, (key + 1) * shared):
        _take(given[row, one], gains[0], numbers[1], head)
        _turn(head, cosines[row], sines[row], made[row, one])
    _take(given[row, asking + key], gains[1], numbers[2], head)
    _turn(head, cosines[row], sines[row], place[0, key, offset])
    place[1, key, offset] = given[row, asking + keys + key]
    if _ends_opened_block(owners, row, offset, tokens):
        place[:, key, offset + 1 :] = 0


@compiled
def attend_head(key, seen, places, table, end, scale, room) -> None:
    """Queries [sharing it, dim] of one row and key head, which what they see replaces."""
    wide, asked, scores = room
    tokens = places.shape[3]
    _widen(seen, asked)
    asked *= scale
    for first in range(0, end, tokens):
        last = min(first + tokens, end)
        _widen(places[table[first // tokens], 0, key, : last - first], wide)
        _score(asked, wide[: last - first], scores[:, first:last])
    for query in range(len(seen)):
        _softmax(scores[query, :end])
    asked[:] = _ZERO
    for first in range(0, end, tokens):
        last = min(first + tokens, end)
        _widen(places[table[first // tokens], 1, key, : last - first], wide)
        _mix(scores[:, first:last], wide[: last - first], asked)
    _narrow(asked, seen)
