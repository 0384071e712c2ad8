"""What is trained and how: sizes, schedule and seeds, all in one frozen object a name.

`nano` is the checkpoint that ships. `smoke` is the same machine at a size that a test can train.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from experiments.errors import PlanError
from experiments.training.sizes import BLOCK, Sizes

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, kw_only=True)
class Phase:
    """Consecutive steps of one shape."""

    steps: int
    length: int  # tokens a sequence
    sparse: bool  # selection on; off = every visible global row
    rounded: bool  # weights as shipped, and caches of half the sequences as released


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """A training run."""

    name: str
    sizes: Sizes
    seed: int
    step_tokens: int
    phases: tuple[Phase, ...]
    draft: Phase
    anchors_every: int  # one block of drafts is trained every so many tokens
    muon_lr: float
    adam_lr: float
    draft_lr_scale: float
    decay_from: float  # share of the steps after which the rate falls linearly to 0
    warmup_steps: int
    weight_decay: float
    bias_step: float
    truncated_share: float  # of the sequences, from the first sparse phase on
    index_stride: int
    index_weight: float
    repeats: Mapping[str, int]  # passes over a kind for each pass over the others

    @property
    def target_steps(self) -> int:
        """Steps before the target is frozen."""
        return sum(phase.steps for phase in self.phases)

    @property
    def keep_tokens(self) -> int:
        """Rows that truncation keeps: window + draft length + 1."""
        return self.sizes.window + BLOCK + 1

    def scaled(self, factor: float) -> Recipe:
        """The same recipe with `factor` times as many steps of every phase."""
        phases = (*self.phases, self.draft)
        *target, drafter = (replace(p, steps=max(1, round(p.steps * factor))) for p in phases)
        return replace(self, phases=tuple(target), draft=drafter)

    def phase_at(self, step: int) -> Phase:
        """The phase of a target step."""
        for phase in self.phases:
            if step < phase.steps:
                return phase
            step -= phase.steps
        return self.phases[-1]


_NANO = Recipe(
    name="nano",
    sizes=Sizes(
        hidden=192,
        heads=6,
        head_dim=64,
        rope_dim=16,
        q_lora=64,
        o_lora=64,
        expert_width=96,
        experts=8,
        draft_experts=4,
        window=64,
        index_topk=64,
        candidate_blocks=24,
        ngram_rows=1000,
        markov_rank=24,
        positions=4096,
    ),
    seed=20261129,
    step_tokens=65536,
    phases=(
        Phase(steps=1470, length=1024, sparse=False, rounded=False),
        Phase(steps=3150, length=1024, sparse=True, rounded=False),
        Phase(steps=368, length=4096, sparse=True, rounded=True),
    ),
    draft=Phase(steps=1806, length=1024, sparse=True, rounded=True),
    anchors_every=4,
    muon_lr=0.02,
    adam_lr=3e-3,
    draft_lr_scale=1.0,
    decay_from=0.35,
    warmup_steps=100,
    weight_decay=0.1,
    bias_step=1e-3,
    truncated_share=0.5,
    index_stride=8,
    index_weight=1.0,
    repeats={},
)

_SMOKE = Recipe(
    name="smoke",
    sizes=Sizes(
        hidden=64,
        heads=2,
        head_dim=32,
        rope_dim=16,
        q_lora=32,
        o_lora=32,
        expert_width=32,
        experts=4,
        draft_experts=2,
        window=16,
        index_topk=8,
        candidate_blocks=4,
        ngram_rows=40,
        markov_rank=8,
        positions=256,
    ),
    seed=1,
    step_tokens=256,
    phases=(
        Phase(steps=9, length=64, sparse=False, rounded=False),
        Phase(steps=6, length=64, sparse=True, rounded=False),
        Phase(steps=3, length=128, sparse=True, rounded=True),
    ),
    draft=Phase(steps=6, length=64, sparse=True, rounded=True),
    anchors_every=4,
    muon_lr=0.02,
    adam_lr=5e-3,
    draft_lr_scale=1.0,
    decay_from=0.4,
    warmup_steps=2,
    weight_decay=0.1,
    bias_step=1e-3,
    truncated_share=0.5,
    index_stride=4,
    index_weight=1.0,
    repeats={},
)

RECIPES = {recipe.name: recipe for recipe in (_NANO, _SMOKE)}


def find(name: str) -> Recipe:
    """Return the recipe of a name. PlanError lists the names there are."""
    try:
        return RECIPES[name]
    except KeyError as error:
        raise PlanError(
            f"there is no training recipe {name!r}", remedy=f"Use one of {', '.join(RECIPES)}."
        ) from error
