"""RMS norm in one pass over each row."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from kernels.dependent_launch import early, wait_for_results
from kernels.tuning import Tunable, chosen

WIDEST = 16384  # a row is held in registers


@triton.jit
def rms_norm_kernel(
    x, weight, out, row_stride, width, eps, EARLY: tl.constexpr, BLOCK: tl.constexpr
):
    wait_for_results(EARLY)
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, BLOCK)
    inside = at < width
    wide = tl.load(x + row * row_stride + at, mask=inside, other=0.0).to(tl.float32)
    scale = tl.rsqrt(tl.sum(wide * wide, 0) / width + eps)
    gain = tl.load(weight + at, mask=inside, other=0.0).to(tl.float32)
    tl.store(out + row * width + at, wide * scale * gain, mask=inside)


RMS_NORM = Tunable(
    name="rms_norm",
    op="rms_norm",
    default={"most_warps": 8},
    candidates=tuple({"most_warps": count} for count in (2, 4, 8, 16)),
)
TUNABLES = (RMS_NORM,)


def warps(block: int, most: int = 8) -> int:
    """By the width alone: a row is added up in one order whatever the batch."""
    return min(max(block // 512, 1), most)


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """See kernels.norm.reference; float32 or bfloat16, width up to `WIDEST`."""
    width = x.shape[-1]
    rows = x.reshape(-1, width)  # a view where the rows have one stride
    if rows.stride(-1) != 1:
        rows = rows.contiguous()
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    if len(rows):
        block = triton.next_power_of_2(width)
        rms_norm_kernel[(len(rows),)](
            rows,
            weight,
            out,
            rows.stride(0),
            width,
            eps,
            BLOCK=block,
            num_warps=warps(block, chosen(RMS_NORM, f"block {block}")["most_warps"]),
            **early(),
        )
    return out
