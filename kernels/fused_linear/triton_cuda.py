"""Matrix products that stream their weights once, with norm, gate and sum in the same launch.

A program owns some outputs of all rows. One row is multiplied value by value; a few go through
matrix instructions. Beyond that the library's product is faster, and the rest is launches around
it. Sums run in one order, by the width alone, below that border.
"""

from __future__ import annotations

import math

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.nn import functional

from kernels.activation.triton_cuda import swiglu
from kernels.fused_linear.reference import Norm
from kernels.norm.triton_cuda import rms_norm

MOST_ROWS = 16  # beyond, the library's product
ROWS = 16  # of a matrix instruction, at least


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
    COLUMNS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """One row."""
    column = tl.program_id(0).to(tl.int64) * COLUMNS + tl.arange(0, COLUMNS)
    inside = column < outputs
    acc = tl.zeros((COLUMNS, BLOCK), tl.float32)
    gated = tl.zeros((COLUMNS, BLOCK), tl.float32)
    squares = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, width, BLOCK):
        at = start + tl.arange(0, BLOCK)
        known = at < width
        value = tl.load(x + at, mask=known, other=0.0).to(tl.float32)
        if HAS_NORM:
            squares += value * value
            value *= tl.load(gain + at, mask=known, other=0.0).to(tl.float32)
        here = weight + column[:, None] * width + at[None, :]
        mask = inside[:, None] & known[None, :]
        acc += tl.load(here, mask=mask, other=0.0).to(tl.float32) * value[None, :]
        if IS_GATED:
            up = tl.load(here + outputs.to(tl.int64) * width, mask=mask, other=0.0)
            gated += up.to(tl.float32) * value[None, :]
    total = tl.sum(acc, 1)
    other = tl.sum(gated, 1)
    if HAS_NORM:
        scale = tl.rsqrt(tl.sum(squares, 0) / width + eps)
        total *= scale
        other *= scale
    if IS_GATED:
        total = total / (1.0 + tl.exp(-total)) * other
    if ADDS:
        total += tl.load(out + column, mask=inside, other=0.0).to(tl.float32)
    tl.store(out + column, total, mask=inside)


@triton.jit
def rows_kernel(
    x,
    gain,
    weight,
    out,
    rows,
    width,
    outputs,
    eps,
    HAS_NORM: tl.constexpr,
    IS_GATED: tl.constexpr,
    ADDS: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Up to ROWS rows."""
    column = tl.program_id(0).to(tl.int64) * COLUMNS + tl.arange(0, COLUMNS)
    row = tl.arange(0, ROWS)
    inside = (column < outputs)[None, :]
    present = (row < rows)[:, None]
    acc = tl.zeros((ROWS, COLUMNS), tl.float32)
    gated = tl.zeros((ROWS, COLUMNS), tl.float32)
    squares = tl.zeros((ROWS,), tl.float32)
    for start in range(0, width, BLOCK):
        at = start + tl.arange(0, BLOCK)
        known = at < width
        value = tl.load(x + row[:, None] * width + at[None, :], mask=present & known, other=0.0)
        if HAS_NORM:
            wide = value.to(tl.float32)
            squares += tl.sum(wide * wide, 1)
            gains = tl.load(gain + at, mask=known, other=0.0).to(tl.float32)
            value = (wide * gains[None, :]).to(x.dtype.element_ty)
        here = weight + column[None, :] * width + at[:, None]
        mask = inside & known[:, None]
        w = tl.load(here, mask=mask, other=0.0)
        acc = tl.dot(value, w, acc, input_precision="ieee")
        if IS_GATED:
            up = tl.load(here + outputs.to(tl.int64) * width, mask=mask, other=0.0)
            gated = tl.dot(value, up, gated, input_precision="ieee")
    if HAS_NORM:
        scale = tl.rsqrt(squares / width + eps)[:, None]
        acc *= scale
        gated *= scale
    if IS_GATED:
        acc = acc / (1.0 + tl.exp(-acc)) * gated
    to = out + row[:, None].to(tl.int64) * outputs + column[None, :]
    if ADDS:
        acc += tl.load(to, mask=inside & present, other=0.0).to(tl.float32)
    tl.store(to, acc, mask=inside & present)


def launch(
    x: Tensor,
    weight: Tensor,
    out: Tensor,
    *,
    norm: Norm | None = None,
    is_gated: bool = False,
    adds: bool = False,
    sizes: tuple[int, int, int, int] | None = None,
) -> Tensor:
    """Fill `out` [rows, outputs], contiguous; at most `MOST_ROWS` rows.

    sizes: outputs of a program, values of a step, warps, stages.
    """
    rows, width = x.shape
    outputs = out.shape[1]
    columns, block, warps, stages = sizes or sizes_of(rows, width, outputs, x.dtype)
    told = {
        "HAS_NORM": norm is not None,
        "IS_GATED": is_gated,
        "ADDS": adds,
        "COLUMNS": columns,
        "BLOCK": block,
        "num_warps": warps,
        "num_stages": stages,
    }
    gain, eps = (weight, 0.0) if norm is None else (norm.weight, norm.eps)
    grid = (triton.cdiv(outputs, columns),)
    if rows == 1:
        row_kernel[grid](x, gain, weight, out, width, outputs, eps, **told)
    else:
        tile = max(ROWS, triton.next_power_of_2(rows))
        rows_kernel[grid](x, gain, weight, out, rows, width, outputs, eps, ROWS=tile, **told)
    return out


def sizes_of(rows: int, width: int, outputs: int, dtype: torch.dtype) -> tuple[int, int, int, int]:
    """Outputs of a program, values of a step, warps and stages."""
    if rows == 1:
        block = min(triton.next_power_of_2(width), 1024)
        return (16 if outputs > 65536 else 8 if outputs > 2048 else 4), block, 4, 3
    block = 128 if dtype == torch.bfloat16 else 32
    return (64 if outputs > 65536 else 16), block, 4, 4


def _streams(x: Tensor) -> bool:
    return 1 <= x.shape[0] <= MOST_ROWS and x.is_contiguous()


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
    """See kernels.fused_linear.reference; never rounded to bfloat16 where weights stream."""
    if not _streams(x):
        return norm_linear(x, norm, weight).float()
    out = torch.empty((x.shape[0], weight.shape[0]), dtype=torch.float32, device=x.device)
    return launch(x, weight, out, norm=norm)


def add_linear(total: Tensor, x: Tensor, weight: Tensor) -> Tensor:
    """See kernels.fused_linear.reference; float32 or bfloat16."""
    if not _streams(x) or not total.is_contiguous():
        return total.addmm_(x, weight.t())
    return launch(x, weight, total, adds=True)
