"""Pooling two tokens into one global row, and writing such rows: the definition."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from kernels.cache_ops.reference import CachedRows, RowNorm, insert_rows
from kernels.norm.reference import rms_norm
from kernels.rotary.reference import Rotation


def pool_pairs(even: Tensor, odd: Tensor) -> Tensor:
    """Weigh the values of two tokens, channel by channel, by the softmax of their gates.

    Each input [rows, 2 * width] holds values and gates side by side. Returns [rows, width].
    """
    values = torch.stack((even, odd)).chunk(2, -1)
    return (values[1].softmax(0) * values[0]).sum(0)


@dataclass(frozen=True, kw_only=True)
class Pairs:
    """The token before each row of a step, and where the rows wait for the next step."""

    tails: Tensor  # [places, 2 * width] rows of earlier steps, of the dtype of this step's
    old: Tensor  # [sequences] where the newest row before the step lies
    previous: Tensor  # [rows] the token before: a number in (`old`, rows of the step)
    keep: Tensor  # [rows] where each row goes; all differ, from `old` too


@dataclass(frozen=True, kw_only=True)
class GlobalRows:
    """Where rows of a cache go, and how they are turned."""

    cache: CachedRows
    where: Tensor  # [rows] physical; negative = this row closes nothing
    turn: Rotation


def write_latents(
    x: Tensor, pairs: Pairs | None, norm: RowNorm, into: GlobalRows, dtype: torch.dtype
) -> Tensor:
    """Latents of rows, stored turned in a cache and returned as they are.

    x [rows, 2 * width] values and gates, pooled with those of the token before, or [rows, width]
    without `pairs`. Rounded to `dtype` before the norm and after it. Returns [rows, width] of
    `dtype`, zeros where a row closes nothing. Writes `into.cache` and `pairs.tails`.
    """
    pooled = x
    if pairs is not None:
        pooled = pool_pairs(torch.cat((pairs.tails[pairs.old], x))[pairs.previous], x)
        pairs.tails[pairs.keep] = x
    latents = rms_norm(pooled.to(dtype), norm.weight, norm.eps)
    latents = latents.masked_fill((into.where < 0).unsqueeze(1), 0)
    insert_rows(into.cache, into.where, latents, None, into.turn)
    return latents
