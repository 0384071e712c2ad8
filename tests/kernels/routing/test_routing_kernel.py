"""Choosing experts: slices added by either launch are the same bits, and equals go by their ids."""

import pytest

from tests.fakes.interpreter import interpreted

CHOSEN = """
from kernels.routing import reference, triton_cuda
from kernels.routing.reference import Router

EXPERTS, ROWS = 70, 19
weight, bias = torch.randn(EXPERTS, 600) / 600**0.5, torch.rand(EXPERTS)
weight[3], weight[7], bias[3], bias[7] = 0.0, 0.0, 3.0, 3.0  # equal whatever the order of sums
live = torch.rand(ROWS) < 0.7
for dtypes in ((torch.float32, torch.float32), (torch.bfloat16, torch.float32),
               (torch.bfloat16, torch.bfloat16)):
    for normalise in (True, False):
        rows, held = torch.randn(ROWS, 600).to(dtypes[0]), weight.to(dtypes[1])
        router = Router(
            weight=held, bias=bias, experts_per_token=5, normalise=normalise, scale=1.5
        )
        for name in ("route", "route_by_softmax"):
            kernel = getattr(triton_cuda, name)
            triton_cuda.WHOLE_FROM = 1024
            found, found_weights = kernel(rows, router, live)
            assert (found[~live] == -1).all()
            triton_cuda.WHOLE_FROM = 1
            whole, whole_weights = kernel(rows, router, None)
            assert torch.equal(whole[live], found[live])
            assert torch.equal(whole_weights, found_weights), "the same bits"
            triton_cuda.WHOLE_FROM = 1024
            for row in (0, ROWS - 1):
                alone, alone_weights = kernel(rows[row : row + 1], router, None)
                assert torch.equal(alone[0], whole[row])
                # Bits are for a device: the host multiplies other shapes in other orders.
                torch.testing.assert_close(alone_weights[0], whole_weights[row])
            exact, exact_weights = getattr(reference, name)(rows, router, live)
            assert torch.equal(found, exact), name
            torch.testing.assert_close(found_weights, exact_weights, rtol=3e-6, atol=1e-7)
            assert (whole[:, 0] == 3).all() and (whole[:, 1] == 7).all(), "equals by their ids"
weight[3] = torch.nan
router = Router(weight=weight, bias=bias, experts_per_token=5, normalise=True, scale=1.5)
for rows in (torch.randn(4, 600), torch.full((4, 600), torch.nan)):
    for name in ("route", "route_by_softmax"):
        chosen, _ = getattr(triton_cuda, name)(rows, router)
        assert all(len(set(r)) == 5 and set(r) <= set(range(EXPERTS)) for r in chosen.tolist())
print("agree")
"""


@pytest.mark.timeout(200)
def test_a_row_chooses_the_same_experts_however_its_products_are_cut():
    assert "agree" in interpreted(CHOSEN)
