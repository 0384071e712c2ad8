"""Frequencies of the rotation of a checkpoint."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch

from kernels.rotary.reference import Yarn, frequencies

if TYPE_CHECKING:
    from torch import Tensor

    from engine.models.causal_lm.config import RopeScaling


def scaled_frequencies(width: int, scaling: RopeScaling) -> Tensor:
    """Angles per position of the `width / 2` pairs, float64 on the CPU."""
    plain = frequencies(width, scaling.rope_theta)
    if scaling.factor is None or scaling.rope_type == "default":
        return plain
    if scaling.rope_type == "linear":
        return plain / scaling.factor
    assert scaling.original_max_position_embeddings is not None
    if scaling.rope_type == "llama3":
        return _llama3(plain, scaling, scaling.factor)
    yarn = Yarn(
        factor=scaling.factor,
        beta_fast=scaling.beta_fast,
        beta_slow=scaling.beta_slow,
        original_positions=scaling.original_max_position_embeddings,
    )
    return frequencies(width, scaling.rope_theta, yarn)


def _llama3(plain: Tensor, scaling: RopeScaling, factor: float) -> Tensor:
    """Slow pairs are stretched, fast ones kept, those between blended by their wavelength.

    The blend goes by turns over the original context, as the release of Llama 3.1 defines it.
    """
    assert scaling.original_max_position_embeddings is not None
    turns = scaling.original_max_position_embeddings * plain / (2 * math.pi)
    low, high = scaling.low_freq_factor, scaling.high_freq_factor
    kept = ((turns - low) / (high - low)).clamp(0, 1)
    return torch.lerp(plain / factor, plain, kept)
