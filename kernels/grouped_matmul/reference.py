"""A row through each of its experts: the definition."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from kernels.activation.reference import swiglu
from kernels.matmul.reference import linear
from kernels.precision import at_least_float32

if TYPE_CHECKING:
    from torch import Tensor

FEW_PAIRS = 16  # up to here, gathering the weights of each (row, expert) pair costs less


@dataclass(frozen=True, kw_only=True)
class Experts:
    """Weights of E gated experts; gate and up projections side by side."""

    gate_up: Tensor  # [E, 2 * inner, width]
    down: Tensor  # [E, width, inner]
    limit: float


def run_experts(
    x: Tensor, experts: Experts, chosen: Tensor, weights: Tensor, shared: Tensor
) -> Tensor:
    """Sum over the chosen experts of down(weight * swiglu(gate_up(x))), and `shared`.

    x [rows, width], chosen and weights [rows, k], shared [rows, width]: what a row gets whatever
    it chooses. Added in at least float32, rounded once to x's dtype: [rows, width].
    """
    rows, k = chosen.shape
    run = _by_pair if rows * k <= FEW_PAIRS else _by_expert
    parts = run(x, experts, chosen.flatten(), weights.flatten())  # [rows * k, width]
    routed = parts.to(at_least_float32(x.dtype)).unflatten(0, (rows, k)).sum(1)
    return (routed + shared).to(x.dtype)


def _by_pair(x: Tensor, experts: Experts, chosen: Tensor, weights: Tensor) -> Tensor:
    pairs = x.repeat_interleave(chosen.numel() // max(x.shape[0], 1), 0)
    gate_up = torch.bmm(experts.gate_up[chosen], pairs.unsqueeze(-1)).squeeze(-1)
    inner = swiglu(gate_up, experts.limit, weights)
    return torch.bmm(experts.down[chosen], inner.unsqueeze(-1)).squeeze(-1)


def _by_expert(x: Tensor, experts: Experts, chosen: Tensor, weights: Tensor) -> Tensor:
    per_row = chosen.numel() // x.shape[0]
    order = torch.sort(chosen, stable=True).indices
    counts = torch.bincount(chosen, minlength=experts.down.shape[0]).tolist()
    busy = [e for e, count in enumerate(counts) if count]
    sizes = [counts[e] for e in busy]
    pieces = x[order // per_row].split(sizes)
    gate_up = torch.cat(
        [linear(rows, experts.gate_up[e]) for e, rows in zip(busy, pieces, strict=True)]
    )
    inner = swiglu(gate_up, experts.limit, weights[order]).split(sizes)
    done = torch.cat([linear(rows, experts.down[e]) for e, rows in zip(busy, inner, strict=True)])
    return torch.empty_like(done).index_copy_(0, order, done)
