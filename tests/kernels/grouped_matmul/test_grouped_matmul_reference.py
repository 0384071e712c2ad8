"""Experts against a loop over rows."""

import pytest
import torch

from kernels.activation.reference import swiglu
from kernels.grouped_matmul.reference import Experts, run_experts
from kernels.matmul.weights import Mxfp4Weight
from kernels.quantize.reference import quantise_mxfp4


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


@pytest.mark.parametrize("rows", [1, 3, 40])
def test_a_negative_choice_adds_nothing_whatever_the_row_holds(rows):
    experts = Experts(
        gate_up=torch.randn(5, 6, 4, dtype=torch.float64),
        down=torch.randn(5, 4, 3, dtype=torch.float64),
        limit=10.0,
    )
    x = torch.randn(rows, 4, dtype=torch.float64)
    chosen = torch.stack([torch.randperm(5)[:3] for _ in range(rows)])
    chosen[:, 1] = -1
    weights, shared = torch.rand(rows, 3), torch.randn(rows, 4, dtype=torch.float64)
    got = run_experts(x, experts, chosen, weights, shared)
    kept = [0, 2]
    assert torch.equal(got, run_experts(x, experts, chosen[:, kept], weights[:, kept], shared))
    dead = torch.full_like(x, torch.nan)
    assert torch.equal(
        run_experts(dead, experts, torch.full_like(chosen, -1), weights, shared), shared
    )


@pytest.mark.parametrize("rows", [1, 9])
def test_packed_experts_are_the_matrices_they_stand_for(rows):
    def packed(*shape):
        packed, scales = quantise_mxfp4(torch.randn(shape).flatten(0, 1))
        return Mxfp4Weight(
            packed=packed.view(torch.uint8).unflatten(0, shape[:2]),
            scales=scales.view(torch.uint8).unflatten(0, shape[:2]),
            input_group=None,
        )

    experts = Experts(gate_up=packed(4, 64, 96), down=packed(4, 96, 32), limit=10.0)
    plain = Experts(
        gate_up=experts.gate_up.dequantised().double(),
        down=experts.down.dequantised().double(),
        limit=10.0,
    )
    x = torch.randn(rows, 96, dtype=torch.float64)
    chosen = torch.stack([torch.randperm(4)[:2] for _ in range(rows)])
    arguments = chosen, torch.rand(rows, 2), torch.randn_like(x)
    torch.testing.assert_close(
        run_experts(x, experts, *arguments), run_experts(x, plain, *arguments)
    )
