"""Logits of few rows in one compiled loop, against the library's product and the definition."""

import pytest
import torch

from engine.accelerator.cpu import CpuAccelerator
from kernels import tolerance
from kernels.cases_causal import product_case
from kernels.fused_linear.numba_logits import norm_logits
from kernels.fused_linear.torch_cpu import laid_out
from kernels.ops import REFERENCE

HOST = CpuAccelerator().target()
if not (HOST.has_laid_out_products and HOST.has_numba):
    pytest.skip("no bfloat16 products of oneDNN, or no numba here", allow_module_level=True)

CASES = [
    product_case("norm_logits", 128, 192),
    product_case("norm_logits", 96, 640),
    product_case("norm_logits", 96, 100),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
@pytest.mark.parametrize("rows", [0, 1, 2, 3, 4, 5])
def test_logits_agree_with_their_definition(case, rows):
    torch.manual_seed(0)
    x, norm, weight = case.make(rows, torch.bfloat16, torch.device("cpu"))
    found = norm_logits(x, norm, laid_out(weight))
    exact = REFERENCE.norm_logits(*tolerance.widened((x, norm, weight)))
    assert (found.shape, found.dtype) == (exact.shape, torch.float32)
    assert tolerance.error(found, exact) <= case.bfloat16_limit


def test_a_row_is_the_same_beside_others_and_in_any_number_of_threads():
    torch.manual_seed(1)
    x, norm, weight = CASES[0].make(4, torch.bfloat16, torch.device("cpu"))
    laid, before = laid_out(weight), torch.get_num_threads()
    together = norm_logits(x, norm, laid)
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            for at in (slice(0, 4), slice(0, 1), slice(1, 3), slice(1, 4)):
                assert torch.equal(norm_logits(x[at], norm, laid), together[at])
    finally:
        torch.set_num_threads(before)
