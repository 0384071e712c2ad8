"""Manifold-constrained hyper-connections: the definition.

The residual is n parallel streams. Each sublayer reads a weighted sum of them (`pre`), and its
output goes back to all (`post`) while a nearly doubly stochastic matrix mixes them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

from kernels.norm.reference import rms_norm
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

    @cached_property
    def halves(self) -> Tensor:
        """`fn` as the sum of two bfloat16, matrix rows before the others: [4 * n * n, n * width].

        Each half has rows for the matrix, for pre, for post, and zeros up to 2 * n * n.
        """
        turned = self._turned(self.fn.float())
        high = turned.bfloat16()
        return torch.cat((high, (turned - high.float()).bfloat16()))

    @cached_property
    def turned_base(self) -> Tensor:
        """`base` in the order of the rows of a half."""
        return self._turned(self.base)

    @cached_property
    def turned_scale(self) -> Tensor:
        """`scale` in the order of the rows of a half."""
        return self._turned(self.scale)

    def _turned(self, held: Tensor) -> Tensor:
        n = self.streams
        gates, matrix = held[: 2 * n], held[2 * n :]
        rest = held.new_zeros((n * n - 2 * n, *held.shape[1:]))
        return torch.cat((matrix, gates, rest))

    @property
    def streams(self) -> int:
        """n, which (2 + n) * n outputs tell."""
        return next(n for n in range(1, len(self.base) + 1) if (2 + n) * n == len(self.base))


class Mixes(NamedTuple):
    """What one sublayer does to the streams, at least float32."""

    pre: Tensor  # [rows, n]
    post: Tensor  # [rows, n]
    matrix: Tensor  # [rows, n, n]; the first index is the input stream


class Between(NamedTuple):
    """What lies between two sublayers."""

    streams: Tensor  # [rows, n, width] after the first
    x: Tensor  # [rows, width]: what the second sees
    mixed: Mixes  # from the streams, by the mixing of the second


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
    matrix = (logits.softmax(-1) + eps).flatten(1)
    matrix = torch.cat((matrix, matrix.new_ones(len(matrix), 1)), 1)  # the one stays one
    columns, rows = _sums(n, eps, matrix.dtype, matrix.device)
    sums = torch.empty_like(matrix)
    matrix.div_(torch.mm(matrix, columns, out=sums))
    for _ in range(iterations - 1):
        matrix.div_(torch.mm(matrix, rows, out=sums))
        matrix.div_(torch.mm(matrix, columns, out=sums))
    return matrix[:, :-1].unflatten(1, (n, n))


@lru_cache(maxsize=16)
def _sums(n: int, eps: float, dtype: torch.dtype, device: torch.device) -> tuple[Tensor, Tensor]:
    """Matrices of a product that gives each element the sum of its column, or row, plus `eps`.

    They act on a flat n by n matrix followed by a one: [n * n + 1, n * n + 1]. A product is one
    operation where a reduction with `eps` is three, and this loop is half of a small model's
    step.
    """
    eye = torch.eye(n, dtype=dtype, device=device)
    ones = torch.ones_like(eye)
    found = []
    for sums in (torch.kron(ones, eye), torch.kron(eye, ones)):
        full = torch.zeros(n * n + 1, n * n + 1, dtype=dtype, device=device)
        full[:-1, :-1] = sums
        full[-1, :-1] = eps
        full[-1, -1] = 1
        found.append(full)
    return found[0], found[1]


def collapse(streams: Tensor, pre: Tensor) -> Tensor:
    """Weighted sum of the streams [rows, n, width] by pre [rows, n]: [rows, width]."""
    wide = streams.to(at_least_float32(streams.dtype))
    return torch.bmm(pre.unsqueeze(1), wide).squeeze(1).to(streams.dtype)


def collapse_norm(streams: Tensor, pre: Tensor, weight: Tensor, eps: float) -> Tensor:
    """What a sublayer sees: the RMS norm of the collapsed streams, [rows, width]."""
    return rms_norm(collapse(streams, pre), weight, eps)


def expand(y: Tensor, streams: Tensor, mixed: Mixes) -> Tensor:
    """Streams after a sublayer: out[o] = post[o] * y + sum_i matrix[i, o] * streams[i]."""
    wide = at_least_float32(streams.dtype)
    kept = torch.bmm(mixed.matrix.mT, streams.to(wide))
    return torch.addcmul(kept, mixed.post.unsqueeze(-1), y.to(wide).unsqueeze(1)).to(streams.dtype)


def between_sublayers(
    y: Tensor, streams: Tensor, mixed: Mixes, weight: Tensor, eps: float, mixing: Mixing
) -> Between:
    """From the output y of a sublayer to the input of the next, whose mixing lags by one.

    The next one reads by `mixed.pre`, under a norm of `weight` and `eps`.
    """
    out = expand(y, streams, mixed)
    x = collapse_norm(out, mixed.pre, weight, eps)
    return Between(streams=out, x=x, mixed=mixes(out, mixing))
