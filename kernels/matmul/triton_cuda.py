"""Products that several kernels make, and matrix products with packed weights."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.nn import functional

from kernels.matmul import reference, triton_hopper
from kernels.matmul.triton_packed import (
    LIBRARY_TILE,
    MOST_FEW_ROWS,
    NARROW_ROWS,
    dequantised,
    few_rows,
    many_rows,
    suits_library,
)
from kernels.matmul.weights import Fp8Weight, Weight

TILE_SIDES = (32, 64, 128)


@triton.jit
def float32_product(x, weight, total, NARROW: tl.constexpr):
    """total + x . weight with float32 weights, as exact as float32 is.

    NARROW: x is bfloat16, and three bfloat16 hold a float32, so matrix instructions do it.
    """
    if NARROW:
        high = weight.to(tl.bfloat16)
        rest = weight - high.to(tl.float32)
        middle = rest.to(tl.bfloat16)
        low = (rest - middle.to(tl.float32)).to(tl.bfloat16)
        total = tl.dot(x, low, total)
        total = tl.dot(x, middle, total)
        total = tl.dot(x, high, total)
    else:
        total = tl.dot(x, weight, total, input_precision="ieee")
    return total


def wide_linear(x: Tensor, weight: Tensor) -> Tensor:
    """See kernels.matmul.reference; bfloat16 is read as it is and added up in float32."""
    if x.dtype != torch.bfloat16 or not x.is_cuda:  # the interpreter
        return reference.wide_linear(x, weight)
    flat = x.reshape(-1, x.shape[-1])
    return torch.mm(flat, weight.T, out_dtype=torch.float32).unflatten(0, x.shape[:-1])


def linear(x: Tensor, weight: Weight) -> Tensor:
    """See kernels.matmul.reference. Plain matrices by the library of the device; fp8 tiles with
    bfloat16 x by kernels; anything else by the definition.
    """
    if isinstance(weight, Tensor):
        return functional.linear(x.to(weight.dtype), weight)
    if not isinstance(weight, Fp8Weight) or not suits_kernels(x, weight):
        return reference.linear(x, weight)
    flat = x.reshape(-1, x.shape[-1]).contiguous()
    return _product(flat, weight).unflatten(0, x.shape[:-1])


def _product(x: Tensor, weight: Fp8Weight) -> Tensor:
    if not len(x):
        return x.new_empty(0, weight.shape[0])
    if triton_hopper.suits(x.unsqueeze(1), weight):
        return triton_hopper.product(x.unsqueeze(1), weight).squeeze(1)
    is_whole = suits_library(x, weight) and weight.tile[0] == LIBRARY_TILE
    most = NARROW_ROWS if is_whole else MOST_FEW_ROWS
    if len(x) <= most:
        return few_rows(x.unsqueeze(1), weight).squeeze(1)
    return many_rows(x, weight)


def grouped_linear(x: Tensor, weight: Weight) -> Tensor:
    """See kernels.matmul.reference; as `linear`."""
    plain_inputs = isinstance(weight, Fp8Weight) and weight.input_group is None
    if not plain_inputs or not suits_kernels(x, weight) or not len(x):
        return reference.grouped_linear(x, weight)
    if triton_hopper.suits(x, weight):
        return triton_hopper.product(x, weight)
    if len(x) <= MOST_FEW_ROWS:
        return few_rows(x.contiguous(), weight)
    out = x.new_empty(len(x), *weight.shape[:2])  # as it is read: nobody has to copy it
    torch.bmm(x.transpose(0, 1), dequantised(weight).mT, out=out.transpose(0, 1))
    return out


def suits_kernels(x: Tensor, weight: Fp8Weight) -> bool:
    """Whether the kernels here multiply x [..., inputs] by such tiles."""
    *_, outputs, _ = weight.shape
    tiles = all(side in TILE_SIDES for side in weight.tile)
    whole = weight.values.ndim == 2 or outputs % weight.tile[0] == 0
    group = weight.input_group
    return (
        x.dtype == torch.bfloat16
        and tiles
        and whole
        and (group is None or (group in TILE_SIDES and x.shape[-1] % group == 0))
    )
