"""Muon for the matrices inside layers, Adam for everything else.

Muon (Keller Jordan et al., https://kellerjordan.github.io/posts/muon/): the momentum of a
matrix is replaced by a nearly orthogonal one through five Newton-Schulz steps. Stacks are
treated as batches of matrices.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

_MATRIX = re.compile(r"(wq_a|wq_b|wkv|wgate|wo_a|wo_b|w1|w2|w3|main_proj)\.weight$")
_NEWTON_SCHULZ = (3.4445, -4.7750, 2.0315)
_NEWTON_SCHULZ_STEPS = 5
_DECAYED = re.compile(r"(head|indexer.*)\.weight$")
_SLOW = re.compile(r"(_fn|_base|_scale|gate\.weight)$")  # mixing and routing: a third of the rate


@dataclass(frozen=True, kw_only=True)
class Rates:
    """Learning rates and constants; a step scales the rates by its schedule."""

    muon_lr: float
    adam_lr: float
    weight_decay: float
    momentum: float = 0.95
    betas: tuple[float, float] = (0.9, 0.95)
    epsilon: float = 1e-10
    clip: float = 1.0  # of the norm of all gradients that Adam sees


class Optimiser:
    """Updates master weights in place. Its whole state is `state`, tensors by name."""

    def __init__(self, masters: Mapping[str, Tensor], rates: Rates) -> None:
        self._masters = dict(masters)
        self._rates = rates
        self._matrices = [key for key in masters if is_matrix(key)]
        self._others = [key for key in masters if not is_matrix(key)]
        self.state: dict[str, Tensor] = {}
        for key in self._matrices:
            self.state[f"momentum.{key}"] = torch.zeros_like(masters[key])
        for key in self._others:
            self.state[f"mean.{key}"] = torch.zeros_like(masters[key])
            self.state[f"square.{key}"] = torch.zeros_like(masters[key])

    def step(self, gradients: Mapping[str, Tensor], now: Tensor) -> None:
        """Apply gradients. `now` is `schedule_values` of this step, on the masters' device."""
        with torch.no_grad():
            for key in self._matrices:
                self._muon(key, gradients[key].float(), now[0])
            others = [gradients[key].float() for key in self._others]
            norm = torch.stack(torch._foreach_norm(others)).norm()
            torch._foreach_mul_(others, (self._rates.clip / (norm + 1e-6)).clamp(max=1.0))
            self._adam(others, now)

    def schedule_values(self, number: int, scale: float) -> list[float]:
        """What `step` needs of step `number` (from 1) when `scale` multiplies the rates."""
        first, second = self._rates.betas
        return [scale, scale / (1 - first**number), 1 - second**number]

    def _muon(self, key: str, gradient: Tensor, scale: Tensor) -> None:
        rates, master = self._rates, self._masters[key]
        momentum = self.state[f"momentum.{key}"].lerp_(gradient, 1 - rates.momentum)
        update = orthogonalised(gradient.lerp(momentum, rates.momentum))
        tall = max(1.0, master.shape[-2] / master.shape[-1]) ** 0.5
        master.mul_(1 - scale * (rates.muon_lr * rates.weight_decay))
        master.sub_(update * (scale * (rates.muon_lr * tall)))

    def _adam(self, gradients: list[Tensor], now: Tensor) -> None:
        first, second = self._rates.betas
        means = [self.state[f"mean.{key}"] for key in self._others]
        squares = [self.state[f"square.{key}"] for key in self._others]
        torch._foreach_lerp_(means, gradients, 1 - first)
        torch._foreach_mul_(squares, second)
        torch._foreach_addcmul_(squares, gradients, gradients, 1 - second)
        roots = torch._foreach_sqrt(torch._foreach_div(squares, now[2]))
        torch._foreach_add_(roots, self._rates.epsilon)
        updates = torch._foreach_div(means, roots)
        for key, update in zip(self._others, updates, strict=True):
            rate = self._rates.adam_lr / (3 if _SLOW.search(key) else 1)
            if _DECAYED.search(key):
                self._masters[key].mul_(1 - now[0] * (rate * self._rates.weight_decay))
            self._masters[key].sub_(update * (now[1] * rate))


def is_matrix(key: str) -> bool:
    """True where Muon applies; the indexer, whose loss is its own, stays with Adam."""
    return _MATRIX.search(key) is not None and "indexer" not in key


def orthogonalised(batch: Tensor) -> Tensor:
    """Nearly orthogonal matrices in the direction of each of [count, rows, columns]; float32."""
    a, b, c = _NEWTON_SCHULZ
    x = batch.bfloat16() if batch.device.type != "cpu" else batch
    if x.shape[-2] > x.shape[-1]:
        return orthogonalised(batch.mT).mT
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(_NEWTON_SCHULZ_STEPS):
        gram = x @ x.mT
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x.float()
