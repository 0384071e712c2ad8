"""SwiGLU against a loop."""

import math

import torch

from kernels.activation.reference import swiglu


def test_gate_is_cut_above_and_up_on_both_sides():
    gate_up = torch.tensor([[12.0, -30.0, 0.5, 7.0, -7.0, 1.5]], dtype=torch.float64)
    weight = torch.tensor([0.25], dtype=torch.float64)
    got = swiglu(gate_up, 5.0, weight)
    for i in range(3):
        gate = min(float(gate_up[0, i]), 5.0)
        up = min(max(float(gate_up[0, 3 + i]), -5.0), 5.0)
        expected = 0.25 * gate / (1 + math.exp(-gate)) * up
        assert math.isclose(float(got[0, i]), expected, rel_tol=1e-12)


def test_no_weight_means_one():
    gate_up = torch.randn(4, 6)
    assert torch.equal(swiglu(gate_up, 10.0), swiglu(gate_up, 10.0, torch.ones(4)))
