"""Products of bfloat16 on a CPU, by oneDNN from weights that it has laid out for itself.

Laying them out at each call, as torch does for plain weights, costs as much as a product of a
few rows. The operations are those that torch.compile calls. What stands around them computes in
place: a fresh float32 copy of the rows of a long prompt costs as much as half of their product.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from kernels.fused_linear.reference import Norm

ROWS = 16  # that the layout is chosen for


def laid_out(weight: Tensor) -> Tensor:
    """See kernels.fused_linear.reference; a copy that only the products here can read."""
    return torch.ops.mkldnn._reorder_linear_weight(weight, ROWS)


def norm_linear(x: Tensor, norm: Norm, weight: Tensor) -> Tensor:
    """See kernels.fused_linear.reference; weight laid out."""
    return torch.ops.mkldnn._linear_pointwise(_normed(x, norm), weight, None, "none", [], "")


def norm_swiglu(x: Tensor, norm: Norm, gate_up: Tensor) -> Tensor:
    """See kernels.fused_linear.reference; gate_up laid out."""
    gate, up = norm_linear(x, norm, gate_up).chunk(2, -1)
    return functional.silu(gate.float(), inplace=True).mul_(up).to(x.dtype)


def norm_logits(x: Tensor, norm: Norm, weight: Tensor) -> Tensor:
    """See kernels.fused_linear.reference; weight laid out."""
    return norm_linear(x, norm, weight).float()


def add_linear(total: Tensor, x: Tensor, weight: Tensor) -> Tensor:
    """See kernels.fused_linear.reference; weight laid out."""
    return torch.ops.mkldnn._linear_pointwise.binary(x, total, weight, None, "add")


def _normed(x: Tensor, norm: Norm) -> Tensor:
    """kernels.norm.reference.rms_norm of bfloat16 rows."""
    wide = x.float()
    length = torch.linalg.vector_norm(wide, dim=-1, keepdim=True)
    scale = length.square_().div_(x.shape[-1]).add_(norm.eps).rsqrt_()
    return wide.mul_(scale).mul_(norm.weight).to(x.dtype)
