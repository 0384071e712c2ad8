"""The two launches between sublayers, cut small so that each of their ways is taken."""

import pytest

from tests.fakes.interpreter import INTERPRETED, run

FUSED = (
    INTERPRETED
    + """
from kernels import tolerance
from kernels.cases import _streams
from kernels.hyper_connection import reference, triton_fused
from kernels.hyper_connection.triton_cuda_narrow import between_sublayers
from kernels.tuning import forced

cpu = torch.device("cpu")
triton_fused.FEW_ROWS = 20
triton_fused.NORM_BLOCK = 256
for n, width in ((4, 320), (2, 300), (4, 64)):
    make = _streams("between_sublayers", n, width).make
    for rows in (1, 17, 37):
        y, streams, mixed, weight, eps, mixing = arguments = make(rows, torch.bfloat16, cpu)
        for few, many in ((1, 2), (2, 3)):
            config = {"FUSED": 1, "FEW_TILES": few, "MANY_TILES": many}
            with forced(triton_fused.FUSED, config):
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


def test_both_launches_do_as_the_definition_does():
    pytest.importorskip("triton", reason="triton is not installed")
    assert "agree" in run(FUSED, TRITON_INTERPRET="1")
