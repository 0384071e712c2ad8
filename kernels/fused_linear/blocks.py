"""Weights that oneDNN has laid out, as blocks that loops of our own can read where they lie."""

from __future__ import annotations

import ctypes
from functools import cache
from typing import TYPE_CHECKING

import torch

from kernels.fused_linear.torch_cpu import laid_out

if TYPE_CHECKING:
    from torch import Tensor

OUTPUTS = 64  # of a block
INPUTS = 32  # that are laid out together: with fewer there is padding
PATTERNS = 32_633  # of finite values; a prime, so that they repeat in no step of a layout


def block_address(weight: Tensor) -> int | None:
    """Where what `laid_out` made of a weight [out, in] lies as blocks, as long as it lives.

    [out / OUTPUTS, in / 2, OUTPUTS, 2] bfloat16 values. None where oneDNN lays a weight of that
    shape out in another way on this processor, for as many threads as torch had then, or torch
    does not tell where.
    """
    outputs, inputs = weight.shape
    if outputs % OUTPUTS or inputs % INPUTS or not _can_tell():
        return None
    return _address(weight) if _lies_in_blocks(outputs, inputs, _layout(weight)) else None


@cache
def _can_tell() -> bool:
    names = "data_ptr", "_nbytes", "_get_mkldnn_serialized_md"
    return all(hasattr(torch.ops.mkldnn, name) for name in names)


def _layout(weight: Tensor) -> bytes:
    """How its values lie, in words of the library's own."""
    return bytes(torch.ops.mkldnn._get_mkldnn_serialized_md(weight).numpy())


@cache
def _lies_in_blocks(outputs: int, inputs: int, layout: bytes) -> bool:
    """Found by looking at where the values of a weight of that shape come to lie.

    False, too, where such a weight is now laid out in another way.
    """
    values = torch.arange(PATTERNS, dtype=torch.int16).repeat(outputs * inputs // PATTERNS + 1)
    plain = values[: outputs * inputs].view(outputs, inputs)
    weight = laid_out(plain.view(torch.bfloat16))
    if _layout(weight) != layout or int(torch.ops.mkldnn._nbytes(weight)) != plain.nbytes:
        return False
    laid = (ctypes.c_int16 * plain.numel()).from_address(_address(weight))
    blocks = plain.view(outputs // OUTPUTS, OUTPUTS, inputs // 2, 2).transpose(1, 2)
    return torch.equal(torch.frombuffer(laid, dtype=torch.int16).view(blocks.shape), blocks)


def _address(weight: Tensor) -> int:
    return int(torch.ops.mkldnn.data_ptr(weight))
