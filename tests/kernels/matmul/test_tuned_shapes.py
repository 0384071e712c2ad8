"""Products with packed weights in every shape that their tables may choose."""

import pytest

from tests.fakes.interpreter import INTERPRETED, run

SHAPES = (
    INTERPRETED
    + """
from kernels.cases_matmul import grouped_linear_case, linear_case
from kernels.cases_moe import packed_experts_case
from kernels.check import check
from kernels.grouped_matmul.triton_packed import PACKED
from kernels.matmul.triton_packed import FEW
from kernels.tuning import forced

products = (
    linear_case(96, 160, (32, 32), 32),
    linear_case(136, 1024, (128, 128), 128),
    grouped_linear_case(3, 64, 96, (32, 32), None),
)
experts = (packed_experts_case(8, 192, 96, 2, 32), packed_experts_case(6, 64, 32, 3, None))
for tunable, cases in ((PACKED, experts), (FEW, products)):
    for config in tunable.candidates[1:]:
        with forced(tunable, config) as asked:
            found = list(check(torch.device("cpu"), rows=(1, 5), reruns=1, cases=cases))
        assert asked, "the table is not read"
        assert found and all(one.passed for one in found), (config, found)
print("agree")
"""
)


def test_products_agree_with_their_definitions_in_every_shape_in_the_interpreter():
    pytest.importorskip("triton", reason="triton is not installed")
    assert "agree" in run(SHAPES, TRITON_INTERPRET="1")
