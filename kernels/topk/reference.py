"""Selections with a fixed order among equals: the definition.

Where scores tie the lowest index wins, whatever the length of the row: `torch.topk` leaves
that open, and ties are common among rectified scores.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from kernels.cache_ops.reference import Pages


@dataclass(frozen=True, kw_only=True)
class Blocks:
    """Some blocks of the logical rows of each query, as columns of scores stand for them."""

    index: Tensor  # [queries, blocks] ascending; -1 where there are fewer, at the end
    rows: int  # of a block

    def logical(self) -> Tensor:
        """The row of each column, of missing blocks below 0: [queries, blocks * rows]."""
        within = torch.arange(self.rows, device=self.index.device)
        return (self.index.unsqueeze(-1) * self.rows + within).flatten(-2)


def stable_top_k(scores: Tensor, k: int) -> Tensor:
    """Indices of the k largest of the last dimension, best first, lowest index on ties."""
    return torch.sort(scores, dim=-1, descending=True, stable=True).indices[..., :k]


def top_k_mask(scores: Tensor, k: int) -> Tensor:
    """True at the k largest of the last dimension, lowest index on ties; never at -inf."""
    if scores.shape[-1] <= k:
        return scores > -torch.inf
    least = scores.topk(k, -1, sorted=False).values.amin(-1, keepdim=True)
    above, level = scores > least, scores == least
    room = k - above.sum(-1, keepdim=True)
    return (above | (level & (level.cumsum(-1) <= room))) & (scores > -torch.inf)


def positions_of(chosen: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Ascending indices of the True places of `chosen` [..., n], at most k of them.

    Returns indices [..., k], 0 where there are fewer, and whether each is one [..., k].
    """
    rank = chosen.cumsum(-1) - 1
    place = torch.where(chosen, rank, k)  # the unchosen share one spare place
    columns = torch.arange(chosen.shape[-1], device=chosen.device).expand_as(chosen)
    index = columns.new_zeros(*chosen.shape[:-1], k + 1).scatter_(-1, place, columns)[..., :k]
    valid = torch.arange(k, device=chosen.device) < chosen.sum(-1, keepdim=True)
    return torch.where(valid, index, 0), valid


def best_rows(scores: Tensor, k: int, pages: Pages) -> Tensor:
    """Physical rows of the k best of scores [rows, n], in ascending order of their logical rows.

    Ties go to the lowest; -inf is never chosen. Returns [rows, k], -1 where there are fewer.
    """
    logical, valid = positions_of(top_k_mask(scores, k), k)
    return torch.where(valid, pages.physical(logical), -1)


def best_of_blocks(scores: Tensor, k: int, pages: Pages, blocks: Blocks) -> Tensor:
    """`best_rows` where the columns of scores [rows, n] are those of blocks."""
    column, valid = positions_of(top_k_mask(scores, k), k)
    logical = blocks.logical().gather(-1, column)
    return torch.where(valid, pages.physical(logical.clamp(min=0)), -1)


def first_argmax(scores: Tensor) -> Tensor:
    """Index of the largest of the last dimension, the lowest one on ties; the last among NaN."""
    columns = torch.arange(scores.shape[-1], device=scores.device)
    best = scores == scores.amax(-1, keepdim=True)
    return torch.where(best, columns, scores.shape[-1] - 1).amin(-1)
