"""What stands before and after the products of a layer on a CPU, a row at a time."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

import numpy as np

from kernels import numba_team
from kernels.numba_bits import (
    bits_at,
    compiled,
    doubles_at,
    exponential,
    floats_at,
    indices_at,
    narrow,
    widen,
)
from kernels.numba_team import taken, team_loop

if TYPE_CHECKING:
    from torch import Tensor

    from kernels.fused_linear.reference import Norm

_ONE = np.float32(1.0)
ROWS = 8  # that a thread takes at once
WORTH_SHARING = 50_000  # values


def rms_norm(x: Tensor, norm: Norm) -> Tensor:
    """kernels.norm.reference.rms_norm of bfloat16 rows [rows, width]."""
    x = x.contiguous()
    normed = x.new_empty(x.shape)
    eps = array("d", (norm.eps,))
    addresses = x.data_ptr(), normed.data_ptr(), norm.weight.data_ptr(), eps.buffer_info()[0]
    numba_team.run(_norm, *addresses, *x.shape, is_worth=x.numel() > WORTH_SHARING)
    return normed


def swiglu(gate_up: Tensor) -> Tensor:
    """kernels.activation.reference.swiglu without a limit, of bfloat16 rows [rows, 2 * width]."""
    rows, both = gate_up.shape
    made = gate_up.new_empty(rows, both // 2)
    addresses = gate_up.data_ptr(), made.data_ptr()
    numba_team.run(_swiglu, *addresses, *made.shape, is_worth=made.numel() > WORTH_SHARING // 2)
    return made


@compiled
def norm_wide(given, gain, eps, normed) -> None:
    """Norm of float32 rows [rows, width] that hold what bfloat16 can, and so does the norm."""
    rows, width = given.shape
    weight = floats_at(gain, (width,))
    for row in range(rows):
        squares = np.float32(0.0)
        for i in range(width):
            squares += given[row, i] * given[row, i]
        scale = _ONE / np.sqrt(squares / np.float32(width) + np.float32(eps))
        for i in range(width):
            normed[row, i] = widen(narrow(given[row, i] * scale * weight[i]))


@compiled
def widen_rows(given, wide) -> None:
    """Rows [rows, width] of the bits of bfloat16 as float32."""
    for row in range(given.shape[0]):
        for i in range(given.shape[1]):
            wide[row, i] = widen(given[row, i])


@team_loop
def _norm(arguments):
    held = indices_at(arguments, (7,))
    rows, width = held[5], held[6]
    given, made = bits_at(held[1], (rows, width)), bits_at(held[2], (rows, width))
    gain, eps = floats_at(held[3], (width,)), np.float32(doubles_at(held[4], (1,))[0])
    first = taken(arguments) * ROWS
    while first < rows:
        for row in range(first, min(first + ROWS, rows)):
            squares = np.float32(0.0)
            for i in range(width):
                value = widen(given[row, i])
                squares += value * value
            scale = _ONE / np.sqrt(squares / np.float32(width) + eps)
            for i in range(width):
                made[row, i] = narrow(widen(given[row, i]) * scale * gain[i])
        first = taken(arguments) * ROWS


@team_loop
def _swiglu(arguments):
    held = indices_at(arguments, (5,))
    rows, width = held[3], held[4]
    given, made = bits_at(held[1], (rows, 2, width)), bits_at(held[2], (rows, width))
    first = taken(arguments) * ROWS
    while first < rows:
        for row in range(first, min(first + ROWS, rows)):
            for i in range(width):
                gate, up = widen(given[row, 0, i]), widen(given[row, 1, i])
                made[row, i] = narrow(gate / (_ONE + exponential(-gate)) * up)
        first = taken(arguments) * ROWS
