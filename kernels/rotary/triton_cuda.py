"""Rotation of the last dimensions, the others copied beside it in the same pass."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from kernels.dependent_launch import early, wait_for_results
from kernels.rotary.reference import Rotation

MOST_TURNED = 2048  # values of a program


@triton.jit
def rotate_kernel(
    x,
    cos,
    sin,
    out,
    heads,
    row_stride,
    head_stride,
    dim,
    width,
    turn_stride,
    EARLY: tl.constexpr,
    HEADS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Some heads of a row."""
    wait_for_results(EARLY)
    blocks = tl.cdiv(heads, HEADS)
    row = (tl.program_id(0) // blocks).to(tl.int64)
    head = tl.program_id(0) % blocks * HEADS + tl.arange(0, HEADS)
    at = tl.arange(0, BLOCK)
    inside = (head < heads)[:, None] & (at < dim)[None, :]
    here = x + row * row_stride + head[:, None] * head_stride
    value = tl.load(here + at[None, :], mask=inside, other=0.0)
    place = at - (dim - width)
    is_turned = (at < dim) & (place >= 0)
    turned = inside & is_turned[None, :]
    partner = tl.where(place % 2 == 0, at + 1, at - 1)
    other = tl.load(here + partner[None, :], mask=turned, other=0.0).to(tl.float32)
    c = tl.load(cos + row * turn_stride + place, mask=is_turned, other=1.0).to(tl.float32)
    s = tl.load(sin + row * turn_stride + place, mask=is_turned, other=0.0).to(tl.float32)
    y = value.to(tl.float32) * c[None, :] + other * s[None, :]
    to = out + (row * heads + head[:, None]) * dim + at[None, :]
    tl.store(to, tl.where(turned, y, value.to(tl.float32)), mask=inside)


@triton.jit
def rotation_kernel(positions, freqs, cos, sin, width, EARLY: tl.constexpr, BLOCK: tl.constexpr):
    wait_for_results(EARLY)
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, BLOCK)
    inside = at < width
    angle = tl.load(positions + row).to(tl.float32) * tl.load(freqs + at // 2, mask=inside, other=0)
    turned = tl.sin(angle)
    tl.store(cos + row * width + at, tl.cos(angle), mask=inside)
    tl.store(sin + row * width + at, tl.where(at % 2 == 0, -turned, turned), mask=inside)


def rotation(positions: Tensor, freqs: Tensor) -> Rotation:
    """See kernels.rotary.reference; float32 frequencies."""
    rows, width = len(positions), 2 * len(freqs)
    cos, sin = (torch.empty((rows, width), device=freqs.device) for _ in range(2))
    if rows:
        block = triton.next_power_of_2(width)
        rotation_kernel[(rows,)](
            positions.contiguous(), freqs, cos, sin, width, BLOCK=block, num_warps=1, **early()
        )
    return Rotation(cos=cos, sin=sin)


def rotate(x: Tensor, turn: Rotation) -> Tensor:
    """See kernels.rotary.reference; x [rows, dim] or [rows, heads, dim], float32 or bfloat16."""
    rows, dim = x.shape[0], x.shape[-1]
    flat = x if x.dim() == 3 else x.unsqueeze(1)  # [rows, heads, dim]
    if flat.stride(-1) != 1:
        flat = flat.contiguous()
    heads = flat.shape[1]
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    if rows * heads:
        cos, sin = turn.cos.contiguous(), turn.sin.contiguous()
        block = triton.next_power_of_2(dim)
        each = min(triton.next_power_of_2(heads), max(MOST_TURNED // block, 1))
        rotate_kernel[(rows * triton.cdiv(heads, each),)](
            flat,
            cos,
            sin,
            out,
            heads,
            flat.stride(0),
            flat.stride(1),
            dim,
            cos.shape[-1],
            cos.stride(0),
            HEADS=each,
            BLOCK=block,
            num_warps=1 if each * block <= 512 else 4,
            **early(),
        )
    return out
