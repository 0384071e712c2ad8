"""Matrix products of the model: the definition."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch.nn import functional

if TYPE_CHECKING:
    from torch import Tensor


def linear(x: Tensor, weight: Tensor) -> Tensor:
    """x [..., in] times weight [out, in] transposed, in the dtype of the weight."""
    return functional.linear(x.to(weight.dtype), weight)


def grouped_linear(x: Tensor, weight: Tensor) -> Tensor:
    """Each group of inputs has its own matrix: x [rows, G, in], weight [G, out, in].

    Returns [rows, G, out].
    """
    return torch.bmm(x.transpose(0, 1), weight.mT).transpose(0, 1)
