"""Causal attention over paged caches of bfloat16 on a CPU.

The blocks of a run of sequences are copied side by side, head after head, which costs less than
products over scattered ones; one row of a sequence is then two batched products, more rows are
the library's attention. What depends on the step alone is made once a step.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from weakref import WeakKeyDictionary

import torch
from torch import Tensor
from torch.nn import functional

from kernels.norm.reference import rms_norm
from kernels.paged_attention.reference import Context, Heads
from kernels.rotary.reference import Rotation


def attend_fresh(
    qkv: Tensor, heads: Heads, turn: Rotation, cache: Tensor, context: Context
) -> Tensor:
    """See kernels.paged_attention.reference."""
    layout = _layout(context, heads, turn)
    rows = qkv.unflatten(-1, (-1, heads.dim))
    queries, keys = _turned(rows, heads, layout.turns)
    values = rows[:, heads.queries + heads.keys :]
    lines = cache.view(-1, heads.dim)
    if len(layout.opened):
        # What a block held before would meet a weight of zero, and nothing times NaN is NaN.
        cache.view(-1, heads.dim * 2 * heads.keys * context.block_tokens)[layout.opened] = 0
    lines[layout.places] = torch.cat((keys, values), 1)
    blocks = cache.view(-1, context.block_tokens * heads.dim)
    parts = [_attend_run(queries[run.rows], heads, blocks, run) for run in layout.runs]
    return (parts[0] if len(parts) == 1 else torch.cat([queries[:0], *parts])).flatten(1)


@dataclass(frozen=True, eq=False)
class _Run:
    """Neighbouring sequences of as many rows."""

    rows: slice
    sequences: int
    lines: Tensor  # of keys, then of values: a block of one head each, sequence after sequence
    unseen: Tensor  # [sequences, rows of each, keys]
    key_heads: int

    @cached_property
    def bias(self) -> Tensor:
        """Of the scores of one row a sequence: [sequences * key heads, 1, keys]."""
        hidden = self.unseen.repeat_interleave(self.key_heads, 0)
        return torch.zeros(hidden.shape, dtype=torch.bfloat16).masked_fill_(hidden, -torch.inf)


@dataclass(frozen=True, eq=False)
class _Layout:
    """What all layers of a step share."""

    context: Context
    heads: Heads
    turns: Tensor  # [T, 1, dim / 2] complex

    @cached_property
    def places(self) -> Tensor:
        """Lines of `dim` values where the keys and values of each fresh row belong: [T, 2 K]."""
        at, tokens = self.context.positions % self.context.block_tokens, self.context.block_tokens
        planes = self.context.blocks[:, None] * 2 * self.heads.keys
        planes = planes + torch.arange(2 * self.heads.keys)
        return planes * tokens + at[:, None]

    @cached_property
    def opened(self) -> Tensor:
        """Blocks that get their first row."""
        is_first = self.context.positions % self.context.block_tokens == 0
        return self.context.blocks[is_first]

    @cached_property
    def runs(self) -> tuple[_Run, ...]:
        """In order."""
        return tuple(self._run(sequences) for sequences in self.context.runs())

    def _run(self, run: range) -> _Run:
        context, count = self.context, len(run)
        rows = slice(context.starts[run.start], context.starts[run.stop])
        positions = context.positions[rows].view(count, -1)
        longest = max(context.lengths[run.start : run.stop])
        logical = torch.arange(-(-longest // context.block_tokens))
        # Beyond its end a sequence reads a block of its own, unseen: others may hold NaN.
        last = positions[:, -1:] // context.block_tokens
        table = context.table[run.start : run.stop].gather(1, torch.minimum(logical, last))
        planes = torch.arange(2 * self.heads.keys).view(2, 1, -1, 1)
        lines = table[None, :, None, :] * 2 * self.heads.keys + planes
        at = torch.arange(len(logical) * context.block_tokens)
        unseen = at > positions.unsqueeze(-1)
        return _Run(rows, count, lines.flatten(), unseen, self.heads.keys)


_LAYOUTS: WeakKeyDictionary[Context, _Layout] = WeakKeyDictionary()


def _layout(context: Context, heads: Heads, turn: Rotation) -> _Layout:
    found = _LAYOUTS.get(context)
    if found is None:
        turns = torch.complex(turn.cos[:, None, ::2], turn.sin[:, None, 1::2])
        found = _LAYOUTS[context] = _Layout(context, heads, turns)
    return found


def _turned(rows: Tensor, heads: Heads, turns: Tensor) -> tuple[Tensor, Tensor]:
    """Queries and keys of rows [T, heads, dim], normed and rotated."""
    sizes = (heads.queries, heads.keys)
    pair = rows[:, : sum(sizes)]
    if heads.query_norm is not None and heads.key_norm is not None:
        queries, keys = pair.split(sizes, 1)
        norms = heads.query_norm, heads.key_norm
        queries = rms_norm(queries, norms[0].weight, norms[0].eps)
        pair = torch.cat((queries, rms_norm(keys, norms[1].weight, norms[1].eps)), 1)
    planes = torch.view_as_complex(pair.float().unflatten(-1, (-1, 2)))
    turned = torch.view_as_real(planes * turns).flatten(-2).to(rows.dtype)
    return turned[:, : heads.queries], turned[:, heads.queries :]


def _attend_run(queries: Tensor, heads: Heads, blocks: Tensor, run: _Run) -> Tensor:
    """Queries [rows, heads, dim] of one run: [rows, heads, dim]."""
    held = blocks.index_select(0, run.lines)
    shape = (2, run.sequences * heads.keys, run.unseen.shape[-1], heads.dim)
    keys, values = held.view(shape)
    if run.unseen.shape[1] == 1:
        groups = queries.reshape(shape[1], -1, heads.dim)
        scores = torch.baddbmm(run.bias, groups, keys.mT, alpha=heads.scale)
        # Sums and exponentials are float32 inside, whatever comes in and goes out.
        return torch.bmm(scores.softmax(-1), values).view(run.sequences, -1, heads.dim)
    out = functional.scaled_dot_product_attention(
        queries.unflatten(0, (run.sequences, -1)).transpose(1, 2),
        keys.unflatten(0, (run.sequences, -1)),
        values.unflatten(0, (run.sequences, -1)),
        attn_mask=~run.unseen.unsqueeze(1),
        scale=heads.scale,
        enable_gqa=True,
    )
    return out.transpose(1, 2).flatten(0, 1)
