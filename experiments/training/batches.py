"""Which tokens a step sees: a pure function of the recipe, the tokens and the step.

The training tokens of all kinds form one string. An epoch cuts it into sequences from an offset
of its own and visits them in an order of its own, so every token is seen once an epoch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from experiments.errors import PlanError
from experiments.training.sizes import BLOCK

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

    from experiments.training.recipe import Phase, Recipe


class TokenString:
    """All training tokens on one device, and the order in which sequences are drawn."""

    def __init__(
        self, kinds: Mapping[str, np.ndarray], recipe: Recipe, device: torch.device
    ) -> None:
        parts = [kinds[kind] for kind in sorted(kinds) for _ in range(recipe.repeats.get(kind, 1))]
        joined = np.concatenate(parts).astype(np.int32)
        longest = max(phase.length for phase in (*recipe.phases, recipe.draft))
        if len(joined) < 2 * longest + 1:
            raise PlanError(
                f"{len(joined)} training tokens are too few for sequences of {longest}",
                remedy="Build the corpus first: python -m experiments.training.corpus.",
            )
        self._tokens = torch.from_numpy(joined).to(device)
        self._seed = recipe.seed
        self._epochs: dict[tuple[int, int], np.ndarray] = {}

    def sequences(self, first: int, count: int, length: int) -> Tensor:
        """Sequences number `first` .. `first + count` of `length` tokens and one more each.

        Returns int64 [count, length + 1].
        """
        starts = [self._start(number, length) for number in range(first, first + count)]
        places = torch.tensor(starts, device=self._tokens.device).unsqueeze(-1)
        return self._tokens[places + torch.arange(length + 1, device=self._tokens.device)].to(
            torch.int64
        )

    def _start(self, number: int, length: int) -> int:
        per_epoch = len(self._tokens) // length - 1
        epoch, place = divmod(number, per_epoch)
        key = (epoch, length)
        if key not in self._epochs:
            rng = np.random.default_rng([self._seed, epoch, length])
            shift = int(rng.integers(0, length))
            self._epochs = {key: rng.permutation(per_epoch) * length + shift}
        return int(self._epochs[key][place])


@dataclass(frozen=True, kw_only=True)
class Draw:
    """What is random in a step beside the order of the tokens."""

    floor: Tensor  # [B] decoder_start, 0 = not truncated
    cut: Tensor  # [B] rows from floor to before cut - 1 carry no loss
    rounded: Tensor  # [B] 0 or 1: caches rounded, where the phase rounds at all
    sampled: Tensor  # [Q] positions whose queries train the indexer

    def tensors(self) -> dict[str, Tensor]:
        """All of it by name."""
        return {
            "floor": self.floor,
            "cut": self.cut,
            "rounded": self.rounded,
            "sampled": self.sampled,
        }


def draw(recipe: Recipe, phase: Phase, step: int, device: torch.device) -> Draw:
    """Truncations and roundings of a step."""
    rng = np.random.default_rng([recipe.seed, 1, step])
    count, keep = recipe.step_tokens // phase.length, recipe.keep_tokens
    truncated = (rng.random(count) < recipe.truncated_share) & phase.sparse
    cuts = rng.integers(keep + 1, phase.length - recipe.sizes.window // 2, count)
    floor = np.where(truncated, cuts - keep, 0)
    stride = recipe.index_stride
    positions = np.arange(0, phase.length, stride) + int(rng.integers(0, stride))
    half = torch.from_numpy((rng.random(count) < 0.5).astype(np.float32)).to(device)
    return Draw(
        floor=torch.from_numpy(floor).to(device),
        cut=torch.from_numpy(np.where(truncated, cuts, 0)).to(device),
        rounded=half,
        sampled=torch.from_numpy(positions).to(device),
    )


def loss_weights(floor: Tensor, cut: Tensor, length: int) -> Tensor:
    """1 where a row's prediction counts: not from floor up to the row before the cut: [B, L]."""
    position = torch.arange(length, device=floor.device)
    replayed = (position >= floor.unsqueeze(-1)) & (position < cut.unsqueeze(-1) - 1)
    return (~replayed).float()


def anchors(recipe: Recipe, phase: Phase, step: int, device: torch.device) -> Tensor:
    """Anchor positions of a drafter step, one in every stretch: [B, A]."""
    rng = np.random.default_rng([recipe.seed, 2, step])
    every = recipe.anchors_every
    count, stretches = recipe.step_tokens // phase.length, phase.length // every
    places = np.arange(stretches) * every + rng.integers(0, every, (count, stretches))
    return torch.from_numpy(places.clip(1, phase.length - BLOCK - 1)).to(device)
