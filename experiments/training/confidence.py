"""Is the drafter's confidence right, and which temperatures make it so?

Confidence c_k is the logit that draft k is accepted given that the drafts before it were; its
label is 1 - TV of the drafter's and the target's distributions there. What schedulers use is
the survival of a prefix, the product over its drafts, so that is what is calibrated: left to
right, one temperature a position, chosen by a grid search on the error of the product with the
earlier temperatures frozen (sequential temperature scaling, DSpark, arXiv:2607.05147).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from experiments.training import draft
from experiments.training.forward import Batch

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torch import Tensor

    from experiments.training.forward import Target

BINS = 15
_GRID = torch.logspace(-1.0, 1.0, 241, dtype=torch.float64)


@dataclass(frozen=True, kw_only=True)
class Observed:
    """Blocks of drafts: raw confidence logits and 1 - TV at temperature 1, float64."""

    logits: Tensor  # [blocks, draft length]
    overlap: Tensor  # [blocks, draft length]


def observe(
    target: Target, table: Mapping[str, Tensor], tokens: Tensor, anchors: Tensor
) -> Observed:
    """Run one batch of known text, tokens [B, L], and its anchors [B, A]."""
    with torch.no_grad():
        passed = target.run(table, Batch(tokens), sparse=True)
        context = draft.Context(tokens, passed.taps)
        drafted = draft.draft(table, context, anchors, target.config, target.operations)
        block = target.config.dspark_block_size
        rows = anchors.unsqueeze(-1) + torch.arange(block)
        starts = torch.arange(tokens.shape[0]).view(-1, 1, 1) * tokens.shape[1]
        teacher = passed.hidden[(rows + starts).flatten()] @ table["head.weight"].T
        wanted = teacher.softmax(-1).unflatten(0, (-1, block))
        overlap = torch.minimum(wanted, drafted.logits.softmax(-1)).sum(-1)
    return Observed(logits=drafted.confidence.double(), overlap=overlap.double())


def joined(parts: Sequence[Observed]) -> Observed:
    """All blocks of several batches."""
    return Observed(
        logits=torch.cat([part.logits for part in parts]),
        overlap=torch.cat([part.overlap for part in parts]),
    )


def calibrate(observed: Observed) -> tuple[float, ...]:
    """Temperatures of the positions, first to last."""
    survival = torch.ones(len(observed.logits), dtype=torch.float64)
    label = observed.overlap.cumprod(-1)
    temperatures = []
    for position in range(observed.logits.shape[1]):
        logit = observed.logits[:, position]
        errors = [
            calibration_error(survival * (logit / t).sigmoid(), label[:, position]) for t in _GRID
        ]
        best = float(_GRID[min(range(len(errors)), key=errors.__getitem__)])
        temperatures.append(best)
        survival = survival * (logit / best).sigmoid()
    return tuple(temperatures)


def survival_errors(observed: Observed, temperatures: Sequence[float]) -> tuple[float, ...]:
    """Expected calibration error of the cumulative survival at every position."""
    scale = torch.tensor(temperatures, dtype=torch.float64)
    survival = (observed.logits / scale).sigmoid().cumprod(-1)
    label = observed.overlap.cumprod(-1)
    return tuple(
        calibration_error(survival[:, position], label[:, position])
        for position in range(survival.shape[1])
    )


def calibration_error(predicted: Tensor, label: Tensor) -> float:
    """Mean |mean prediction - mean label| over BINS equal bins, weighted by their counts."""
    place = (predicted * BINS).long().clamp(max=BINS - 1)
    gap = torch.zeros(BINS, dtype=predicted.dtype).index_add_(0, place, predicted - label)
    return float(gap.abs().sum() / len(predicted))
