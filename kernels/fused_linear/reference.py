"""Matrix products with what stands before and after them in a layer: the definitions."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kernels.activation.reference import swiglu
from kernels.matmul.reference import linear
from kernels.norm.reference import rms_norm
from kernels.precision import at_least_float32

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class Norm:
    """An RMS norm: its gain [width], at least float32, and what is added to the mean square."""

    weight: Tensor
    eps: float


def laid_out(weight: Tensor) -> Tensor:
    """A weight [out, in] as the other operations of an implementation take it."""
    return weight


def norm_linear(x: Tensor, norm: Norm, weight: Tensor) -> Tensor:
    """Norm of x [rows, in] times weight [out, in] transposed: [rows, out]."""
    return linear(rms_norm(x, norm.weight, norm.eps), weight)


def norm_swiglu(x: Tensor, norm: Norm, gate_up: Tensor) -> Tensor:
    """silu(gate) * up of the normed x [rows, in]; gate_up [2 * inner, in]: [rows, inner]."""
    return swiglu(norm_linear(x, norm, gate_up), math.inf)


def norm_logits(x: Tensor, norm: Norm, weight: Tensor) -> Tensor:
    """As `norm_linear`, in at least float32; rounded to x's dtype before at most."""
    return norm_linear(x, norm, weight).to(at_least_float32(x.dtype))


def add_linear(total: Tensor, x: Tensor, weight: Tensor) -> Tensor:
    """Add x [rows, in] times weight [out, in] transposed to `total` [rows, out], in place.

    Returns `total`, rounded once where the product is added in a wider type.
    """
    return total.addmm_(x, weight.t())
