"""Choosing experts in two launches: slices of the gate's product, then everything else.

Slices have a fixed length and are added in ascending order, so that a row chooses the same
experts whatever the batch.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from kernels.matmul.triton_cuda import float32_product
from kernels.routing.reference import Router

SLICE = 320  # columns of one product
GATE_BLOCK = 64  # of those, multiplied at once
ROWS = 64
EXPERTS = 32
MOST_EXPERTS = 4096  # the scores of a row are held in registers


@triton.jit
def store_slice(
    x, weight, partial, rows, width, experts, row, expert, part, NARROW: tl.constexpr,
    ROWS: tl.constexpr, EXPERTS: tl.constexpr, SLICE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """One slice of the product of a tile of rows and experts."""
    inside = (row < rows)[:, None]
    product = tl.zeros((ROWS, EXPERTS), tl.float32)
    for offset in range(0, SLICE, BLOCK):
        at = part * SLICE + offset + tl.arange(0, BLOCK)
        value = tl.load(
            x + row.to(tl.int64)[:, None] * width + at[None, :],
            mask=inside & (at < width)[None, :],
            other=0.0,
        )
        w = tl.load(
            weight + expert[None, :] * width + at[:, None],
            mask=(expert < experts)[None, :] & (at < width)[:, None],
            other=0.0,
        )
        product = float32_product(value, w, product, NARROW)
    here = partial + (part.to(tl.int64) * rows + row[:, None]) * experts + expert[None, :]
    tl.store(here, product, mask=inside & (expert < experts)[None, :])


@triton.jit
def sqrt_softplus(logits):
    """Affinities, as exact as float32 is; NaN of NaN."""
    small = tl.exp(-tl.abs(logits))
    grown = 1.0 + small  # log(1 + small) by a quotient that undoes the rounding of the sum
    log1p = tl.where(grown == 1.0, small, tl.log(grown) * (small / (grown - 1.0)))
    affinity = tl.sqrt_rn(tl.where(logits > 0, logits, 0.0) + log1p)
    return tl.where(logits == logits, affinity, float("nan"))


@triton.jit
def gate_kernel(
    x,
    weight,
    partial,
    rows,
    width,
    experts,
    row_blocks,
    expert_blocks,
    NARROW: tl.constexpr,
    ROWS: tl.constexpr,
    EXPERTS: tl.constexpr,
    SLICE: tl.constexpr,
    BLOCK: tl.constexpr,
):
    program = tl.program_id(0)
    row = (program // expert_blocks) % row_blocks * ROWS + tl.arange(0, ROWS)
    expert = program % expert_blocks * EXPERTS + tl.arange(0, EXPERTS)
    part = program // expert_blocks // row_blocks
    store_slice(
        x, weight, partial, rows, width, experts, row, expert, part, NARROW, ROWS, EXPERTS, SLICE,
        BLOCK,
    )  # fmt: skip


@triton.jit
def choose_kernel(
    partial,
    bias,
    chosen,
    weights,
    rows,
    experts,
    parts,
    scale,
    TOP: tl.constexpr,
    TOP2: tl.constexpr,
    NORMALISE: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Add the slices, squash, and take the best in turn; a NaN comes first, as when sorting."""
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, BLOCK)
    inside = at < experts
    logits = tl.zeros((BLOCK,), tl.float32)
    for part in range(parts):
        logits += tl.load(partial + (part * rows + row) * experts + at, mask=inside, other=0.0)
    affinity = sqrt_softplus(logits)
    score = affinity + tl.load(bias + at, mask=inside, other=0.0)
    score = tl.where(score == score, score, float("inf"))
    score = tl.where(score > -3.0e38, score, -3.0e38)  # above what is taken or padding
    score = tl.where(inside, score, float("-inf"))
    place = tl.arange(0, TOP2)
    found = tl.zeros((TOP2,), tl.float32)
    for i in tl.static_range(TOP):
        best = tl.argmax(score, 0, tie_break_left=True)
        value = tl.sum(tl.where(at == best, affinity, 0.0), 0)
        found = tl.where(place == i, value, found)
        score = tl.where(at == best, float("-inf"), score)
        tl.store(chosen + row * TOP + i, best.to(tl.int64))
    if NORMALISE:
        found = tl.div_rn(found, tl.zeros((TOP2,), tl.float32) + (tl.sum(found, 0) + 1e-20))
    tl.store(weights + row * TOP + place, found * scale, mask=place < TOP)


def route(x: Tensor, router: Router) -> tuple[Tensor, Tensor]:
    """See kernels.routing.reference; x float32 or bfloat16, up to `MOST_EXPERTS` experts."""
    x = x.contiguous()
    rows, width = x.shape
    experts, top = router.weight.shape[0], router.experts_per_token
    chosen = torch.empty((rows, top), dtype=torch.int64, device=x.device)
    weights = torch.empty((rows, top), dtype=torch.float32, device=x.device)
    if not rows:
        return chosen, weights
    parts = triton.cdiv(width, SLICE)
    partial = torch.empty((parts, rows, experts), dtype=torch.float32, device=x.device)
    row_blocks, expert_blocks = triton.cdiv(rows, ROWS), triton.cdiv(experts, EXPERTS)
    gate_kernel[(parts * row_blocks * expert_blocks,)](
        x,
        router.weight,
        partial,
        rows,
        width,
        experts,
        row_blocks,
        expert_blocks,
        NARROW=x.dtype == torch.bfloat16,
        ROWS=ROWS,
        EXPERTS=EXPERTS,
        SLICE=SLICE,
        BLOCK=GATE_BLOCK,
        num_warps=4,
    )
    choose_kernel[(rows,)](
        partial,
        router.bias,
        chosen,
        weights,
        rows,
        experts,
        parts,
        router.scale,
        TOP=top,
        TOP2=max(triton.next_power_of_2(top), 2),
        NORMALISE=router.normalise and top > 1,
        BLOCK=max(triton.next_power_of_2(experts), 32),
        num_warps=1,
    )
    return chosen, weights
