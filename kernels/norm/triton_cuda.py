"""RMS norm in one pass over each row, all of which is under way at once."""

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
    x, weight, out, row_stride, width, eps, EARLY: tl.constexpr, CHUNK: tl.constexpr,
    CHUNKS: tl.constexpr,
):  # fmt: skip
    gains = ()
    for c in tl.static_range(CHUNKS):  # a parameter: nobody has to be waited for
        at = c * CHUNK + tl.arange(0, CHUNK)
        gain = tl.load(weight + at, mask=at < width, other=0.0)
        gains = gains + (gain,)  # noqa: RUF005  the compiler knows no starred tuple
    wait_for_results(EARLY)
    row = tl.program_id(0).to(tl.int64)
    held = ()
    for c in tl.static_range(CHUNKS):
        at = c * CHUNK + tl.arange(0, CHUNK)
        chunk = tl.load(x + row * row_stride + at, mask=at < width, other=0.0)
        held = held + (chunk,)  # noqa: RUF005
    squares = tl.zeros((CHUNK,), tl.float32)
    for c in tl.static_range(CHUNKS):
        wide = held[c].to(tl.float32)
        squares += wide * wide
    scale = tl.rsqrt(tl.sum(squares, 0) / width + eps)
    for c in tl.static_range(CHUNKS):
        at = c * CHUNK + tl.arange(0, CHUNK)
        value = held[c].to(tl.float32) * scale * gains[c].to(tl.float32)
        tl.store(out + row * width + at, value, mask=at < width)


RMS_NORM = Tunable(
    name="rms_norm",
    op="rms_norm",
    default={"CHUNK": 1024, "num_warps": 4},
    candidates=tuple(
        {"CHUNK": chunk, "num_warps": warps}
        for chunk, warps in ((256, 1), (512, 2), (1024, 2), (1024, 4), (2048, 4), (2048, 8))
    ),
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
        config = chosen(RMS_NORM, f"width {width}")
        chunk = min(config["CHUNK"], triton.next_power_of_2(width))
        rms_norm_kernel[(len(rows),)](
            rows,
            weight,
            out,
            rows.stride(0),
            width,
            eps,
            CHUNK=chunk,
            CHUNKS=triton.cdiv(width, chunk),
            num_warps=min(config["num_warps"], max(chunk // 256, 1)),
            **early(),
        )
    return out
