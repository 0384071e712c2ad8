"""Causal attention over paged caches of bfloat16 on a CPU.

Sequences with few fresh rows read their blocks where they lie, row after row. The blocks of
those with more are copied side by side, head after head, and their rows padded to the longest,
for the library's attention. What depends on the step alone is made once a step.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import torch
from torch import Tensor
from torch.nn import functional

from kernels.paged_attention.numba_rows import (
    Rows,
    attend_in_place,
    attend_singles,
    insert_heads,
)
from kernels.paged_attention.reference import Context, Heads

if TYPE_CHECKING:
    from kernels.rotary.reference import Rotation

FEW = 8  # rows of a sequence: with more, reading each key once a row costs more than copying
MOST_PADDED = 1.25  # rows with padding among them, as a share of those without


def attend_fresh(
    qkv: Tensor, heads: Heads, turn: Rotation, cache: Tensor, context: Context
) -> Tensor:
    """See kernels.paged_attention.reference."""
    if len(qkv) == 0:
        return qkv.new_empty(0, heads.queries * heads.dim)
    step, qkv = _step(context, turn, heads.keys), qkv.contiguous()
    if len(context.lengths) == len(context.positions):
        return attend_singles(qkv, heads, cache, step.rows)
    queries = insert_heads(qkv, heads, cache, step.rows)
    parts = [
        attend_in_place(queries[run.at], heads, cache, run.rows)
        if run.copied is None
        else _attend_copied(queries[run.at], heads, cache, run)
        for run in step.runs
    ]
    return parts[0] if len(parts) == 1 else torch.cat(parts)


def rows_of(context: Context, turn: Rotation) -> Rows:
    """The rows of a step as compiled loops read them."""
    return Rows(
        cosines=turn.cos[:, ::2].contiguous(),
        sines=turn.sin[:, 1::2].contiguous(),
        tables=context.table.contiguous(),
        owners=context.owner,
        positions=context.positions,
        block_tokens=context.block_tokens,
    )


@dataclass(frozen=True, eq=False)
class _Copied:
    """Neighbouring sequences of about as many rows, padded to the longest."""

    padded: Tensor  # [sequences, longest] which row stands where; any for padding
    is_row: Tensor | None  # [sequences, longest]; None: all are
    lines: Tensor  # of keys, then of values: a block of one head each, sequence after sequence
    seen: Tensor  # [sequences, 1, longest, keys]


@dataclass(frozen=True, eq=False)
class _Run:
    """Neighbouring sequences that attend together."""

    at: slice
    rows: Rows
    copied: _Copied | None  # None: they have few rows each


@dataclass(frozen=True, eq=False)
class _Step:
    """What all layers of a step share."""

    rows: Rows
    runs: tuple[_Run, ...]  # in order


_STEPS: WeakKeyDictionary[Context, _Step] = WeakKeyDictionary()


def _step(context: Context, turn: Rotation, key_heads: int) -> _Step:
    found = _STEPS.get(context)
    if found is None:
        rows = rows_of(context, turn)
        runs = tuple(_run(context, rows, key_heads, sequences) for sequences in _runs(context))
        found = _STEPS[context] = _Step(rows, runs)
    return found


def _runs(context: Context) -> list[range]:
    """Neighbours with few rows, and those with more whose padding costs little."""
    sizes = [b - a for a, b in pairwise(context.starts)]
    found: list[range] = []
    for number, size in enumerate(sizes):
        if found and _belong_together([*(sizes[r] for r in found[-1]), size]):
            found[-1] = range(found[-1].start, number + 1)
        else:
            found.append(range(number, number + 1))
    return found


def _belong_together(sizes: list[int]) -> bool:
    if min(sizes) <= FEW or max(sizes) <= FEW:
        return max(sizes) <= FEW
    return max(sizes) * len(sizes) <= MOST_PADDED * sum(sizes)


def _run(context: Context, rows: Rows, key_heads: int, run: range) -> _Run:
    at = slice(context.starts[run.start], context.starts[run.stop])
    part = rows.part(at, run)
    sizes = torch.tensor(context.starts[run.start : run.stop + 1]).diff()
    if int(sizes.max()) <= FEW:
        return _Run(at, part, None)
    place, ends = torch.arange(int(sizes.max())), sizes.cumsum(0)
    is_row = place < sizes[:, None]
    padded = ((ends - sizes)[:, None] + place).clamp(max=len(part.positions) - 1)
    longest = max(context.lengths[run.start : run.stop])
    blocks = torch.arange(-(-longest // context.block_tokens))
    # Behind its end a sequence reads a block of its own, unseen: others may hold NaN.
    last = part.positions[ends - 1] // context.block_tokens
    table = part.tables.gather(1, torch.minimum(blocks, last[:, None]))
    planes = torch.arange(2 * key_heads).view(2, 1, -1, 1)
    lines = table[None, :, None, :] * 2 * key_heads + planes
    keys = torch.arange(len(blocks) * context.block_tokens)
    seen = (keys <= part.positions[padded][:, :, None]).unsqueeze(1)
    return _Run(at, part, _Copied(padded, None if is_row.all() else is_row, lines.flatten(), seen))


def _attend_copied(queries: Tensor, heads: Heads, cache: Tensor, run: _Run) -> Tensor:
    """Rows [rows, queries * dim] of a run: the same shape."""
    copied = run.copied
    assert copied is not None
    count, longest = copied.padded.shape
    blocks = cache.view(-1, run.rows.block_tokens * heads.dim).index_select(0, copied.lines)
    keys, values = blocks.view(2, count, heads.keys, -1, heads.dim)
    asked = queries if copied.is_row is None else queries[copied.padded]
    out = functional.scaled_dot_product_attention(
        asked.view(count, longest, -1, heads.dim).transpose(1, 2),
        keys,
        values,
        attn_mask=copied.seen,
        scale=heads.scale,
        enable_gqa=True,
    )
    out = out.transpose(1, 2).flatten(2)
    return out.flatten(0, 1) if copied.is_row is None else out[copied.is_row]
