"""Logits of few rows on a CPU, in one compiled loop that streams the weight."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

import numpy as np
import torch

from kernels import numba_team
from kernels.fused_linear import torch_cpu
from kernels.fused_linear.blocks import OUTPUTS, block_address
from kernels.fused_linear.numba_blocks import MOST_ROWS, PAIR_BYTES, multiply_four, multiply_two
from kernels.fused_linear.numba_rows import norm_wide, widen_rows
from kernels.numba_bits import bits_at, doubles_at, floats_at, indices_at, narrow, widen
from kernels.numba_team import taken, team_loop

if TYPE_CHECKING:
    from torch import Tensor

    from kernels.fused_linear.reference import Norm

STREAMS = 4  # blocks at once


def norm_logits(x: Tensor, norm: Norm, weight: Tensor) -> Tensor:
    """See kernels.fused_linear.reference; weight laid out by kernels.fused_linear.torch_cpu."""
    is_few = 1 <= len(x) <= MOST_ROWS and numba_team.is_shared()
    address = block_address(weight) if is_few else None
    if address is None:
        return torch_cpu.norm_logits(x, norm, weight)
    x, (outputs, inputs) = x.contiguous(), weight.shape
    logits = x.new_empty(len(x), outputs, dtype=torch.float32)
    eps = array("d", (norm.eps,))
    addresses = x.data_ptr(), norm.weight.data_ptr(), eps.buffer_info()[0], address
    numba_team.run(_logits, *addresses, logits.data_ptr(), *logits.shape, inputs, is_worth=True)
    return logits


@team_loop
def _logits(arguments):
    held = indices_at(arguments, (9,))
    rows, outputs, inputs = held[6:9]
    wide, normed = np.empty((rows, inputs), np.float32), np.empty((rows, inputs), np.float32)
    made, eps = floats_at(held[5], (rows, outputs)), doubles_at(held[3], (1,))[0]
    widen_rows(bits_at(held[1], (rows, inputs)), wide)
    norm_wide(wide, held[2], eps, normed)
    pairs, steps = inputs // 2, (4 * inputs, 4 * outputs)
    block_bytes, made_bytes, blocks = pairs * PAIR_BYTES, 4 * OUTPUTS, outputs // OUTPUTS
    first = STREAMS * taken(arguments)
    while first < blocks:
        last = min(first + STREAMS, blocks)
        place, to = held[4] + first * block_bytes, held[5] + first * made_bytes
        if last - first == STREAMS:
            near, far = (block_bytes, 0, made_bytes), (2 * block_bytes, 0, 2 * made_bytes)
            multiply_four(rows, place, normed.ctypes.data, to, near, far, steps, pairs)
        else:  # each beside itself
            for number in range(last - first):
                here, there = place + number * block_bytes, to + number * made_bytes
                multiply_two(rows, here, normed.ctypes.data, there, (0, 0, 0), steps, pairs)
        for row in range(rows):
            for at in range(OUTPUTS * first, OUTPUTS * last):
                made[row, at] = widen(narrow(made[row, at]))
        first = STREAMS * taken(arguments)
