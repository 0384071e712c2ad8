"""SwiGLU in one pass."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from kernels.dependent_launch import early, wait_for_results
from kernels.tuning import Tunable, chosen

SWIGLU = Tunable(
    name="swiglu",
    op="swiglu",
    default={"BLOCK": 512, "num_warps": 2},
    candidates=tuple(
        {"BLOCK": block, "num_warps": warps} for block in (256, 512, 1024) for warps in (1, 2, 4, 8)
    ),
)
TUNABLES = (SWIGLU,)


@triton.jit
def swiglu_kernel(
    gate_up,
    weight,
    out,
    width,
    blocks,
    limit,
    EARLY: tl.constexpr,
    HAS_WEIGHT: tl.constexpr,
    BLOCK: tl.constexpr,
):
    wait_for_results(EARLY)
    program = tl.program_id(0)
    row = (program // blocks).to(tl.int64)
    at = (program % blocks) * BLOCK + tl.arange(0, BLOCK)
    inside = at < width
    gate = tl.load(gate_up + row * 2 * width + at, mask=inside, other=0.0).to(tl.float32)
    up = tl.load(gate_up + row * 2 * width + width + at, mask=inside, other=0.0).to(tl.float32)
    # Comparisons, so that a NaN stays one.
    gate = tl.where(gate > limit, limit, gate)
    up = tl.where(up > limit, limit, tl.where(up < -limit, -limit, up))
    y = gate / (1.0 + tl.exp(-gate)) * up
    if HAS_WEIGHT:
        y = y * tl.load(weight + row).to(tl.float32)
    tl.store(out + row * width + at, y, mask=inside)


def swiglu(gate_up: Tensor, limit: float, weight: Tensor | None = None) -> Tensor:
    """See kernels.activation.reference; float32 or bfloat16."""
    rows, width = gate_up.shape[0], gate_up.shape[-1] // 2
    gate_up = gate_up.contiguous()
    out = torch.empty((rows, width), dtype=gate_up.dtype, device=gate_up.device)
    if rows:
        config = chosen(SWIGLU, "any")
        blocks = triton.cdiv(width, config["BLOCK"])
        swiglu_kernel[(rows * blocks,)](
            gate_up,
            gate_up if weight is None else weight.contiguous(),
            out,
            width,
            blocks,
            limit,
            HAS_WEIGHT=weight is not None,
            **config,
            **early(),
        )
    return out
