"""All layers of a step of few rows in one compiled loop, whose threads meet between products.

Weights are read once, as blocks of outputs, for all rows together. Each row has a sequence of
its own. Sums are float32, and rounded to bfloat16 where the definition rounds them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

from kernels import numba_team
from kernels.fused_linear.blocks import OUTPUTS
from kernels.fused_linear.numba_blocks import PAIR_BYTES, multiply_four, multiply_two
from kernels.fused_linear.numba_rows import norm_wide, widen_rows
from kernels.numba_bits import (
    bits_at,
    compiled,
    doubles_at,
    exponential,
    floats_at,
    indices_at,
    narrow,
    pairs_at,
    widen,
)
from kernels.numba_team import meet, taken, team_loop, team_size
from kernels.paged_attention.numba_heads import attend_head, insert_head

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

    from kernels.paged_attention.numba_rows import Rows
    from kernels.paged_attention.reference import Heads

ADDRESSES = 9  # of a layer: norm, qkv, query and key norms, out, norm, gate and up, down, cache
NUMBERS = 5  # of a layer: eps of its norm, of its scores, of query and key norms; of the other norm
STAGES = 5  # of a layer, each with its count of taken items
_COUNT_BYTES = 8
PARTS = 2  # of the inputs of a product: two streams, summed apart
WIDE, WIDE_PARTS = 1024, 4  # inputs of a product whose blocks two threads share
_ONE = np.float32(1.0)
_AS_MANY_AS_NEEDED = np.int64(1) << 40  # blocks of a cache: nothing is checked against it


def run_rows(
    x: Tensor,
    addresses: NDArray[np.int64],
    numbers: NDArray[np.float64],
    heads: Heads,
    inner: int,
    rows: Rows,
) -> None:
    """Overwrite x [rows, hidden], contiguous, by what layers make of it.

    addresses [layers, ADDRESSES], numbers [layers, NUMBERS]; heads are as many in all layers.
    """
    count, hidden = x.shape
    fresh = (heads.queries + 2 * heads.keys) * heads.dim
    counts = np.zeros(len(addresses) * STAGES + 1, np.int64)
    room = (
        x.new_empty(PARTS, count, fresh, dtype=torch.float32),
        x.new_empty(WIDE_PARTS, count, hidden, dtype=torch.float32),
        x.new_empty(count, inner, dtype=torch.float32),
        x.new_empty(count, fresh),
        x.new_empty(count, heads.queries * heads.dim),
    )
    numba_team.run(
        _run,
        x.data_ptr(),
        addresses.ctypes.data,
        numbers.ctypes.data,
        counts.ctypes.data,
        *numba_team.team(),
        *(tensor.data_ptr() for tensor in room),
        *rows.addresses,
        *rows.sizes,
        len(addresses),
        hidden,
        inner,
        heads.queries,
        heads.keys,
        heads.dim,
        is_worth=True,
    )


@compiled
def _sum_parts(sums, row, at):
    """An output of a product, rounded."""
    total = sums[0, row, at]
    for part in range(1, len(sums)):
        total += sums[part, row, at]
    return total


@compiled
def _add(sums, residual):
    for row in range(residual.shape[0]):
        for i in range(residual.shape[1]):
            residual[row, i] = widen(narrow(residual[row, i] + _sum_parts(sums, row, i)))


@compiled
def _multiply(count, weight, x, sums):
    """Rows x [rows, in] times a weight: sums [parts, rows, out], an even number of parts.

    An item is two parts of a block, which are neighbours.
    """
    (rows, inputs), (parts, _, outputs) = x.shape, sums.shape
    pairs, part_bytes = inputs // 2 // parts, 4 * rows * outputs
    between, steps = (pairs * PAIR_BYTES, 8 * pairs, part_bytes), (4 * inputs, 4 * outputs)
    item = taken(count)
    while 2 * item < outputs // OUTPUTS * parts:
        block, part = 2 * item // parts, 2 * item % parts
        multiply_two(
            rows,
            weight + (block * parts + part) * pairs * PAIR_BYTES,
            x.ctypes.data + 8 * pairs * part,
            sums.ctypes.data + part * part_bytes + 4 * OUTPUTS * block,
            between,
            steps,
            pairs,
        )
        item = taken(count)


@compiled
def _gate(count, weight, x, gated):
    """Rows x [rows, in] times a weight of gates, then of what they gate: gated [rows, inner].

    An item is two blocks of gates, the last perhaps one.
    """
    (rows, inputs), blocks = x.shape, gated.shape[1] // OUTPUTS
    block_bytes, made_bytes = inputs // 2 * PAIR_BYTES, 4 * OUTPUTS
    both = np.empty((2, rows, 2 * OUTPUTS), np.float32)
    near, steps = (block_bytes, 0, made_bytes), (4 * inputs, 2 * made_bytes)
    beyond = (blocks * block_bytes, 0, 2 * rows * made_bytes)  # from a gate to what it gates
    first = 2 * taken(count)
    while first < blocks:
        place, width = weight + first * block_bytes, min(2, blocks - first) * OUTPUTS
        to, pairs = both.ctypes.data, inputs // 2
        if width == OUTPUTS:
            multiply_two(rows, place, x.ctypes.data, to, beyond, steps, pairs)
        else:
            multiply_four(rows, place, x.ctypes.data, to, near, beyond, steps, pairs)
        for row in range(rows):
            made = gated[row, first * OUTPUTS : first * OUTPUTS + width]
            for i in range(width):
                gate, up = widen(narrow(both[0, row, i])), widen(narrow(both[1, row, i]))
                made[i] = widen(narrow(gate / (_ONE + exponential(-gate)) * up))
        first = 2 * taken(count)


@compiled
def _round_heads(sums, row, first, last, given):
    for at in range(first, last):
        given[row, at] = narrow(_sum_parts(sums, row, at))


@compiled
def _attend(count, layer, numbers, sums, addresses, sizes, turns, room):
    """Sums of queries, keys and values to what each row sees; an item is one key head of a row."""
    tables, owners, positions = turns[2:]
    asking, keys, dim, tokens = sizes
    rows, fresh = sums.shape[1:]
    shared, half = asking // keys, dim // 2
    given = bits_at(addresses[0], (rows, fresh))
    given_pairs = pairs_at(addresses[0], (rows, fresh // dim, half))
    seen = bits_at(addresses[1], (rows, keys, shared, dim))
    seen_pairs = pairs_at(addresses[1], (rows, asking, half))
    kept = bits_at(layer[8], (_AS_MANY_AS_NEEDED, 2, keys, tokens, dim))
    kept_pairs = pairs_at(layer[8], (_AS_MANY_AS_NEEDED, 2, keys, tokens, half))
    gains, scale = (layer[2], layer[3]), np.float32(numbers[1])
    item = taken(count)
    while item < rows * keys:
        row, key = item // keys, item % keys
        _round_heads(sums, row, key * shared * dim, (key + 1) * shared * dim, given)
        for first in (asking + key, asking + keys + key):
            _round_heads(sums, row, first * dim, (first + 1) * dim, given)
        insert_head(
            row, key, given_pairs, seen_pairs, kept_pairs, turns, numbers[1:4], gains, room[0]
        )
        table, end = tables[owners[row]], positions[row] + 1
        attend_head(key, seen[row, key], kept, table, end, scale, room[1:])
        item = taken(count)


@compiled
def _narrow(given, narrowed):
    for row in range(given.shape[0]):
        for i in range(given.shape[1]):
            narrowed[row, i] = narrow(given[row, i])


@compiled
def _turns(held):
    """How rows turn and where they lie, from the addresses and sizes of `Rows`."""
    count, blocks, half = held[5], held[7], held[13] // 2
    owners, positions = indices_at(held[3], (count,)), indices_at(held[4], (count,))
    return (
        floats_at(held[0], (count, half)),
        floats_at(held[1], (count, half)),
        indices_at(held[2], (owners[count - 1] + 1, blocks)),
        owners,
        positions,
    )


@compiled
def _meet(team, number):
    place, threads, sleep = team
    meet(place, number, threads, sleep)


@compiled
def _run_layer(number, counts, layer, numbers, shared, own, turns, team):
    """One layer of the residual, of which each thread has its own, as it has of what it norms."""
    fresh, sums, down, gated, seen, rounded, sizes = shared
    residual, normed, wide, room = own
    count, met = counts + number * STAGES * _COUNT_BYTES, number * STAGES
    norm_wide(residual, layer[0], numbers[0], normed)
    _multiply(count, layer[1], normed, fresh)
    _meet(team, met + 1)
    _attend(count + _COUNT_BYTES, layer, numbers, fresh, rounded, sizes, turns, room)
    _meet(team, met + 2)
    widen_rows(seen, wide)
    _multiply(count + 2 * _COUNT_BYTES, layer[4], wide, sums)
    _meet(team, met + 3)
    _add(sums, residual)
    norm_wide(residual, layer[5], numbers[4], normed)
    _gate(count + 3 * _COUNT_BYTES, layer[6], normed, gated)
    _meet(team, met + 4)
    _multiply(count + 4 * _COUNT_BYTES, layer[7], gated, down)
    _meet(team, met + 5)
    _add(down, residual)


@compiled
def _own_room(sizes, hidden, turns):
    """What each thread has for itself."""
    (asking, keys, dim, tokens), rows = sizes, len(turns[3])
    heads = (
        np.empty((2, dim // 2), np.float32),
        np.empty((tokens, dim), np.float32),
        np.empty((asking // keys, dim), np.float32),
        np.empty((asking // keys, turns[4].max() + 1), np.float32),
    )
    residual, normed = np.empty((rows, hidden), np.float32), np.empty((rows, hidden), np.float32)
    return residual, normed, np.empty((rows, asking * dim), np.float32), heads


@team_loop
def _run(arguments):
    held = indices_at(arguments, (26,))
    counts, turns, rows = held[4], _turns(held[12:]), held[17]
    layers, hidden, inner, asking, keys, dim = held[20:26]
    sizes = (asking, keys, dim, held[18])
    shared = (
        floats_at(held[7], (PARTS, rows, (asking + 2 * keys) * dim)),
        floats_at(held[8], (PARTS, rows, hidden)),
        floats_at(held[8], (WIDE_PARTS if inner > WIDE else PARTS, rows, hidden)),
        floats_at(held[9], (rows, inner)),
        bits_at(held[11], (rows, asking * dim)),
        held[10:12],
        sizes,
    )
    addresses = indices_at(held[2], (layers, ADDRESSES))
    numbers = doubles_at(held[3], (layers, NUMBERS))
    x, own = bits_at(held[1], (rows, hidden)), _own_room(sizes, hidden, turns)
    team = (counts + layers * STAGES * _COUNT_BYTES, team_size(held[5]), held[6])
    widen_rows(x, own[0])
    for number in range(layers):
        _run_layer(number, counts, addresses[number], numbers[number], shared, own, turns, team)
    if taken(arguments) == 0:
        _narrow(own[0], x)
