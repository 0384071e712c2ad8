"""Products of bfloat16 on a CPU, by oneDNN from weights that it has laid out for itself.

Laying them out at each call, as torch does for plain weights, costs as much as a product of a
few rows. The operations are those that torch.compile calls.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from kernels.activation.reference import swiglu
from kernels.fused_linear.reference import Norm
from kernels.norm.reference import rms_norm

ROWS = 16  # that the layout is chosen for


def laid_out(weight: Tensor) -> Tensor:
    """See kernels.fused_linear.reference; a copy that only the products here can read."""
    return torch.ops.mkldnn._reorder_linear_weight(weight, ROWS)


def norm_linear(x: Tensor, norm: Norm, weight: Tensor) -> Tensor:
    """See kernels.fused_linear.reference; weight laid out."""
    normed = rms_norm(x, norm.weight, norm.eps)
    return torch.ops.mkldnn._linear_pointwise(normed, weight, None, "none", [], "")


def norm_swiglu(x: Tensor, norm: Norm, gate_up: Tensor) -> Tensor:
    """See kernels.fused_linear.reference; gate_up laid out."""
    return swiglu(norm_linear(x, norm, gate_up), math.inf)


def norm_logits(x: Tensor, norm: Norm, weight: Tensor) -> Tensor:
    """See kernels.fused_linear.reference; weight laid out."""
    return norm_linear(x, norm, weight).float()


def add_linear(total: Tensor, x: Tensor, weight: Tensor) -> Tensor:
    """See kernels.fused_linear.reference; weight laid out."""
    return torch.ops.mkldnn._linear_pointwise.binary(x, total, weight, None, "add")
