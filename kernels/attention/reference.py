"""Attention whose keys are also its values, with a sink for each head: the definition."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch

from kernels.precision import at_least_float32

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor


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
            torch.bmm(flat, key.mT).view(batch, rows, heads, -1),
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
