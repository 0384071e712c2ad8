"""RMS norm of rows that do not lie side by side, through the interpreter."""

import pytest

from tests.fakes.interpreter import INTERPRETED, run

STRIDED = (
    INTERPRETED
    + """
from kernels.norm import reference
from kernels.norm.triton_cuda import rms_norm
held = torch.randn(6, 5, 96)
views = {
    "columns": held[0, :, 8:72],
    "every other value": held[0, :, ::2],
    "turned": held[0].T,
    "middle axis": held[:, 2, :],
    "three axes": held[:, ::2, 16:],
    "turned axes": held.transpose(0, 1),
    "nothing": held[:0, 0],
}
for name, x in views.items():
    weight = torch.rand(x.shape[-1])
    found, exact = rms_norm(x, weight, 1e-6), reference.rms_norm(x, weight, 1e-6)
    torch.testing.assert_close(found, exact, msg=name)
print(len(views))
"""
)


def test_a_row_is_normed_wherever_it_lies():
    pytest.importorskip("triton", reason="triton is not installed")
    assert run(STRIDED, TRITON_INTERPRET="1").strip() == "7"
