"""Choosing experts: the definition."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from torch.nn import functional

from kernels.topk.reference import stable_top_k

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class Router:
    """Scores x W^T become affinities; the bias takes part in the choice only."""

    weight: Tensor  # [experts, width], at least float32
    bias: Tensor  # [experts]
    experts_per_token: int
    normalise: bool
    scale: float


def route(x: Tensor, router: Router) -> tuple[Tensor, Tensor]:
    """Experts of each row of x [rows, width] and their weights, both [rows, k].

    Affinities are sqrt(softplus(scores)). Ties go to the lowest expert id. Weights are at least
    float32.
    """
    return _choose(functional.softplus(_scores(x, router)).sqrt(), router)


def route_by_softmax(x: Tensor, router: Router) -> tuple[Tensor, Tensor]:
    """As `route`; the affinities of a row are the softmax of its scores over all experts."""
    return _choose(_scores(x, router).softmax(-1), router)


def _scores(x: Tensor, router: Router) -> Tensor:
    return functional.linear(x.to(router.weight.dtype), router.weight)


def _choose(affinity: Tensor, router: Router) -> tuple[Tensor, Tensor]:
    experts = stable_top_k(affinity + router.bias, router.experts_per_token)
    weights = affinity.gather(-1, experts)
    if router.normalise and router.experts_per_token > 1:
        weights = weights / (weights.sum(-1, keepdim=True) + 1e-20)
    return experts, weights * router.scale
