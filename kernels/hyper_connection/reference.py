"""Manifold-constrained hyper-connections: the definition.

The residual is n parallel streams. Each sublayer reads a weighted sum of them (`pre`), and its
output goes back to all (`post`) while a nearly doubly stochastic matrix mixes them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from kernels.precision import at_least_float32


@dataclass(frozen=True, kw_only=True)
class Mixing:
    """Parameters of one sublayer, at least float32."""

    fn: Tensor  # [(2 + n) * n, n * width]
    base: Tensor  # [(2 + n) * n]
    scale: Tensor  # [(2 + n) * n]: one number for pre, one for post, one for the matrix
    sinkhorn_iterations: int
    norm_eps: float
    eps: float


class Mixes(NamedTuple):
    """What one sublayer does to the streams, at least float32."""

    pre: Tensor  # [rows, n]
    post: Tensor  # [rows, n]
    matrix: Tensor  # [rows, n, n]; the first index is the input stream


def mixes(streams: Tensor, mixing: Mixing) -> Mixes:
    """Mixing weights from the streams [rows, n, width] themselves."""
    n = streams.shape[1]
    flat = streams.flatten(1).to(mixing.fn.dtype)
    norm = (flat.square().mean(-1, keepdim=True) + mixing.norm_eps).rsqrt()
    raw = (flat @ mixing.fn.T) * norm  # [rows, (2 + n) * n]
    raw = torch.addcmul(mixing.base, raw, mixing.scale)
    pre, post, matrix = raw.split((n, n, n * n), -1)
    return Mixes(
        pre=pre.sigmoid() + mixing.eps,
        post=2 * post.sigmoid(),
        matrix=sinkhorn(matrix.unflatten(-1, (n, n)), mixing.sinkhorn_iterations, mixing.eps),
    )


def sinkhorn(logits: Tensor, iterations: int, eps: float) -> Tensor:
    """Softmax of the rows of [rows, n, n], then columns and rows normalised in turn.

    Columns first and last: `iterations` times columns, `iterations - 1` times rows between.
    Each normalisation divides by the sum plus `eps`.
    """
    n = logits.shape[-1]
    flat = (logits.softmax(-1) + eps).flatten(1)
    # A product with zeros and ones gives every element the sum of its column, or of its row:
    # a third of the operations of a reduction, and this loop is most of a small model's step.
    eye, ones = torch.eye(n, dtype=flat.dtype, device=flat.device), flat.new_ones(n, n)
    columns, rows = torch.kron(ones, eye), torch.kron(eye, ones)  # [n * n, n * n]
    floor = flat.new_full((n * n,), eps)
    flat.div_(torch.addmm(floor, flat, columns))
    for _ in range(iterations - 1):
        flat.div_(torch.addmm(floor, flat, rows))
        flat.div_(torch.addmm(floor, flat, columns))
    return flat.view_as(logits)


def collapse(streams: Tensor, pre: Tensor) -> Tensor:
    """Weighted sum of the streams [rows, n, width] by pre [rows, n]: [rows, width]."""
    wide = streams.to(at_least_float32(streams.dtype))
    return torch.bmm(pre.unsqueeze(1), wide).squeeze(1).to(streams.dtype)


def expand(y: Tensor, streams: Tensor, mixed: Mixes) -> Tensor:
    """Streams after a sublayer: out[o] = post[o] * y + sum_i matrix[i, o] * streams[i]."""
    wide = at_least_float32(streams.dtype)
    kept = torch.bmm(mixed.matrix.mT, streams.to(wide))
    return torch.addcmul(kept, mixed.post.unsqueeze(-1), y.to(wide).unsqueeze(1)).to(streams.dtype)
