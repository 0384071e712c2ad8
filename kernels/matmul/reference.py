"""Matrix products of the model: the definition."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from kernels.matmul.weights import Weight, dense
from kernels.precision import at_least_float32
from kernels.quantize.reference import round_groups


def linear(x: Tensor, weight: Weight) -> Tensor:
    """x [..., in] times weight [out, in] transposed: [..., out].

    In the dtype of a plain weight; of x where it is packed, and then x is rounded first as the
    weight says.
    """
    if isinstance(weight, Tensor):
        return functional.linear(x.to(weight.dtype), weight)
    return functional.linear(rounded_input(x, weight), dense(weight, x.dtype))


def wide_linear(x: Tensor, weight: Tensor) -> Tensor:
    """x [..., in] times weight [out, in] of the same dtype: [..., out] in at least float32.

    Products are exact and added up in the wide dtype, as logits are.
    """
    wide = at_least_float32(x.dtype)
    return functional.linear(x.to(wide), weight.to(wide))


def grouped_linear(x: Tensor, weight: Weight) -> Tensor:
    """Each group of inputs has its own matrix: x [rows, G, in], weight [G, out, in].

    Returns [rows, G, out], in the dtype of x.
    """
    matrix = dense(weight, x.dtype)
    return torch.bmm(rounded_input(x, weight).transpose(0, 1), matrix.mT).transpose(0, 1)


def rounded_input(x: Tensor, weight: Weight) -> Tensor:
    """x as a product with this weight takes it."""
    if isinstance(weight, Tensor) or weight.input_group is None:
        return x
    return round_groups(x, weight.input_group)
