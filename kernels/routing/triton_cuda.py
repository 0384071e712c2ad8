"""Choosing experts in two launches: the gate's product, then everything else.

The product is cut into slices of one length, which are added in ascending order, whether by the
second launch (few rows) or as they are made (many), so that a row chooses the same experts
whatever runs beside it. Experts are on the wide side of the matrix instruction.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from kernels.dependent_launch import early, wait_for_results
from kernels.routing.reference import Router

SLICE = 256  # inputs of one product
EXPERTS = 64  # of a program: the least that Hopper's widest instruction takes
BLOCK = 64  # inputs at a time, where they are not a whole slice
FEW_ROWS, SOME_ROWS, MANY_ROWS = 16, 64, 128  # of a program
WHOLE_FROM = 1024  # rows, from which programs that make all slices fill a device
GATE_WARPS, CHOOSE_WARPS = 4, 4
MOST_EXPERTS = 4096  # the scores of a row are held in registers
LEAST = tl.constexpr(-(2**31))  # below the key of any score


@triton.jit
def add_product(total, weight, x, KIND: tl.constexpr):
    """total + weight . x in float32. KIND 0: both are float32; 1: both bfloat16; 2: x alone is,
    and three bfloat16 hold a float32.
    """
    if KIND == 0:
        total = tl.dot(weight, x, total, input_precision="ieee")
    elif KIND == 1:
        total = tl.dot(weight, x, total)
    else:
        high = weight.to(tl.bfloat16)
        rest = weight - high.to(tl.float32)
        middle = rest.to(tl.bfloat16)
        low = (rest - middle.to(tl.float32)).to(tl.bfloat16)
        total = tl.dot(low, x, total)
        total = tl.dot(middle, x, total)
        total = tl.dot(high, x, total)
    return total


@triton.jit(do_not_specialize=["rows", "row_blocks", "expert_blocks"])
def gate_kernel(
    x,
    weight,
    partial,
    rows,
    width,
    experts,
    row_blocks,
    expert_blocks,
    EARLY: tl.constexpr,
    KIND: tl.constexpr,
    PARTS: tl.constexpr,
    ROWS: tl.constexpr,
    EXPERTS: tl.constexpr,
    SLICE: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """partial [slices, rows, experts]; where a program makes PARTS slices, their sum alone."""
    program = tl.program_id(0)
    expert = program % expert_blocks * EXPERTS + tl.arange(0, EXPERTS)
    row = program // expert_blocks % row_blocks * ROWS + tl.arange(0, ROWS)
    part = program // expert_blocks // row_blocks
    is_expert, inside = (expert < experts)[:, None], (row < rows)[None, :]
    at = tl.arange(0, BLOCK)
    weights = weight + expert[:, None] * width + at[None, :]
    values = x + row.to(tl.int64)[None, :] * width + at[:, None]
    total = tl.zeros((EXPERTS, ROWS), tl.float32)
    if BLOCK == SLICE:
        near = part * SLICE + at < width
        w = tl.load(weights + part * SLICE, mask=is_expert & near[None, :], other=0.0)
        wait_for_results(EARLY)  # not for parameters
        value = tl.load(values + part * SLICE, mask=inside & near[:, None], other=0.0)
        total = add_product(total, w, value, KIND)
    else:
        wait_for_results(EARLY)
        for number in range(part * PARTS, (part + 1) * PARTS):
            product = tl.zeros((EXPERTS, ROWS), tl.float32)
            for start in range(number * SLICE, (number + 1) * SLICE, BLOCK):
                near = start + at < width
                w = tl.load(weights + start, mask=is_expert & near[None, :], other=0.0)
                value = tl.load(values + start, mask=inside & near[:, None], other=0.0)
                product = add_product(product, w, value, KIND)
            total += product
    here = partial + (part.to(tl.int64) * rows + row[None, :]) * experts + expert[:, None]
    tl.store(here, total, mask=inside & is_expert)


@triton.jit
def sqrt_softplus(logits):
    """Affinities, as exact as float32 is; NaN of NaN."""
    small = tl.exp(-tl.abs(logits))
    grown = 1.0 + small  # log(1 + small) by a quotient that undoes the rounding of the sum
    log1p = tl.where(grown == 1.0, small, tl.log(grown) * (small / (grown - 1.0)))
    affinity = tl.sqrt_rn(tl.where(logits > 0, logits, 0.0) + log1p)
    return tl.where(logits == logits, affinity, float("nan"))


@triton.jit
def softmax(logits, inside):
    """Of one row, over the experts inside."""
    share = tl.exp(logits - tl.max(tl.where(inside, logits, float("-inf")), 0))
    share = tl.where(inside, share, 0.0)
    return tl.div_rn(share, tl.zeros_like(share) + tl.sum(share, 0))


@triton.jit
def ordered(score):
    """Whole numbers in the order of float32; NaN comes last, where the greatest are."""
    bits = score.to(tl.int32, bitcast=True)
    return tl.where(score == score, bits ^ ((bits >> 31) & 0x7FFFFFFF), 0x7FFFFFFF)


@triton.jit(do_not_specialize=["rows"])
def choose_kernel(
    partial,
    bias,
    live,
    chosen,
    weights,
    rows,
    experts,
    scale,
    EARLY: tl.constexpr,
    HAS_LIVE: tl.constexpr,
    PARTS: tl.constexpr,
    TOP: tl.constexpr,
    TOP2: tl.constexpr,
    NORMALISE: tl.constexpr,
    BY_SOFTMAX: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Add the slices, score, and take the best in turn; a NaN comes first, as when sorting."""
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, BLOCK)
    inside = at < experts
    offset = tl.load(bias + at, mask=inside, other=0.0)
    wait_for_results(EARLY)
    here = partial + row * experts + at
    step = rows.to(tl.int64) * experts
    logits = tl.zeros((BLOCK,), tl.float32)
    for _ in tl.static_range(PARTS):
        logits += tl.load(here, mask=inside, other=0.0)
        here += step
    affinity = softmax(logits, inside) if BY_SOFTMAX else sqrt_softplus(logits)
    key = tl.where(inside, ordered(affinity + offset), LEAST)
    value = affinity.to(tl.int32, bitcast=True)
    is_live = True
    if HAS_LIVE:
        is_live = tl.load(live + row) != 0
    place = tl.arange(0, TOP2)
    found = tl.zeros((TOP2,), tl.int32)
    for i in tl.static_range(TOP):
        best = tl.min(tl.where(key == tl.max(key, 0), at, BLOCK), 0)  # of equals the first
        found = tl.where(place == i, tl.max(tl.where(at == best, value, LEAST), 0), found)
        key = tl.where(at == best, LEAST, key)
        tl.store(chosen + row * TOP + i, tl.where(is_live, best, -1).to(tl.int64))
    share = found.to(tl.float32, bitcast=True)
    if NORMALISE:
        share = tl.div_rn(share, tl.zeros_like(share) + (tl.sum(share, 0) + 1e-20))
    tl.store(weights + row * TOP + place, share * scale, mask=place < TOP)


def route(x: Tensor, router: Router, live: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """See kernels.routing.reference; x float32 or bfloat16, up to `MOST_EXPERTS` experts."""
    return _routed(x, router, live, by_softmax=False)


def route_by_softmax(
    x: Tensor, router: Router, live: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """See kernels.routing.reference; as `route`."""
    return _routed(x, router, live, by_softmax=True)


def _routed(
    x: Tensor, router: Router, live: Tensor | None, *, by_softmax: bool
) -> tuple[Tensor, Tensor]:
    rows = len(x)
    experts, top = router.weight.shape[0], router.experts_per_token
    chosen = torch.empty((rows, top), dtype=torch.int64, device=x.device)
    weights = torch.empty((rows, top), dtype=torch.float32, device=x.device)
    if not rows:
        return chosen, weights
    partial = _products(x, router.weight)
    choose_kernel[(rows,)](
        partial,
        router.bias,
        chosen if live is None else live.contiguous(),
        chosen,
        weights,
        rows,
        experts,
        router.scale,
        HAS_LIVE=live is not None,
        PARTS=len(partial),
        TOP=top,
        TOP2=max(triton.next_power_of_2(top), 2),
        NORMALISE=router.normalise and top > 1,
        BY_SOFTMAX=by_softmax,
        BLOCK=max(triton.next_power_of_2(experts), 32 * CHOOSE_WARPS),
        num_warps=CHOOSE_WARPS,
        **early(),
    )
    return chosen, weights


def _products(x: Tensor, weight: Tensor) -> Tensor:
    """Slices of x . weight^T [slices, rows, experts], or their sum as the only one."""
    (rows, width), experts = x.shape, len(weight)
    if weight.dtype == torch.bfloat16 and x.dtype != torch.bfloat16:
        weight = weight.to(x.dtype)
    kind = 0 if x.dtype != torch.bfloat16 else (1 if weight.dtype == torch.bfloat16 else 2)
    parts = triton.cdiv(width, SLICE)
    each = parts if rows >= WHOLE_FROM else 1
    tile = _row_tile(rows, kind)
    row_blocks, expert_blocks = triton.cdiv(rows, tile), triton.cdiv(experts, EXPERTS)
    made = parts // each
    partial = torch.empty((made, rows, experts), dtype=torch.float32, device=x.device)
    gate_kernel[(made * row_blocks * expert_blocks,)](
        x.contiguous(),
        weight.contiguous(),
        partial,
        rows,
        width,
        experts,
        row_blocks,
        expert_blocks,
        KIND=kind,
        PARTS=each,
        ROWS=tile,
        EXPERTS=EXPERTS,
        SLICE=SLICE,
        BLOCK=SLICE if kind == 1 and tile == FEW_ROWS and each == 1 else BLOCK,
        num_warps=GATE_WARPS,
        **early(),
    )
    return partial


def _row_tile(rows: int, kind: int) -> int:
    if rows <= FEW_ROWS or kind == 0:
        return FEW_ROWS
    return SOME_ROWS if rows <= SOME_ROWS or kind == 2 else MANY_ROWS  # three operands spill
