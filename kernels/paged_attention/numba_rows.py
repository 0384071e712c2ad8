"""Fresh rows on a CPU: heads normed, rotated and stored in one pass, and single rows attending.

Blocks are read where they lie. Sums and exponentials are float32.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from kernels.numba_bits import (
    bits_at,
    compiled,
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

if TYPE_CHECKING:
    from torch import Tensor

    from kernels.paged_attention.reference import Heads

_ONE = np.float32(1.0)
_ZERO = np.float32(0.0)
_LOWEST = np.float32(-np.inf)


@dataclass(frozen=True, eq=False)
class Rows:
    """T neighbouring fresh rows: how they turn, where they belong, and what they see."""

    cosines: Tensor  # [T, dim / 2], contiguous float32
    sines: Tensor
    tables: Tensor  # [sequences, blocks], contiguous
    owners: Tensor  # [T] among `tables`
    positions: Tensor  # [T]
    block_tokens: int

    @cached_property
    def addresses(self) -> tuple[int, int, int, int, int]:
        """Of what the loops read."""
        read = self.cosines, self.sines, self.tables, self.owners, self.positions
        cosines, sines, tables, owners, positions = (x.data_ptr() for x in read)
        return cosines, sines, tables, owners, positions

    def sizes(self, heads: Heads) -> tuple[int, int, int, int, int, int]:
        """T, query heads, key heads, dim, tokens a block, and blocks a table."""
        shape = heads.queries, heads.keys, heads.dim
        return (len(self.owners), *shape, self.block_tokens, self.tables.shape[1])


def insert_heads(qkv: Tensor, heads: Heads, cache: Tensor, rows: Rows) -> Tensor:
    """kernels.paged_attention.reference.insert_heads of bfloat16 rows [T, ...].

    A block that gets its first row is emptied before. Returns queries [T, queries * dim].
    """
    queries = qkv.new_empty(len(qkv), heads.queries * heads.dim)
    addresses = qkv.data_ptr(), cache.data_ptr(), queries.data_ptr()
    _insert(addresses, len(cache), rows.addresses, rows.sizes(heads), _norms(heads))
    return queries


def attend_singles(qkv: Tensor, heads: Heads, cache: Tensor, rows: Rows) -> Tensor:
    """kernels.paged_attention.reference.attend_fresh of sequences with one fresh row each."""
    seen = qkv.new_empty(len(qkv), heads.queries * heads.dim)
    addresses = qkv.data_ptr(), cache.data_ptr(), seen.data_ptr()
    sizes = rows.sizes(heads)
    _attend_fresh(addresses, len(cache), rows.addresses, sizes, _norms(heads), heads.scale)
    return seen


def _norms(heads: Heads) -> tuple[int, float, int, float]:
    """Gain and what is added to the mean square, of queries and of keys; 0 for no norm."""
    query, key = heads.query_norm, heads.key_norm
    if query is None or key is None:
        return 0, 0.0, 0, 0.0
    return query.weight.data_ptr(), query.eps, key.weight.data_ptr(), key.eps


@compiled
def _insert(addresses, cache_rows, row_addresses, sizes, norms):
    qkv, cache, queries = addresses
    cos, sin, tables, owners, positions = row_addresses
    count, asking, keys, dim, tokens, blocks = sizes
    half = dim // 2
    given = pairs_at(qkv, (count, asking + 2 * keys, half))
    made = pairs_at(queries, (count, asking, half))
    places = pairs_at(cache, (cache_rows // tokens, 2, keys, tokens, half))
    cosines, sines = floats_at(cos, (count, half)), floats_at(sin, (count, half))
    sequences = indices_at(owners, (count,))
    at = indices_at(positions, (count,))
    table = indices_at(tables, (sequences[count - 1] + 1, blocks))
    head = np.empty((2, half), np.float32)
    for row in range(count):
        block, offset = table[sequences[row], at[row] // tokens], at[row] % tokens
        if offset == 0:
            places[block] = 0
        for one in range(asking):
            _take(given[row, one], norms[0], norms[1], head)
            _turn(head, cosines[row], sines[row], made[row, one])
        for one in range(keys):
            _take(given[row, asking + one], norms[2], norms[3], head)
            _turn(head, cosines[row], sines[row], places[block, 0, one, offset])
            places[block, 1, one, offset] = given[row, asking + keys + one]


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
def _attend_fresh(addresses, cache_rows, row_addresses, sizes, norms, scale):
    qkv, cache, seen = addresses
    count, asking, keys, dim, tokens, blocks = sizes
    _insert((qkv, cache, seen), cache_rows, row_addresses, sizes, norms)
    rows = bits_at(seen, (count, keys, asking // keys, dim))  # queries, until they have attended
    places = bits_at(cache, (cache_rows // tokens, 2, keys, tokens, dim))
    ends = indices_at(row_addresses[4], (count,)) + 1
    tables = indices_at(row_addresses[2], (count, blocks))
    wide = np.empty((tokens, dim), np.float32)
    asked = np.empty(rows.shape[1:], np.float32)
    scores = np.empty((keys, asking // keys, ends.max()), np.float32)
    for row in range(count):
        end = ends[row]
        _widen(rows[row].reshape(asking, dim), asked.reshape(asking, dim))
        asked *= np.float32(scale)
        for first in range(0, end, tokens):
            last = min(first + tokens, end)
            block = places[tables[row, first // tokens], 0]
            for head in range(keys):
                _widen(block[head, : last - first], wide)
                _score(asked[head], wide[: last - first], scores[head, :, first:last])
        for head in range(keys):
            for query in range(asking // keys):
                _softmax(scores[head, query, :end])
        asked[:] = _ZERO
        for first in range(0, end, tokens):
            last = min(first + tokens, end)
            block = places[tables[row, first // tokens], 1]
            for head in range(keys):
                _widen(block[head, : last - first], wide)
                _mix(scores[head, :, first:last], wide[: last - first], asked[head])
        _narrow(asked.reshape(asking, dim), rows[row].reshape(asking, dim))


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
