"""RMS norm against a loop."""

import math

import torch

from kernels.norm.reference import rms_norm


def test_rms_norm_equals_the_loop_formula():
    x = torch.randn(3, 7, dtype=torch.float64)
    weight = torch.randn(7, dtype=torch.float64)
    got = rms_norm(x, weight, 1e-3)
    for r in range(3):
        size = math.sqrt(sum(float(v) ** 2 for v in x[r]) / 7 + 1e-3)
        for i in range(7):
            assert math.isclose(float(got[r, i]), float(weight[i] * x[r, i]) / size, rel_tol=1e-12)


def test_zeros_stay_zeros_at_the_tiny_eps_of_the_release():
    assert torch.equal(rms_norm(torch.zeros(2, 4), torch.ones(4), 1e-20), torch.zeros(2, 4))


def test_bfloat16_is_rounded_once():
    torch.manual_seed(0)  # a value next to a tie may round either way
    x = torch.randn(5, 64, dtype=torch.bfloat16)
    weight = torch.randn(64)
    exact = rms_norm(x.double(), weight.double(), 1e-20)
    assert torch.equal(rms_norm(x, weight, 1e-20), exact.float().bfloat16())
