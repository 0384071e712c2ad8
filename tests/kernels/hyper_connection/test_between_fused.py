"""The two launches between sublayers, cut small so that each of their ways is taken."""

import pytest

from tests.fakes.interpreter import INTERPRETED, run

FUSED = (
    INTERPRETED
    + """
from kernels import tolerance
from kernels.cases import _streams
from kernels.hyper_connection import reference, triton_fused
from kernels.hyper_connection.triton_fused import between_sublayers
from kernels.tuning import forced

cpu = torch.device("cpu")
triton_fused.NORM_BLOCK = 256
for n, width in ((4, 320), (2, 300), (4, 64)):
    make = _streams("between_sublayers", n, width).make
    for rows in (1, 17, 37):
        y, streams, mixed, weight, eps, mixing = arguments = make(rows, torch.bfloat16, cpu)
        for tiles in (1, 2, 3):
            with forced(triton_fused.FUSED, {"FUSED": 1, "TILES": tiles}):
                found = between_sublayers(*arguments)
                alone = between_sublayers(*tolerance.first_rows(arguments, rows, 1))
            exact = reference.between_sublayers(*tolerance.widened(arguments))
            # What is mixed next comes from streams as they are stored.
            mixes = reference.mixes(*tolerance.widened((found.streams, mixing)))
            for name, near in mixes._asdict().items():
                torch.testing.assert_close(
                    getattr(found.mixed, name).double(), near, rtol=1e-4, atol=1e-5
                )
            near = {"rtol": 2**-7, "atol": 0.02}
            torch.testing.assert_close(found.streams.double(), exact.streams, **near)
            torch.testing.assert_close(found.x.double(), exact.x, **near)
            pairs = zip(tolerance.tensors(alone), tolerance.tensors(found), strict=True)
            assert all(torch.equal(a, b[:1]) for a, b in pairs), "alone and among others"
print("agree")
"""
)


BY_ROWS = (
    INTERPRETED
    + """
from kernels import tolerance, tuning
from kernels.cases import _streams
from kernels.hyper_connection import (
    triton_cuda, triton_cuda_narrow, triton_fused, triton_invariant
)
from kernels.tuning import forced

cpu = torch.device("cpu")
triton_fused.FEW_ROWS = triton_fused.SOME_ROWS = 20
triton_cuda_narrow.FEW_ROWS = 20  # more are mixed by several in a warp
of_320 = {"few": {"FUSED": 1, "TILES": 1}, "many": {"FUSED": 0, "TILES": 1}}
table = {f"4 streams of 320, {rows} rows": config for rows, config in of_320.items()}
tuning.table = lambda name: {"None": table} if name == "between_fused" else {}
arguments = _streams("between_sublayers", 4, 320).make(37, torch.bfloat16, cpu)
few = tolerance.first_rows(arguments, 37, 20)

def same(first, again):
    pairs = zip(tolerance.tensors(first), tolerance.tensors(again), strict=True)
    return all(torch.equal(a[:20], b) for a, b in pairs)

many = triton_cuda.between_sublayers(*arguments)
assert same(many, triton_invariant.between_sublayers(*few)), "37 rows are served apart"
assert not same(many, triton_cuda.between_sublayers(*few)), "20 rows by the fused launches"
alone = triton_invariant.between_sublayers(*arguments), triton_invariant.between_sublayers(*few)
assert same(*alone)
one_group = {"ROWS": 16, "GROUPS": 1, "num_warps": 4, "num_stages": 2}
with forced(triton_cuda_narrow.PRODUCT, one_group):
    assert same(triton_invariant.between_sublayers(*arguments), alone[1]), "tiles after another"
wide = _streams("between_sublayers", 3, 320).make(37, torch.bfloat16, cpu)
alone = triton_invariant.between_sublayers(*wide), triton_invariant.between_sublayers(
    *tolerance.first_rows(wide, 37, 20)
)
assert same(*alone)
print("agree")
"""
)


def test_both_launches_do_as_the_definition_does():
    pytest.importorskip("triton", reason="triton is not installed")
    assert "agree" in run(FUSED, TRITON_INTERPRET="1")


def test_few_rows_are_fused_and_in_the_invariant_mode_no_number_of_rows_changes_one():
    pytest.importorskip("triton", reason="triton is not installed")
    assert "agree" in run(BY_ROWS, TRITON_INTERPRET="1")
