"""Pooling two tokens into one global row: the definition."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch import Tensor


def pool_pairs(even: Tensor, odd: Tensor) -> Tensor:
    """Weigh the values of two tokens, channel by channel, by the softmax of their gates.

    Each input [rows, 2 * width] holds values and gates side by side. Returns [rows, width].
    """
    values = torch.stack((even, odd)).chunk(2, -1)
    return (values[1].softmax(0) * values[0]).sum(0)
