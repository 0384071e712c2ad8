"""Causal attention of several query heads a key head over paged caches: the definition.

A block of a cache holds the keys of its tokens and then their values, head after head:
[2, key heads, tokens, dim], so that what one head reads of a block lies together.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import groupby, pairwise
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from kernels.norm.reference import rms_norm
from kernels.precision import at_least_float32
from kernels.rotary.reference import Rotation, rotate

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kernels.fused_linear.reference import Norm


@dataclass(frozen=True, kw_only=True)
class Heads:
    """How a row of queries, keys and values side by side is cut, and the norms of each head."""

    queries: int
    keys: int  # divides `queries`: neighbours share a key head
    dim: int
    scale: float  # of the scores
    query_norm: Norm | None = None
    key_norm: Norm | None = None


class Behind(NamedTuple):
    """Some sequences, the last ones of a step, and their rows, counted from the first of those."""

    row: int  # that first one, counted among all
    longest: int  # rows of a sequence, at most
    table: Tensor  # [R, blocks]
    owner: Tensor  # [T] counted among all sequences
    positions: Tensor  # [T]
    first_rows: Tensor  # [R + 1]


@dataclass(frozen=True, kw_only=True, eq=False)
class Context:
    """T fresh rows of R sequences, and where the rows of those sequences lie.

    starts and lengths are the host's; lengths only bound what the device holds. A query sees
    the rows of its sequence up to its own position.
    """

    table: Tensor  # [R, blocks] physical block of each logical block
    block_tokens: int
    owner: Tensor  # [T] sequence of each row, ascending
    positions: Tensor  # [T], rising by one within a sequence
    starts: tuple[int, ...]  # R + 1: sequence r has the rows from starts[r] to starts[r + 1]
    lengths: tuple[int, ...]  # R: tokens of the sequence, fresh ones included, at most
    shared_from: int | None = None
    """Not None: how the sequences from this number on share their rows, only `owner` tells; the
    host's `starts` are as if the first of them had all. Those before it run one row each."""

    @property
    def blocks(self) -> Tensor:
        """Physical block of each fresh row: [T]."""
        return self.table[self.owner, self.positions // self.block_tokens]

    @cached_property
    def first_rows(self) -> Tensor:
        """`starts` on the device, made there: [R + 1]."""
        count = torch.arange(len(self.starts), device=self.owner.device)
        return torch.searchsorted(self.owner, count)

    @cached_property
    def behind(self) -> Behind:
        """What kernels take of the sequences from number `singles` on, made once a step.

        Copies, so that they lie where kernels were compiled for whatever the number.
        """
        first = self.singles
        row = self.starts[first]
        longest = max(b - a for a, b in pairwise(self.starts[first:]))
        return Behind(
            row=row,
            longest=longest,
            table=self.table[first:].clone(),
            owner=self.owner[row:].clone(),
            positions=self.positions[row:].clone(),
            first_rows=self.first_rows[first:] - row,
        )

    @cached_property
    def singles(self) -> int:
        """How many sequences run one row before the first that runs more."""
        if self.shared_from is not None:
            return self.shared_from
        steps = pairwise(self.starts)
        more = (r for r, (a, b) in enumerate(steps) if b - a != 1)
        return next(more, len(self.lengths))

    def runs(self) -> Iterator[range]:
        """Neighbouring sequences of as many rows; none of those without."""
        sizes = [b - a for a, b in pairwise(self.starts)]
        first = 0
        for size, group in groupby(sizes):
            count = sum(1 for _ in group)
            if size:
                yield range(first, first + count)
            first += count


def by_block(cache: Tensor, heads: Heads, block_tokens: int) -> Tensor:
    """A cache [rows, 2 * key heads * dim] as [blocks, 2, key heads, tokens, dim]."""
    return cache.view(-1, 2, heads.keys, block_tokens, heads.dim)


def insert_heads(
    qkv: Tensor, heads: Heads, turn: Rotation, cache: Tensor, context: Context
) -> Tensor:
    """Norm and rotate the heads of qkv [T, (queries + 2 * keys) * dim]; store keys and values.

    Rounded to the dtype of qkv after the norm and after the rotation. Returns the queries
    [T, queries, dim].
    """
    sizes = (heads.queries, heads.keys, heads.keys)
    queries, keys, values = qkv.unflatten(-1, (-1, heads.dim)).split(sizes, 1)
    queries, keys = (
        rotate(x if norm is None else rms_norm(x, norm.weight, norm.eps), turn)
        for x, norm in ((queries, heads.query_norm), (keys, heads.key_norm))
    )
    places = by_block(cache, heads, context.block_tokens)
    offsets = context.positions % context.block_tokens
    places[context.blocks, :, :, offsets] = torch.stack((keys, values), 1).to(cache.dtype)
    return queries


def attend_fresh(
    qkv: Tensor, heads: Heads, turn: Rotation, cache: Tensor, context: Context
) -> Tensor:
    """Store the keys and values of fresh rows and attend with their queries.

    qkv [T, (queries + 2 * keys) * dim], turn of the rows' positions. Computed in at least
    float32. Returns [T, queries * dim] in the dtype of qkv.
    """
    queries = insert_heads(qkv, heads, turn, cache, context)
    if context.shared_from is not None:
        context = _each_row(context)
    parts = [_attend_run(queries, heads, cache, context, run) for run in context.runs()]
    return torch.cat([queries[:0], *parts]).flatten(1)


def _each_row(context: Context) -> Context:
    """The same rows, each as if it were the one of its sequence."""
    rows = len(context.owner)
    return Context(
        table=context.table[context.owner],
        block_tokens=context.block_tokens,
        owner=torch.arange(rows, device=context.owner.device),
        positions=context.positions,
        starts=tuple(range(rows + 1)),
        lengths=(max(context.lengths),) * rows,
    )


def _attend_run(
    queries: Tensor, heads: Heads, cache: Tensor, context: Context, run: range
) -> Tensor:
    """Queries of sequences that have as many rows each: [rows, heads, dim]."""
    count = len(run)
    sequences, rows = slice(run.start, run.stop), slice(context.starts[run.start], None)
    rows = slice(rows.start, context.starts[run.stop])
    longest = max(context.lengths[sequences])
    blocks = -(-longest // context.block_tokens)
    wide = at_least_float32(queries.dtype)
    held = by_block(cache, heads, context.block_tokens)[context.table[sequences, :blocks]]
    kept = held.permute(2, 0, 3, 1, 4, 5).flatten(3, 4).to(wide)  # [2, R, keys, K, dim]
    positions = context.positions[rows].view(count, 1, -1, 1)
    at = torch.arange(kept.shape[3], device=queries.device)
    # Zeros where no query sees a row: it may hold anything, and nothing times NaN is NaN.
    unseen = at[:, None] > positions.amax(2, keepdim=True)
    keys, values = kept.masked_fill(unseen, 0)
    out = functional.scaled_dot_product_attention(
        queries[rows].unflatten(0, (count, -1)).transpose(1, 2).to(wide),
        keys,
        values,
        attn_mask=at <= positions,
        scale=heads.scale,
        enable_gqa=True,
    )
    return out.transpose(1, 2).flatten(0, 1).to(queries.dtype)
