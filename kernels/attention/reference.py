"""Attention whose keys are also its values, with a sink for each head: the definition."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from kernels.cache_ops.reference import CachedRows, ring_rows
from kernels.precision import at_least_float32
from kernels.rotary.reference import Rotation, rotate


class KeyRows(NamedTuple):
    """Rows that the queries of an entry share, and which query sees which."""

    rows: Tensor  # [B, K, dim]
    visible: Tensor  # [B, Q, K] bool


def attend(queries: Tensor, parts: Sequence[KeyRows], sink: Tensor, scale: float) -> Tensor:
    """One softmax over all visible rows of all parts and the sink, which carries no value.

    queries [B, Q, heads, dim], sink [heads] (not scaled). Computed in at least float32.
    Returns [B, Q, heads, dim] in the dtype of the queries; zeros where nothing is visible.
    """
    batch, rows, heads, dim = queries.shape
    wide = at_least_float32(queries.dtype)
    flat = queries.reshape(batch, rows * heads, dim).to(wide) * scale
    keys = [part.rows.to(wide) for part in parts]
    scores = [
        torch.where(
            part.visible.unsqueeze(2),
            torch.bmm(flat, key.mT).view(batch, rows, heads, key.shape[1]),
            -torch.inf,
        )
        for key, part in zip(keys, parts, strict=True)
    ]
    scores.append(sink.to(wide).expand(batch, rows, heads).unsqueeze(-1))
    probabilities = torch.cat(scores, -1).softmax(-1).flatten(1, 2)
    sizes = [key.shape[1] for key in keys]
    *shares, _ = probabilities.split([*sizes, 1], -1)
    out = sum(torch.bmm(share, key) for share, key in zip(shares, keys, strict=True))
    return out.view(batch, rows, heads, dim).to(queries.dtype)


@dataclass(frozen=True, kw_only=True)
class OwnRows:
    """The newest rows of each query's sequence, in a ring: positions p - length + 1 to p.

    A step of more rows than the ring has room for would overwrite rows that its first queries see.
    It lays the `length - 1` rows before it and its own in one copy, sequence after sequence, and
    gives that as a ring which never wraps: `ring` all its rows, `slots` 0, `positions` the place
    of each query's own row in it, `floors` the place of the oldest row that the query sees.
    """

    cache: CachedRows
    ring: int  # rows a slot
    length: int  # at most `ring`
    slots: Tensor  # [rows]
    positions: Tensor  # [rows] p
    floors: Tensor  # [rows] the oldest position that the query sees


@dataclass(frozen=True, kw_only=True)
class ChosenRows:
    """Other rows of each query, by physical number."""

    cache: CachedRows
    index: Tensor  # [rows, k]; negative = none


def attend_cached(
    queries: Tensor, own: OwnRows, chosen: ChosenRows | None, sink: Tensor, scale: float
) -> Tensor:
    """`attend` over rows that are read where they lie, each query by itself.

    queries [rows, heads, dim], sink [heads]. Returns the shape and dtype of the queries.
    """
    back = torch.arange(1 - own.length, 1, device=queries.device)
    at = own.positions[:, None] + back
    places = ring_rows(own.slots[:, None], at, own.ring)
    visible = (at >= own.floors[:, None]) & (at >= 0)
    parts = [_key_rows(own.cache, places, visible, queries.dtype)]
    if chosen is not None:
        places, visible = chosen.index.clamp(min=0), chosen.index >= 0
        parts.append(_key_rows(chosen.cache, places, visible, queries.dtype))
    return attend(queries.unsqueeze(1), parts, sink, scale).squeeze(1)


def attend_turned(
    queries: Tensor,
    own: OwnRows,
    chosen: ChosenRows | None,
    sink: Tensor,
    scale: float,
    turn: Rotation,
) -> Tensor:
    """`attend_cached` of queries that are turned before, the result turned back."""
    attended = attend_cached(rotate(queries, turn), own, chosen, sink, scale)
    return rotate(attended, turn.inverse)


def _key_rows(cache: CachedRows, places: Tensor, visible: Tensor, dtype: torch.dtype) -> KeyRows:
    """Zeros where a row is not visible: it may hold anything, and nothing times NaN is NaN."""
    rows = cache.read(places, dtype).masked_fill(~visible.unsqueeze(-1), 0)
    return KeyRows(rows, visible.unsqueeze(1))
