"""Sampling as one call, from rows whose place is known, to plain tokens."""

from dataclasses import dataclass

import torch

from engine import sampling
from engine.request import SamplingParams
from kernels.ops import REFERENCE


@dataclass(frozen=True)
class Rows:
    """Consecutive rows of one sequence: the first chooses the token at `position`."""

    params: SamplingParams
    seed: int
    rows: int
    position: int
    output_index: int


def choose(logits, groups, eos_token_id):
    """A token for each row of logits; None where a row is not finite."""
    sampled = [
        sampling.SampledRows(
            params=group.params,
            seed=group.seed,
            rows=group.rows,
            prompt_tokens=group.position - group.output_index,
            least_output=group.output_index,
            most_output=group.output_index,
        )
        for group in groups
    ]
    rules = sampling.collect_rules(sampled, eos_token_id)
    tensors = {name: torch.tensor(values) for name, values in rules.ints.items()}
    tensors |= {n: torch.tensor(v, dtype=torch.float64) for n, v in rules.floats.items()}
    positions = torch.tensor([g.position + i for g in groups for i in range(g.rows)])
    choice = sampling.choose(logits, positions, tensors, REFERENCE)
    return [
        token if ok else None
        for token, ok in zip(choice.token_ids.tolist(), choice.is_finite.tolist(), strict=True)
    ]
