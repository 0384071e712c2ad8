"""Rotary position embedding on interleaved pairs of the last dimensions: the definition.

Pairs are (2i, 2i+1), rotated as complex numbers by position * frequency_i. YaRN bends the
frequencies towards position / factor for the slow ones (arXiv:2309.00071); this family applies
no attention factor with it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import torch

from kernels.precision import at_least_float32

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class Yarn:
    """How far the context was stretched and which frequencies keep their pace."""

    factor: float
    beta_fast: float
    beta_slow: float
    original_positions: int


def frequencies(width: int, base: float, yarn: Yarn | None = None) -> Tensor:
    """Angles per position of the `width / 2` pairs, float64 on the CPU."""
    pairs = torch.arange(width // 2, dtype=torch.float64)
    plain = base ** (-2.0 * pairs / width)
    if yarn is None:
        return plain
    low = max(math.floor(_pair_that_turns(yarn.beta_fast, width, base, yarn)), 0)
    high = min(math.ceil(_pair_that_turns(yarn.beta_slow, width, base, yarn)), width - 1)
    ramp = ((pairs - low) / max(high - low, 1e-3)).clamp(0, 1)
    return plain / yarn.factor * ramp + plain * (1 - ramp)


def _pair_that_turns(turns: float, width: int, base: float, yarn: Yarn) -> float:
    """Index of the pair that makes `turns` turns over the original context."""
    return width * math.log(yarn.original_positions / (2 * math.pi * turns)) / (2 * math.log(base))


@dataclass(frozen=True, kw_only=True)
class Rotation:
    """Cosines and signed sines of some positions, each value twice: [rows, width]."""

    cos: Tensor
    sin: Tensor  # minus the sine at even places, plus the sine at odd places

    @cached_property
    def inverse(self) -> Rotation:
        """The rotation that undoes this one."""
        return Rotation(cos=self.cos, sin=-self.sin)

    def rows(self, index: Tensor) -> Rotation:
        """The rotation of some of the rows."""
        return Rotation(cos=self.cos[index], sin=self.sin[index])


def rotation(positions: Tensor, freqs: Tensor) -> Rotation:
    """Rotation at integer positions [rows], in the dtype of `freqs` [width / 2].

    Angles are rounded to that dtype, as the released code does in float32.
    """
    angles = positions.to(freqs.dtype)[:, None] * freqs
    sin = angles.sin()
    signed = torch.stack((-sin, sin), -1).flatten(-2)
    return Rotation(cos=angles.cos().repeat_interleave(2, -1), sin=signed)


def rotate(x: Tensor, turn: Rotation) -> Tensor:
    """Rotate the last `width` dimensions of x [rows, ..., dim]; the others pass unchanged.

    Computed in at least float32, rounded once to x's dtype.
    """
    width = turn.cos.shape[-1]
    shape = (x.shape[0], *(1,) * (x.dim() - 2), width)
    tail = x[..., -width:].to(at_least_float32(x.dtype))
    swapped = tail.unflatten(-1, (-1, 2)).flip(-1).flatten(-2)
    turned = torch.addcmul(tail * turn.cos.view(shape), swapped, turn.sin.view(shape))
    return torch.cat((x[..., :-width], turned.to(x.dtype)), -1)
