"""Choosing experts: the definition."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from kernels.precision import at_least_float32
from kernels.topk.reference import stable_top_k


@dataclass(frozen=True, kw_only=True)
class Router:
    """Scores x W^T become affinities; the bias takes part in the choice only."""

    weight: Tensor  # [experts, width]
    bias: Tensor  # [experts], at least float32
    experts_per_token: int
    normalise: bool
    scale: float


def route(x: Tensor, router: Router, live: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Experts of each row of x [rows, width] and their weights, both [rows, k].

    Affinities are sqrt(softplus(scores)), in at least float32. Ties go to the lowest expert id.
    Weights are at least float32. A row that is not `live` [rows] chooses -1, which is no expert.
    """
    return _choose(functional.softplus(_scores(x, router)).sqrt(), router, live)


def route_by_softmax(
    x: Tensor, router: Router, live: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """As `route`; the affinities of a row are the softmax of its scores over all experts."""
    return _choose(_scores(x, router).softmax(-1), router, live)


def _scores(x: Tensor, router: Router) -> Tensor:
    """Products of two narrow values are exact, and added up in the wide dtype."""
    wide = torch.promote_types(at_least_float32(x.dtype), router.weight.dtype)
    return functional.linear(x.to(wide), router.weight.to(wide))


def _choose(affinity: Tensor, router: Router, live: Tensor | None) -> tuple[Tensor, Tensor]:
    experts = stable_top_k(affinity + router.bias, router.experts_per_token)
    weights = affinity.gather(-1, experts)
    if router.normalise and router.experts_per_token > 1:
        weights = weights / (weights.sum(-1, keepdim=True) + 1e-20)
    if live is not None:
        experts = experts.masked_fill(~live.unsqueeze(-1), -1)
    return experts, weights * router.scale
