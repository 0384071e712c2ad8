"""Choosing experts in one launch: the same as in two, bit by bit, and one launch after another."""

import pytest

from tests.fakes.interpreter import INTERPRETED, run

FUSED = (
    INTERPRETED
    + """
from kernels.routing import reference, triton_fused
from kernels.routing.reference import Router

EXPERTS = 40
weight, bias = torch.randn(EXPERTS, 700) / 700**0.5, torch.rand(EXPERTS)
weight[7], bias[3], bias[7] = weight[3], 3.0, 3.0
for normalise in (True, False):
    router = Router(
        weight=weight, bias=bias, experts_per_token=5, normalise=normalise, scale=1.5
    )
    for rows in (torch.randn(11, 700), torch.randn(11, 700).bfloat16()):
        for name in ("route", "route_by_softmax"):
            fused = getattr(triton_fused, name)
            triton_fused.MOST_FUSED_ROWS = 64
            found, found_weights = fused(rows, router)
            assert triton_fused._ended(rows.device).item() == 0, "it begins where it began"
            again, again_weights = fused(rows, router)
            assert torch.equal(found, again) and torch.equal(found_weights, again_weights)
            triton_fused.MOST_FUSED_ROWS = 10
            apart, apart_weights = fused(rows, router)
            assert torch.equal(found, apart) and torch.equal(found_weights, apart_weights)
            exact, exact_weights = getattr(reference, name)(rows, router)
            assert torch.equal(found, exact), name
            torch.testing.assert_close(found_weights, exact_weights, rtol=3e-6, atol=1e-7)
            assert ((found == 3).any(1) & (found == 7).any(1)).all(), "they are equal"
weight[3] = torch.nan
for rows in (torch.randn(4, 700), torch.full((4, 700), torch.nan)):
    for name in ("route", "route_by_softmax"):
        chosen, _ = getattr(triton_fused, name)(rows, router)
        assert all(len(set(r)) == 5 and set(r) <= set(range(EXPERTS)) for r in chosen.tolist())
print("agree")
"""
)


def test_one_launch_chooses_what_two_choose_and_what_the_definition_does():
    pytest.importorskip("triton", reason="triton is not installed")
    assert "agree" in run(FUSED, TRITON_INTERPRET="1")
