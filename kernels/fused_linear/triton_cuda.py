"""Matrix products of one row: weights are streamed once, with norm, gate and sum in the launch.

A program owns some outputs. On devices that can, a launch begins before the one before it has
ended: it fetches its first weights, which nobody writes, and waits before it reads anything else.
For more rows the library's product is faster, and the rest is launches around it.
"""

from __future__ import annotations

import math
from functools import cache

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.nn import functional
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from kernels.activation.triton_cuda import swiglu
from kernels.fused_linear.reference import Norm
from kernels.norm.triton_cuda import rms_norm

WIDE = 65536  # outputs: a head over a vocabulary


@triton.jit
def row_kernel(
    x,
    gain,
    weight,
    out,
    width,
    outputs,
    eps,
    HAS_NORM: tl.constexpr,
    IS_GATED: tl.constexpr,
    ADDS: tl.constexpr,
    IS_EARLY: tl.constexpr,
    COLUMNS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    column = tl.program_id(0).to(tl.int64) * COLUMNS + tl.arange(0, COLUMNS)
    at = tl.arange(0, BLOCK)
    inside = (column < outputs)[:, None]
    here = weight + column[:, None] * width + at[None, :]
    beyond = outputs.to(tl.int64) * width  # from a gate to what it gates
    mask = inside & (at < width)[None, :]
    w = tl.load(here, mask=mask, other=0.0)
    up = tl.load(here + beyond, mask=mask, other=0.0) if IS_GATED else w
    if IS_EARLY:
        gdc_launch_dependents()
        gdc_wait()
    acc = tl.zeros((COLUMNS, BLOCK), tl.float32)
    gated = tl.zeros((COLUMNS, BLOCK), tl.float32)
    squares = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, width, BLOCK):
        known = at < width - start
        value = tl.load(x + start + at, mask=known, other=0.0).to(tl.float32)
        if HAS_NORM:
            squares += value * value
            value *= tl.load(gain + start + at, mask=known, other=0.0).to(tl.float32)
        acc += w.to(tl.float32) * value[None, :]
        if IS_GATED:
            gated += up.to(tl.float32) * value[None, :]
        mask = inside & (at < width - start - BLOCK)[None, :]
        w = tl.load(here + start + BLOCK, mask=mask, other=0.0)
        if IS_GATED:
            up = tl.load(here + beyond + start + BLOCK, mask=mask, other=0.0)
    total = tl.sum(acc, 1)
    other = tl.sum(gated, 1)
    if HAS_NORM:
        scale = tl.rsqrt(tl.sum(squares, 0) / width + eps)
        total *= scale
        other *= scale
    if IS_GATED:
        total = total / (1.0 + tl.exp(-total)) * other
    if ADDS:
        total += tl.load(out + column, mask=column < outputs, other=0.0).to(tl.float32)
    tl.store(out + column, total, mask=column < outputs)


def launch(
    x: Tensor,
    weight: Tensor,
    out: Tensor,
    *,
    norm: Norm | None = None,
    is_gated: bool = False,
    adds: bool = False,
    sizes: tuple[int, int, int] | None = None,
    early: bool | None = None,
) -> Tensor:
    """Fill `out` [1, outputs]; x [1, width].

    sizes: outputs of a program, values of a step, warps. early None: where the device can.
    """
    width, outputs = x.shape[1], out.shape[1]
    columns, block, warps = sizes or sizes_of(width, outputs, is_gated=is_gated)
    gain, eps = (weight, 0.0) if norm is None else (norm.weight, norm.eps)
    is_early = starts_early(x) if early is None else early
    row_kernel[(triton.cdiv(outputs, columns),)](
        x,
        gain,
        weight,
        out,
        width,
        outputs,
        eps,
        HAS_NORM=norm is not None,
        IS_GATED=is_gated,
        ADDS=adds,
        IS_EARLY=is_early,
        COLUMNS=columns,
        BLOCK=min(block, triton.next_power_of_2(width)),
        num_warps=warps,
        launch_pdl=is_early,
    )
    return out


def sizes_of(width: int, outputs: int, *, is_gated: bool) -> tuple[int, int, int]:
    """Outputs of a program, values of a step and warps: the best of a sweep on an H200."""
    if outputs > WIDE:
        return 16, 256, 4
    if width <= 1024:
        return (8, 512, 8) if is_gated else (8, 1024, 4)
    return (2, 2048, 4) if width <= 2048 else (4, 2048, 8)


def starts_early(x: Tensor) -> bool:
    """Whether a launch on the device of x can begin before the one before it ends."""
    return x.is_cuda and _can_start_early()


@cache
def _can_start_early() -> bool:
    return triton.runtime.driver.active.get_current_target().arch >= 90


def _streams(x: Tensor) -> bool:
    return x.shape[0] == 1 and x.is_contiguous()


def norm_linear(x: Tensor, norm: Norm, weight: Tensor) -> Tensor:
    """See kernels.fused_linear.reference; float32 or bfloat16."""
    if not _streams(x):
        return functional.linear(rms_norm(x, norm.weight, norm.eps), weight)
    out = torch.empty((x.shape[0], weight.shape[0]), dtype=x.dtype, device=x.device)
    return launch(x, weight, out, norm=norm)


def norm_swiglu(x: Tensor, norm: Norm, gate_up: Tensor) -> Tensor:
    """See kernels.fused_linear.reference; float32 or bfloat16."""
    if not _streams(x):
        return swiglu(norm_linear(x, norm, gate_up), math.inf)
    out = torch.empty((x.shape[0], gate_up.shape[0] // 2), dtype=x.dtype, device=x.device)
    return launch(x, gate_up, out, norm=norm, is_gated=True)


def norm_logits(x: Tensor, norm: Norm, weight: Tensor) -> Tensor:
    """See kernels.fused_linear.reference; never rounded to bfloat16."""
    if not _streams(x):
        normed = rms_norm(x, norm.weight, norm.eps)
        if not x.is_cuda:  # the interpreter
            return functional.linear(normed, weight).float()
        return torch.mm(normed, weight.t(), out_dtype=torch.float32)
    out = torch.empty((x.shape[0], weight.shape[0]), dtype=torch.float32, device=x.device)
    return launch(x, weight, out, norm=norm)


def add_linear(total: Tensor, x: Tensor, weight: Tensor) -> Tensor:
    """See kernels.fused_linear.reference; float32 or bfloat16."""
    if not _streams(x) or not total.is_contiguous():
        return total.addmm_(x, weight.t())
    return launch(x, weight, total, adds=True)
