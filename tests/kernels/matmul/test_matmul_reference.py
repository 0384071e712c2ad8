"""Products against loops."""

import torch

from kernels.matmul.reference import grouped_linear, linear, wide_linear


def test_linear_takes_the_dtype_of_the_weight():
    x, weight = torch.randn(2, 3), torch.randn(4, 3, dtype=torch.float64)
    got = linear(x, weight)
    assert got.dtype == torch.float64
    for r in range(2):
        for o in range(4):
            expected = sum(float(x[r, i]) * float(weight[o, i]) for i in range(3))
            torch.testing.assert_close(float(got[r, o]), expected)


def test_each_group_has_its_own_matrix():
    x = torch.randn(5, 3, 4, dtype=torch.float64)
    weight = torch.randn(3, 2, 4, dtype=torch.float64)
    got = grouped_linear(x, weight)
    for r in range(5):
        for g in range(3):
            torch.testing.assert_close(got[r, g], weight[g] @ x[r, g])


def test_a_wide_product_rounds_its_inputs_no_further():
    x, weight = torch.randn(3, 64).bfloat16(), torch.randn(5, 64).bfloat16()
    found = wide_linear(x, weight)
    assert found.dtype == torch.float32
    exact = x.double() @ weight.double().T
    assert (found - exact).abs().max() < 1e-5
