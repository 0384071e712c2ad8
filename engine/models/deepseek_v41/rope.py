"""The two rotations of V4.1: plain for window-only layers, stretched where rows are global."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kernels.ops import Ops
from kernels.precision import at_least_float32
from kernels.rotary.reference import Rotation, Yarn, frequencies

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from engine.models.deepseek_v41.config import DeepseekV41Config


@dataclass(frozen=True, kw_only=True)
class Rope:
    """Frequencies [rope_dim / 2] in at least float32, on the device of the model."""

    plain: Tensor
    stretched: Tensor
    ops: Ops

    @classmethod
    def build(
        cls, config: DeepseekV41Config, dtype: torch.dtype, device: torch.device, ops: Ops
    ) -> Rope:
        """Frequencies of the config for a model of `dtype`."""
        yarn = Yarn(
            factor=config.rope_factor,
            beta_fast=config.rope_beta_fast,
            beta_slow=config.rope_beta_slow,
            original_positions=config.rope_original_positions,
        )
        width, wide = config.qk_rope_head_dim, at_least_float32(dtype)
        plain = frequencies(width, config.rope_theta)
        stretched = frequencies(width, config.compress_rope_theta, yarn)
        return cls(plain=plain.to(device, wide), stretched=stretched.to(device, wide), ops=ops)

    def at(self, positions: Tensor, *, ratio: int) -> Rotation:
        """Rotation at positions [rows] for a layer of this ratio."""
        return self.ops.rotation(positions, self.stretched if ratio else self.plain)
