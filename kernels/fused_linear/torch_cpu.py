"""Products of bfloat16 on a CPU, by oneDNN from weights that it has laid out for itself.

Laying them out at each call, as torch does for plain weights, costs as much as a product of a
few rows. The operations are those that torch.compile calls. Norms and gates between them are
compiled loops: a chain of operations of the library costs five times as much for a few rows.
"""

from __future__ import annotations

import torch
from torch import Tensor

from kernels.fused_linear.numba_rows import rms_norm, swiglu
from kernels.fused_linear.reference import Norm

ROWS = 16  # that the layout is chosen for
_product = torch.ops.mkldnn._linear_pointwise.default
_sum = torch.ops.mkldnn._linear_pointwise.binary


def laid_out(weight: Tensor) -> Tensor:
    """See kernels.fused_linear.reference; a copy that only the products here can read."""
    return torch.ops.mkldnn._reorder_linear_weight(weight, ROWS)


def norm_linear(x: Tensor, norm: Norm, weight: Tensor) -> Tensor:
    """See kernels.fused_linear.reference; weight laid out."""
    return _product(rms_norm(x, norm), weight, None, "none", [], "")


def norm_swiglu(x: Tensor, norm: Norm, gate_up: Tensor) -> Tensor:
    """See kernels.fused_linear.reference; gate_up laid out."""
    return swiglu(norm_linear(x, norm, gate_up))


def norm_logits(x: Tensor, norm: Norm, weight: Tensor) -> Tensor:
    """See kernels.fused_linear.reference; weight laid out."""
    return norm_linear(x, norm, weight).float()


def add_linear(total: Tensor, x: Tensor, weight: Tensor) -> Tensor:
    """See kernels.fused_linear.reference; weight laid out."""
    return _sum(x, total, weight, None, "add")
