"""Scripts whose Triton kernels are interpreted, each in a process of its own."""

import pytest

from tests.kernels.test_triton_kernels import INTERPRETED, run


def interpreted(code):
    """What a script prints; a printed skip where Triton is not installed."""
    pytest.importorskip("triton", reason="triton is not installed")
    return run(INTERPRETED + code, TRITON_INTERPRET="1")
