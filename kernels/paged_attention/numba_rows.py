"""Fresh rows on a CPU: heads normed, rotated and stored in one pass, and attending in place.

Sums and exponentials are float32.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from kernels import numba_team
from kernels.numba_bits import (
    bits_at,
    compiled,
    doubles_at,
    exponential,
    floats_at,
    high,
    indices_at,
    joined,
    low,
    narrow,
    pairs_at,
    widen,
)
from kernels.numba_team import taken, team_loop

if TYPE_CHECKING:
    from torch import Tensor

    from kernels.paged_attention.reference import Heads

_ONE = np.float32(1.0)
_ZERO = np.float32(0.0)
_LOWEST = np.float32(-np.inf)
_AS_MANY_AS_NEEDED = np.int64(1) << 40  # blocks of a cache: nothing is checked against it
ROWS = 8  # that a thread takes at once to insert
WORTH_SHARING_ROWS = 100
WORTH_SHARING_KEYS = 1500  # seen by all rows, a key head


@dataclass(frozen=True, eq=False)
class Rows:
    """T neighbouring fresh rows: how they turn, where they belong, and what they see."""

    cosines: Tensor  # [T, dim / 2], contiguous float32
    sines: Tensor
    tables: Tensor  # [sequences, blocks], contiguous
    owners: Tensor  # [T] among `tables`, ascending
    positions: Tensor  # [T], rising by one within a sequence
    block_tokens: int

    def part(self, at: slice, sequences: range) -> Rows:
        """Those of some neighbouring sequences."""
        return Rows(
            cosines=self.cosines[at],
            sines=self.sines[at],
            tables=self.tables[sequences.start : sequences.stop],
            owners=self.owners[at] - sequences.start,
            positions=self.positions[at],
            block_tokens=self.block_tokens,
        )

    @cached_property
    def addresses(self) -> tuple[int, ...]:
        """Of what the loops read."""
        read = self.cosines, self.sines, self.tables, self.owners, self.positions
        return tuple(x.data_ptr() for x in read)

    @cached_property
    def keys_seen(self) -> int:
        """By all rows together."""
        return int(self.positions.sum()) + len(self.positions)

    @property
    def sizes(self) -> tuple[int, int, int]:
        """T, tokens a block, and blocks a table."""
        return len(self.owners), self.block_tokens, self.tables.shape[1]


def insert_heads(qkv: Tensor, heads: Heads, cache: Tensor, rows: Rows) -> Tensor:
    """kernels.paged_attention.reference.insert_heads of bfloat16 rows [T, ...].

    What of a block lies behind its first fresh rows is emptied. Returns queries
    [T, queries * dim].
    """
    queries = qkv.new_empty(len(qkv), heads.queries * heads.dim)
    is_worth = len(qkv) > WORTH_SHARING_ROWS
    _run(_insert, qkv, queries, heads, cache, rows, is_worth=is_worth)
    return queries


def attend_in_place(queries: Tensor, heads: Heads, cache: Tensor, rows: Rows) -> Tensor:
    """Every row [T, queries * dim] reads all that it sees; overwrites and returns `queries`."""
    _run(_attend, None, queries, heads, cache, rows, is_worth=_is_worth(heads, rows))
    return queries


def attend_singles(qkv: Tensor, heads: Heads, cache: Tensor, rows: Rows) -> Tensor:
    """kernels.paged_attention.reference.attend_fresh where each row has its own sequence."""
    seen = qkv.new_empty(len(qkv), heads.queries * heads.dim)
    _run(_attend, qkv, seen, heads, cache, rows, is_worth=_is_worth(heads, rows))
    return seen


def _is_worth(heads: Heads, rows: Rows) -> bool:
    return rows.keys_seen * heads.keys > WORTH_SHARING_KEYS


def _run(
    loop: Any,  # noqa: ANN401  numba's CFunc
    given: Tensor | None,
    made: Tensor,
    heads: Heads,
    cache: Tensor,
    rows: Rows,
    *,
    is_worth: bool,
) -> None:
    """Run a loop of this file. Rows that are not given have been inserted."""
    query, key = heads.query_norm, heads.key_norm
    gains, eps = (0, 0), (0.0, 0.0)
    if query is not None and key is not None:
        gains = query.weight.data_ptr(), key.weight.data_ptr()
        eps = query.eps, key.eps
    numbers = array("d", (heads.scale, *eps))
    numba_team.run(
        loop,
        0 if given is None else given.data_ptr(),
        made.data_ptr(),
        cache.data_ptr(),
        numbers.buffer_info()[0],
        *gains,
        *rows.addresses,
        *rows.sizes,
        heads.queries,
        heads.keys,
        heads.dim,
        is_worth=is_worth,
    )


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
def _insert_row(row, given, made, places, turns, numbers, gains, head):
    """One fresh row of given [T, heads, dim / 2]: its queries to made, the rest to its block."""
    cosines, sines, tables, owners, positions = turns
    asking, keys, tokens = made.shape[1], places.shape[2], places.shape[3]
    offset = positions[row] % tokens
    place = places[tables[owners[row], positions[row] // tokens]]
    for one in range(asking):
        _take(given[row, one], gains[0], numbers[1], head)
        _turn(head, cosines[row], sines[row], made[row, one])
    for one in range(keys):
        _take(given[row, asking + one], gains[1], numbers[2], head)
        _turn(head, cosines[row], sines[row], place[0, one, offset])
        place[1, one, offset] = given[row, asking + keys + one]
    if _ends_opened_block(owners, row, offset, tokens):
        place[:, :, offset + 1 :] = 0


@compiled
def _attend_row(seen, places, table, end, scale, room):
    """Queries [key heads, sharing it, dim] of one row, which what they see replaces."""
    wide, asked, scores = room
    keys, shared, dim = seen.shape
    tokens = places.shape[3]
    _widen(seen.reshape(keys * shared, dim), asked.reshape(keys * shared, dim))
    asked *= scale
    for first in range(0, end, tokens):
        last = min(first + tokens, end)
        block = places[table[first // tokens], 0]
        for head in range(keys):
            _widen(block[head, : last - first], wide)
            _score(asked[head], wide[: last - first], scores[head, :, first:last])
    for head in range(keys):
        for query in range(shared):
            _softmax(scores[head, query, :end])
    asked[:] = _ZERO
    for first in range(0, end, tokens):
        last = min(first + tokens, end)
        block = places[table[first // tokens], 1]
        for head in range(keys):
            _widen(block[head, : last - first], wide)
            _mix(scores[head, :, first:last], wide[: last - first], asked[head])
    _narrow(asked.reshape(keys * shared, dim), seen.reshape(keys * shared, dim))


@compiled
def _views(arguments):
    """Fresh rows, queries, the cache, and how rows turn and where they lie: in pairs of values."""
    held = indices_at(arguments, (18,))
    count, tokens, blocks, half = held[12], held[13], held[14], held[17] // 2
    asking, keys = held[15], held[16]
    owners, positions = indices_at(held[10], (count,)), indices_at(held[11], (count,))
    turns = (
        floats_at(held[7], (count, half)),
        floats_at(held[8], (count, half)),
        indices_at(held[9], (owners[count - 1] + 1, blocks)),
        owners,
        positions,
    )
    given = pairs_at(held[1], (count, asking + 2 * keys, half))
    made = pairs_at(held[2], (count, asking, half))
    places = pairs_at(held[3], (_AS_MANY_AS_NEEDED, 2, keys, tokens, half))
    return given, made, places, turns, doubles_at(held[4], (3,)), (held[5], held[6])


@team_loop
def _insert(arguments):
    given, made, places, turns, numbers, gains = _views(arguments)
    head = np.empty((2, made.shape[2]), np.float32)
    first = taken(arguments) * ROWS
    while first < len(made):
        for row in range(first, min(first + ROWS, len(made))):
            _insert_row(row, given, made, places, turns, numbers, gains, head)
        first = taken(arguments) * ROWS


@team_loop
def _attend(arguments):
    """Rows are inserted before where they are given: then no other may see them."""
    held = indices_at(arguments, (18,))
    given, made, places, turns, numbers, gains = _views(arguments)
    tables, owners, positions = turns[2:]
    count, asking, half = made.shape
    keys, tokens = places.shape[2], places.shape[3]
    seen = bits_at(held[2], (count, keys, asking // keys, 2 * half))
    kept = bits_at(held[3], (_AS_MANY_AS_NEEDED, 2, keys, tokens, 2 * half))
    head = np.empty((2, half), np.float32)
    room = (
        np.empty((tokens, 2 * half), np.float32),
        np.empty(seen.shape[1:], np.float32),
        np.empty((keys, asking // keys, positions.max() + 1), np.float32),
    )
    row = taken(arguments)
    while row < count:
        if held[1]:
            _insert_row(row, given, made, places, turns, numbers, gains, head)
        table, end = tables[owners[row]], positions[row] + 1
        _attend_row(seen[row], kept, table, end, np.float32(numbers[0]), room)
        row = taken(arguments)
