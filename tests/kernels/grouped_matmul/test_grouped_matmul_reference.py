"""Experts against a loop over rows."""

import pytest
import torch

from kernels.activation.reference import swiglu
from kernels.grouped_matmul.reference import Experts, run_experts


@pytest.mark.parametrize("rows", [1, 3, 40])
def test_rows_pass_through_their_experts(rows):
    experts = Experts(
        gate_up=torch.randn(5, 6, 4, dtype=torch.float64),
        down=torch.randn(5, 4, 3, dtype=torch.float64),
        limit=10.0,
    )
    x = torch.randn(rows, 4, dtype=torch.float64)
    chosen = torch.stack([torch.randperm(5)[:2] for _ in range(rows)])
    weights = torch.rand(rows, 2, dtype=torch.float64)
    shared = torch.randn(rows, 4, dtype=torch.float64)
    got = run_experts(x, experts, chosen, weights, shared)
    for r in range(rows):
        expected = shared[r].clone()
        for slot in range(2):
            e = int(chosen[r, slot])
            inner = swiglu((experts.gate_up[e] @ x[r])[None], 10.0, weights[r, slot][None])[0]
            expected += experts.down[e] @ inner
        torch.testing.assert_close(got[r], expected)


def test_the_sum_is_rounded_once():
    experts = Experts(
        gate_up=torch.randn(2, 6, 4).bfloat16(), down=torch.randn(2, 4, 3).bfloat16(), limit=10.0
    )
    x, chosen = torch.randn(2, 4).bfloat16(), torch.tensor([[0], [1]])
    alone = run_experts(x, experts, chosen, torch.ones(2, 1), torch.zeros(2, 4).bfloat16())
    both = torch.cat((chosen, 1 - chosen), 1)
    twice = run_experts(x, experts, both, torch.ones(2, 2), torch.ones(2, 4).bfloat16())
    other = run_experts(x, experts, 1 - chosen, torch.ones(2, 1), torch.zeros(2, 4).bfloat16())
    assert torch.equal(twice, (alone.float() + other.float() + 1).bfloat16())
