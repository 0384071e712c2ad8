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
from kernels.numba_bits import bits_at, compiled, doubles_at, floats_at, indices_at, pairs_at
from kernels.numba_team import taken, team_loop
from kernels.paged_attention.numba_heads import attend_head, insert_head

if TYPE_CHECKING:
    from torch import Tensor

    from kernels.paged_attention.reference import Heads

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


@compiled
def _insert_row(row, given, made, places, turns, numbers, gains, head):
    for key in range(places.shape[2]):
        insert_head(row, key, given, made, places, turns, numbers, gains, head)


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
    head, scale = np.empty((2, half), np.float32), np.float32(numbers[0])
    room = (
        np.empty((tokens, 2 * half), np.float32),
        np.empty(seen.shape[2:], np.float32),
        np.empty((asking // keys, positions.max() + 1), np.float32),
    )
    row = taken(arguments)
    while row < count:
        if held[1]:
            _insert_row(row, given, made, places, turns, numbers, gains, head)
        table, end = tables[owners[row]], positions[row] + 1
        for key in range(keys):
            attend_head(key, seen[row, key], kept, table, end, scale, room)
        row = taken(arguments)
