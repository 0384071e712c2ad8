"""A row through each of its experts: the definition."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from kernels.activation.reference import swiglu
from kernels.beside import Later, ready
from kernels.matmul.reference import linear
from kernels.matmul.weights import Weight, matrix
from kernels.precision import at_least_float32

Shared = Tensor | Later[Tensor]
"""What a row gets whatever it chooses; it may be made beside everything but the last addition."""
FEW_PAIRS = 16  # up to here, gathering the weights of each (row, expert) pair costs less


@dataclass(frozen=True, kw_only=True)
class Experts:
    """Weights of E gated experts; gate and up projections side by side."""

    gate_up: Weight  # [E, 2 * inner, width]
    down: Weight  # [E, width, inner]
    limit: float


def run_experts(
    x: Tensor, experts: Experts, chosen: Tensor, weights: Tensor, shared: Shared
) -> Tensor:
    """Sum over the chosen experts of down(weight * swiglu(gate_up(x))), and `shared`.

    x [rows, width], chosen and weights [rows, k], shared [rows, width]: what a row gets whatever
    it chooses. A negative choice is no expert, and adds nothing. Added in at least float32,
    rounded once to x's dtype: [rows, width].
    """
    rows, k = chosen.shape
    is_few = rows * k <= FEW_PAIRS and isinstance(experts.down, Tensor)
    run = _by_pair if is_few else _by_expert
    parts = run(x, experts, chosen.flatten(), weights.flatten())  # [rows * k, width]
    routed = parts.to(at_least_float32(x.dtype)).unflatten(0, (rows, k)).sum(1)
    return (routed + ready(shared)).to(x.dtype)


def _by_pair(x: Tensor, experts: Experts, chosen: Tensor, weights: Tensor) -> Tensor:
    assert isinstance(experts.gate_up, Tensor)
    assert isinstance(experts.down, Tensor)
    pairs = x.repeat_interleave(chosen.numel() // max(x.shape[0], 1), 0)
    expert = chosen.clamp(min=0)
    gate_up = torch.bmm(experts.gate_up[expert], pairs.unsqueeze(-1)).squeeze(-1)
    inner = swiglu(gate_up, experts.limit, weights)
    parts = torch.bmm(experts.down[expert], inner.unsqueeze(-1)).squeeze(-1)
    return parts.masked_fill(chosen.lt(0).unsqueeze(-1), 0.0)


def _by_expert(x: Tensor, experts: Experts, chosen: Tensor, weights: Tensor) -> Tensor:
    per_row = chosen.numel() // max(x.shape[0], 1)
    order = torch.sort(chosen, stable=True).indices
    none, *counts = torch.bincount(chosen + 1, minlength=experts.down.shape[0] + 1).tolist()
    order = order[none:]
    busy = [e for e, count in enumerate(counts) if count]
    sizes = [counts[e] for e in busy]
    parts = x.new_zeros(len(chosen), experts.down.shape[-2])
    if not busy:
        return parts
    pieces = x[order // per_row].split(sizes)
    gate_up = torch.cat(
        [linear(rows, matrix(experts.gate_up, e)) for e, rows in zip(busy, pieces, strict=True)]
    )
    inner = swiglu(gate_up, experts.limit, weights[order]).split(sizes)
    done = [linear(rows, matrix(experts.down, e)) for e, rows in zip(busy, inner, strict=True)]
    return parts.index_copy_(0, order, torch.cat(done))
