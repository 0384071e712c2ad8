"""What stands before and after the products of a layer on a CPU, a row at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from kernels.numba_bits import bits_at, compiled, exponential, floats_at, narrow, widen

if TYPE_CHECKING:
    from torch import Tensor

    from kernels.fused_linear.reference import Norm

_ONE = np.float32(1.0)


def rms_norm(x: Tensor, norm: Norm) -> Tensor:
    """kernels.norm.reference.rms_norm of bfloat16 rows [rows, width]."""
    x = x.contiguous()
    normed = x.new_empty(x.shape)
    _norm(x.data_ptr(), norm.weight.data_ptr(), norm.eps, normed.data_ptr(), *x.shape)
    return normed


def swiglu(gate_up: Tensor) -> Tensor:
    """kernels.activation.reference.swiglu without a limit, of bfloat16 rows [rows, 2 * width]."""
    rows, both = gate_up.shape
    made = gate_up.new_empty(rows, both // 2)
    _swiglu(gate_up.data_ptr(), made.data_ptr(), rows, both // 2)
    return made


@compiled
def _norm(x, weight, eps, normed, rows, width):
    given, made = bits_at(x, (rows, width)), bits_at(normed, (rows, width))
    gain = floats_at(weight, (width,))
    for row in range(rows):
        squares = np.float32(0.0)
        for i in range(width):
            value = widen(given[row, i])
            squares += value * value
        scale = _ONE / np.sqrt(squares / np.float32(width) + np.float32(eps))
        for i in range(width):
            made[row, i] = narrow(widen(given[row, i]) * scale * gain[i])


@compiled
def _swiglu(gate_up, made, rows, width):
    given, out = bits_at(gate_up, (rows, 2, width)), bits_at(made, (rows, width))
    for row in range(rows):
        for i in range(width):
            gate = widen(given[row, 0, i])
            up = widen(given[row, 1, i])
            out[row, i] = narrow(gate / (_ONE + exponential(-gate)) * up)
