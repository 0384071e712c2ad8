"""SwiGLU with a limit: the definition."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch.nn import functional

from kernels.precision import at_least_float32

if TYPE_CHECKING:
    from torch import Tensor


def swiglu(gate_up: Tensor, limit: float, weight: Tensor | None = None) -> Tensor:
    """weight * silu(min(gate, limit)) * clamp(up, -limit, limit), gate and up side by side.

    gate_up [rows, 2 * width], weight [rows] or None for 1. Computed in at least float32,
    rounded once to the dtype of gate_up. Returns [rows, width].
    """
    gate, up = gate_up.to(at_least_float32(gate_up.dtype)).chunk(2, -1)
    y = functional.silu(gate.clamp(max=limit)) * up.clamp(-limit, limit)
    if weight is not None:
        y = y * weight[:, None]
    return y.to(gate_up.dtype)
