"""Causal attention over paged caches of bfloat16 on a CPU.

Sequences with one row each read their blocks where they lie. Where a sequence has more, its
blocks are copied side by side, head after head, for the library's attention. What depends on
the step alone is made once a step.
"""

from __future__ import annotations

from dataclasses import dataclass
from weakref import WeakKeyDictionary

import torch
from torch import Tensor
from torch.nn import functional

from kernels.paged_attention.numba_rows import Rows, attend_singles, insert_heads
from kernels.paged_attention.reference import Context, Heads
from kernels.rotary.reference import Rotation


def attend_fresh(
    qkv: Tensor, heads: Heads, turn: Rotation, cache: Tensor, context: Context
) -> Tensor:
    """See kernels.paged_attention.reference."""
    qkv = qkv.contiguous()
    parts = [_attend(qkv[run.at], heads, cache, run) for run in _runs(context, turn, heads.keys)]
    return (
        parts[0] if len(parts) == 1 else torch.cat([qkv[:0, : heads.queries * heads.dim], *parts])
    )


@dataclass(frozen=True, eq=False)
class _Run:
    """Neighbouring sequences of as many rows, and what all layers of a step share of them."""

    at: slice
    rows: Rows
    copied: _Copied | None  # None: they have one row each


@dataclass(frozen=True, eq=False)
class _Copied:
    """Which blocks of sequences are copied, and which of their rows are seen."""

    lines: Tensor  # of keys, then of values: a block of one head each, sequence after sequence
    seen: Tensor  # [sequences, 1, rows of each, keys]


_RUNS: WeakKeyDictionary[Context, tuple[_Run, ...]] = WeakKeyDictionary()


def _runs(context: Context, turn: Rotation, key_heads: int) -> tuple[_Run, ...]:
    """In order; made in the first layer of a step."""
    found = _RUNS.get(context)
    if found is None:
        made = (_run(context, turn, key_heads, sequences) for sequences in context.runs())
        found = _RUNS[context] = tuple(made)
    return found


def _run(context: Context, turn: Rotation, key_heads: int, run: range) -> _Run:
    at = slice(context.starts[run.start], context.starts[run.stop])
    rows = Rows(
        cosines=turn.cos[at, ::2].contiguous(),
        sines=turn.sin[at, 1::2].contiguous(),
        tables=context.table[run.start : run.stop].contiguous(),
        owners=context.owner[at] - run.start,
        positions=context.positions[at],
        block_tokens=context.block_tokens,
    )
    if len(rows.positions) == len(run):
        return _Run(at, rows, None)
    positions, longest = (
        rows.positions.view(len(run), -1),
        max(context.lengths[run.start : run.stop]),
    )
    logical = torch.arange(-(-longest // context.block_tokens))
    # Beyond its end a sequence reads a block of its own, unseen: others may hold NaN.
    last = positions[:, -1:] // context.block_tokens
    table = rows.tables.gather(1, torch.minimum(logical, last))
    planes = torch.arange(2 * key_heads).view(2, 1, -1, 1)
    lines = table[None, :, None, :] * 2 * key_heads + planes
    places = torch.arange(len(logical) * context.block_tokens)
    seen = (places <= positions.unsqueeze(-1)).unsqueeze(1)
    return _Run(at, rows, _Copied(lines.flatten(), seen))


def _attend(qkv: Tensor, heads: Heads, cache: Tensor, run: _Run) -> Tensor:
    """Rows of one run: [rows, queries * dim]."""
    if run.copied is None:
        return attend_singles(qkv, heads, cache, run.rows)
    queries = insert_heads(qkv, heads, cache, run.rows)
    count, _, each, length = run.copied.seen.shape
    blocks = cache.view(-1, run.rows.block_tokens * heads.dim)
    held = blocks.index_select(0, run.copied.lines)
    keys, values = held.view(2, count, heads.keys, length, heads.dim)
    out = functional.scaled_dot_product_attention(
        queries.view(count, each, -1, heads.dim).transpose(1, 2),
        keys,
        values,
        attn_mask=run.copied.seen,
        scale=heads.scale,
        enable_gqa=True,
    )
    return out.transpose(1, 2).reshape(len(qkv), -1)
