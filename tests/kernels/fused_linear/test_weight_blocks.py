"""Weights that oneDNN has laid out, read where they lie."""

import ctypes

import pytest
import torch

from engine.accelerator.cpu import CpuAccelerator
from kernels.fused_linear.blocks import OUTPUTS, block_address
from kernels.fused_linear.torch_cpu import laid_out

if not (CpuAccelerator().target().has_laid_out_products and CpuAccelerator().target().has_numba):
    pytest.skip("no bfloat16 products of oneDNN, or no numba here", allow_module_level=True)


def test_a_weight_that_lies_in_blocks_is_found_with_its_values():
    torch.manual_seed(0)
    plain = torch.randn(192, 128).bfloat16()
    weight = laid_out(plain)
    address = block_address(weight)
    if address is None:
        pytest.skip("oneDNN lays weights out in another way on this processor")
    bits = (ctypes.c_int16 * plain.numel()).from_address(address)
    found = torch.frombuffer(bits, dtype=torch.int16).view(torch.bfloat16)
    blocks = found.view(192 // OUTPUTS, 64, OUTPUTS, 2).transpose(1, 2)
    assert torch.equal(blocks.reshape(192, 128), plain)


@pytest.mark.parametrize("shape", [(96, 128), (128, 129), (33, 7)])
def test_a_weight_with_a_part_of_a_block_is_not(shape):
    assert block_address(laid_out(torch.zeros(shape).bfloat16())) is None
