"""A norm, a product whose rows do not depend on each other, and what stands after it."""

from __future__ import annotations

import math

from torch import Tensor

from kernels.activation.triton_cuda import swiglu
from kernels.fused_linear.reference import Norm
from kernels.matmul.triton_invariant import linear, wide_linear
from kernels.norm.triton_cuda import rms_norm


def norm_linear(x: Tensor, norm: Norm, weight: Tensor) -> Tensor:
    """See kernels.fused_linear.reference; float32 or bfloat16."""
    return linear(rms_norm(x, norm.weight, norm.eps), weight)


def norm_swiglu(x: Tensor, norm: Norm, gate_up: Tensor) -> Tensor:
    """See kernels.fused_linear.reference; float32 or bfloat16."""
    return swiglu(norm_linear(x, norm, gate_up), math.inf, None)


def norm_logits(x: Tensor, norm: Norm, weight: Tensor) -> Tensor:
    """See kernels.fused_linear.reference; never rounded to bfloat16."""
    return wide_linear(rms_norm(x, norm.weight, norm.eps), weight)


def add_linear(total: Tensor, x: Tensor, weight: Tensor) -> Tensor:
    """See kernels.fused_linear.reference; added in float32 and rounded once."""
    return total.add_(wide_linear(x, weight))
