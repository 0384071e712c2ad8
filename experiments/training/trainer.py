"""One training run: the target, then its drafter on the frozen target as it ships."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F

from experiments.training import batches, draft, masters, stacks
from experiments.training.forward import Batch, Operations, Target
from experiments.training.optimiser import Optimiser, Rates
from experiments.training.recording import Inputs, Measures, Recorded, side_stream

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import numpy as np
    from torch import Tensor

    from engine.models.deepseek_v41.config import DeepseekV41Config
    from experiments.training.recipe import Phase, Recipe

_BIAS = "layers.*.ffn.gate.bias"
_DRAFT_BIAS = "mtp.*.ffn.gate.bias"
_POSITION_DECAY = 0.85
_CONFIDENCE_WEIGHT = 0.3
_FINAL_RATE = 0.01


@dataclass(frozen=True, kw_only=True)
class Run:
    """What a trainer is given."""

    recipe: Recipe
    config: DeepseekV41Config
    token_map: Sequence[int]
    training: Mapping[str, np.ndarray]  # kind -> tokens
    device: torch.device
    compiled: bool  # fused kernels and bfloat16; off: plain float32, as the tests run


@dataclass(kw_only=True)
class State:
    """Everything that a continuation needs."""

    step: int
    masters: dict[str, Tensor]
    optimiser: dict[str, Tensor]


def head_loss(hidden: Tensor, head: Tensor, targets: Tensor, weights: Tensor) -> Tensor:
    """Mean cross-entropy over weighted rows: hidden [T, D], targets and weights [T]."""
    logits = (hidden.to(head.dtype) @ head.T).float()
    losses = F.cross_entropy(logits, targets, reduction="none")
    return (losses * weights).sum() / weights.sum()


class Trainer:
    """Owns the master weights. `advance` does one step; steps are numbered over both parts."""

    def __init__(self, run: Run) -> None:
        self.run, self.recipe, self.config = run, run.recipe, run.config
        self.groups = stacks.layout(run.config)
        self.operations = Operations.compiled() if run.compiled else Operations()
        self.target = Target(run.config, run.token_map, self.operations, run.device)
        self.tokens = batches.TokenString(run.training, run.recipe, run.device)
        dtype = torch.bfloat16 if run.compiled else torch.float32
        self.leaves = masters.Leaves(self.groups, dtype, run.device)
        self._side = side_stream() if run.compiled else None
        self._head_loss = _fused(head_loss, run.compiled)
        self._draft_loss = _fused(draft.draft_loss, run.compiled)
        self.step = 0
        self.masters = {
            key: tensor.to(run.device)
            for key, tensor in masters.initial(self.groups, run.recipe.seed).items()
        }
        self._begin_part()

    @property
    def steps(self) -> int:
        """Steps of the whole run."""
        return self.recipe.target_steps + self.recipe.draft.steps

    @property
    def drafting(self) -> bool:
        """True once the target is frozen."""
        return self.step >= self.recipe.target_steps

    def state(self) -> State:
        """What `restore` needs; the tensors are the live ones."""
        return State(step=self.step, masters=self.masters, optimiser=self.optimiser.state)

    def restore(self, state: State) -> None:
        """Continue from a state of the same recipe."""
        self.step = state.step
        for key, tensor in state.masters.items():
            self.masters[key].copy_(tensor)
        self._begin_part()
        for key, tensor in state.optimiser.items():
            self.optimiser.state[key].copy_(tensor)

    def advance(self) -> Measures:
        """Do one step and return its measures, still on the device."""
        measures = self._draft_step() if self.drafting else self._target_step()
        self.step += 1
        if self.step in (self.recipe.target_steps, self.steps):
            self._begin_part()
        else:
            self._refresh(sorted(self.trained))
        return measures

    def _begin_part(self) -> None:
        """Choose what trains from here on, with fresh optimiser state."""
        drafting = self.drafting
        self.trained = frozenset(
            key
            for key, group in self.groups.items()
            if group.is_drafter == drafting and not key.endswith("gate.bias")
        )
        scale = self.recipe.draft_lr_scale if drafting else 1.0
        self.optimiser = Optimiser(
            {key: self.masters[key] for key in sorted(self.trained)},
            Rates(
                muon_lr=self.recipe.muon_lr * scale,
                adam_lr=self.recipe.adam_lr * scale,
                weight_decay=self.recipe.weight_decay,
            ),
        )
        self._recorded: dict[Phase, Callable[[Inputs], Measures]] = {}
        self._refresh(sorted(self.groups))
        self.leaves.train(self.trained)

    def _refresh(self, keys: Sequence[str]) -> None:
        as_shipped = self.drafting or self.recipe.phase_at(self.step).rounded
        biases = [_DRAFT_BIAS if self.drafting else _BIAS]
        self.leaves.refresh(self.masters, [*keys, *biases], as_shipped=as_shipped)

    def _views(self) -> dict[str, Tensor]:
        return stacks.views(self.leaves.tensors, self.groups)

    def _target_step(self) -> Measures:
        recipe, phase = self.recipe, self.recipe.phase_at(self.step)
        drawn = batches.draw(recipe, phase, self.step, self.run.device)
        now = self._now(self.step, recipe.target_steps)
        inputs = {"tokens": self._sequences(phase, self.step), "now": now, **drawn.tensors()}
        return self._body(phase)(inputs)

    def _body(self, phase: Phase) -> Callable[[Inputs], Measures]:
        """The step of a phase; recorded where that pays and nothing in it needs the host."""
        if phase not in self._recorded:
            plain = self._draft_work if self.drafting else partial(self._target_work, phase)
            fits = self.run.compiled and (self.drafting or not phase.rounded)
            self._recorded = {phase: Recorded(plain, self._side) if fits else plain}
        return self._recorded[phase]

    def _target_work(self, phase: Phase, inputs: Inputs) -> Measures:
        tokens, floor = inputs["tokens"], inputs["floor"]
        table = self._views()
        batch = Batch(
            tokens[:, :-1],
            floor if phase.sparse else None,
            inputs["rounded"] if phase.rounded else None,
        )
        passed = self.target.run(table, batch, sparse=phase.sparse, sampled=inputs["sampled"])
        weights = batches.loss_weights(floor, inputs["cut"], phase.length)
        loss = self._head_loss(
            passed.hidden, table["head.weight"], tokens[:, 1:].flatten(), weights.flatten()
        )
        assert passed.index_loss is not None
        (loss + self.recipe.index_weight * passed.index_loss).backward()
        self._apply(inputs["now"])
        self._balance(_BIAS, passed.loads)
        return {
            "loss": loss.detach(),
            "index_loss": passed.index_loss.detach(),
            "busiest_expert": (passed.loads / passed.loads.mean(-1, keepdim=True)).max(),
        }

    def _draft_step(self) -> Measures:
        recipe, phase = self.recipe, self.recipe.draft
        inputs = {
            "tokens": self._sequences(phase, self.step)[:, :-1],
            "anchors": batches.anchors(recipe, phase, self.step, self.run.device),
            "now": self._now(self.step - recipe.target_steps, phase.steps),
        }
        return self._body(phase)(inputs)

    def _draft_work(self, inputs: Inputs) -> Measures:
        tokens, places = inputs["tokens"], inputs["anchors"]
        table = self._views()
        with torch.no_grad():
            passed = self.target.run(table, Batch(tokens), sparse=True)
        drafted = draft.draft(
            table, draft.Context(tokens, passed.taps), places, self.config, self.operations
        )
        loss = self._draft_loss(
            drafted, self._teacher(passed.hidden, places, table), _POSITION_DECAY
        )
        (loss.draft + _CONFIDENCE_WEIGHT * loss.confidence).backward()
        self._apply(inputs["now"])
        self._balance(_DRAFT_BIAS, drafted.load)
        return {
            "draft_loss": loss.draft.detach(),
            "confidence_loss": loss.confidence.detach(),
            "agreement": loss.agreement,
            "overlap": loss.overlap,
        }

    def _teacher(self, hidden: Tensor, places: Tensor, table: Mapping[str, Tensor]) -> Tensor:
        """The target's logits at each anchor's rows: [b, block, vocab]."""
        batch, block = places.shape[0], self.config.dspark_block_size
        rows = places.unsqueeze(-1) + torch.arange(block, device=places.device)
        starts = torch.arange(batch, device=places.device) * (hidden.shape[0] // batch)
        wanted = hidden[(rows + starts.view(-1, 1, 1)).flatten()]
        logits = wanted.to(table["head.weight"].dtype) @ table["head.weight"].T
        return logits.unflatten(0, (places.numel(), block))

    def _sequences(self, phase: Phase, step: int) -> Tensor:
        count = self.recipe.step_tokens // phase.length
        return self.tokens.sequences(step * count, count, phase.length)

    def _now(self, number: int, steps: int) -> Tensor:
        values = self.optimiser.schedule_values(number + 1, self._rate(number, steps))
        return torch.tensor(values, dtype=torch.float32, device=self.run.device)

    def _apply(self, now: Tensor) -> None:
        leaves = self.leaves.tensors
        gradients = {}
        for key in self.trained:
            gradient = leaves[key].grad
            assert gradient is not None, key
            gradients[key] = gradient
        self.optimiser.step(gradients, now)
        for key in self.trained:
            leaves[key].grad = None

    def _balance(self, key: str, loads: Tensor) -> None:
        """Nudge the correction bias of each expert towards an even load."""
        mean = loads.mean(-1, keepdim=True)
        self.masters[key].add_((mean - loads).sign(), alpha=self.recipe.bias_step)

    def _rate(self, number: int, steps: int) -> float:
        recipe = self.recipe
        warm = min(1.0, (number + 1) / recipe.warmup_steps)
        start = recipe.decay_from * steps
        left = 1.0 - max(0.0, (number - start) / (steps - start))
        return warm * (_FINAL_RATE + (1 - _FINAL_RATE) * left)


def _fused(function: Callable[..., object], compiled: bool) -> Callable[..., object]:
    return torch.compile(function, dynamic=False) if compiled else function
