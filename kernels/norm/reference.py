"""RMS norm: the definition."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernels.precision import at_least_float32

if TYPE_CHECKING:
    from torch import Tensor


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """weight * x / sqrt(mean(x^2) + eps) over the last dimension, rounded once to x's dtype.

    x [..., width], weight [width]; computed in at least float32.
    """
    wide = x.to(at_least_float32(x.dtype))
    scale = (wide.square().mean(-1, keepdim=True) + eps).rsqrt()
    return (wide * scale * weight).to(x.dtype)
