"""Choosing experts in one launch where there are few rows.

Programs compute the slices of the gate's product that `triton_cuda` computes. The one that ends
last adds them, in ascending order, and chooses for all rows. With more rows than it should do
alone, those that choose are programs of a second launch, of the same shape: the same bits.

The programs count themselves in a number that the last one sets back to 0. It is one a device, so
launches must follow each other, as those of one stream do.
"""

from __future__ import annotations

from functools import cache

import torch
import triton
import triton.language as tl
from torch import Tensor

from kernels.routing.reference import Router
from kernels.routing.triton_cuda import (
    EXPERTS,
    GATE_BLOCK,
    ROWS,
    SLICE,
    gate_kernel,
    sqrt_softplus,
    store_slice,
)

MOST_EXPERTS = 512  # the scores of a group of rows are held in registers
MOST_FUSED_ROWS = 64
GROUP = 4  # rows that are chosen for together: one a warp
WHOLE = tl.constexpr(2.0**40)  # sums of whole numbers do not depend on their order


@triton.jit
def softmax(logits, inside):
    """Of rows, over the experts inside; sums are exact to 2^-40 of the greatest term."""
    most = tl.max(tl.where(inside, logits, float("-inf")), 1)
    share = tl.where(inside, tl.exp(logits - most[:, None]), 0.0)
    total = tl.sum((share * WHOLE).to(tl.int64), 1).to(tl.float32) * (1.0 / WHOLE)
    return tl.div_rn(share, tl.zeros_like(share) + total[:, None])


@triton.jit
def choose_group(
    partial, bias, chosen, weights, first, rows, experts, scale, PARTS: tl.constexpr,
    TOP: tl.constexpr, TOP2: tl.constexpr, NORMALISE: tl.constexpr, BY_SOFTMAX: tl.constexpr,
    GROUP: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """Add the slices of a group of rows, score, and take the best in turn; a NaN comes first, as
    when sorting.
    """
    row = (first + tl.arange(0, GROUP)).to(tl.int64)
    at = tl.arange(0, WIDE)
    real = row < rows
    is_expert = (at < experts)[None, :]
    inside = real[:, None] & is_expert
    here = partial + row[:, None] * experts + at[None, :]
    step = rows.to(tl.int64) * experts
    logits = tl.zeros((GROUP, WIDE), tl.float32)
    for _ in tl.static_range(PARTS):
        # Other programs wrote them: not from the cache of this processor.
        logits += tl.load(here, mask=inside, other=0.0, cache_modifier=".cg")
        here += step
    affinity = softmax(logits, is_expert) if BY_SOFTMAX else sqrt_softplus(logits)
    score = affinity + tl.load(bias + at, mask=at < experts, other=0.0)[None, :]
    score = tl.where(score == score, score, float("inf"))
    score = tl.where(score > -3.0e38, score, -3.0e38)  # above what is taken or padding
    score = tl.where(is_expert, score, float("-inf"))
    place = tl.arange(0, TOP2)[None, :]
    found = tl.zeros((GROUP, TOP2), tl.float32)
    total = tl.zeros((GROUP,), tl.float32)
    for i in tl.static_range(TOP):
        best = tl.argmax(score, 1, tie_break_left=True)
        is_best = at[None, :] == best[:, None]
        value = tl.sum(tl.where(is_best, affinity, 0.0), 1)
        found = tl.where(place == i, value[:, None], found)
        total += value
        score = tl.where(is_best, float("-inf"), score)
        tl.store(chosen + row * TOP + i, best.to(tl.int64), mask=real)
    if NORMALISE:
        found = tl.div_rn(found, tl.zeros_like(found) + (total + 1e-20)[:, None])
    mask = real[:, None] & (place < TOP)
    tl.store(weights + row[:, None] * TOP + place, found * scale, mask=mask)


@triton.jit(do_not_specialize=["rows"])
def fused_kernel(
    x, weight, bias, partial, ended, chosen, weights, rows, width, experts, expert_blocks, scale,
    NARROW: tl.constexpr, ROWS: tl.constexpr, EXPERTS: tl.constexpr, SLICE: tl.constexpr,
    BLOCK: tl.constexpr, PARTS: tl.constexpr, TOP: tl.constexpr, TOP2: tl.constexpr,
    NORMALISE: tl.constexpr, BY_SOFTMAX: tl.constexpr, GROUP: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """Everything for at most `ROWS` rows."""
    program = tl.program_id(0)
    part = program // expert_blocks
    row = tl.arange(0, ROWS)
    expert = (program - part * expert_blocks) * EXPERTS + tl.arange(0, EXPERTS)
    store_slice(
        x, weight, partial, rows, width, experts, row, expert, part, NARROW, ROWS, EXPERTS, SLICE,
        BLOCK,
    )  # fmt: skip
    tl.debug_barrier()  # all that the program stored is before what it adds
    before = tl.atomic_add(ended, 1, sem="acq_rel", scope="gpu")
    if before == expert_blocks * PARTS - 1:
        tl.store(ended, 0)
        for first in range(0, rows, GROUP):
            choose_group(
                partial, bias, chosen, weights, first, rows, experts, scale, PARTS, TOP, TOP2,
                NORMALISE, BY_SOFTMAX, GROUP, WIDE,
            )  # fmt: skip


@triton.jit(do_not_specialize=["rows"])
def choose_group_kernel(
    partial, bias, chosen, weights, rows, experts, scale, PARTS: tl.constexpr,
    TOP: tl.constexpr, TOP2: tl.constexpr, NORMALISE: tl.constexpr, BY_SOFTMAX: tl.constexpr,
    GROUP: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """The second launch of many rows."""
    first = tl.program_id(0) * GROUP
    choose_group(
        partial, bias, chosen, weights, first, rows, experts, scale, PARTS, TOP, TOP2, NORMALISE,
        BY_SOFTMAX, GROUP, WIDE,
    )  # fmt: skip


def route(x: Tensor, router: Router) -> tuple[Tensor, Tensor]:
    """See kernels.routing.reference; x float32 or bfloat16, up to `MOST_EXPERTS` experts."""
    return _routed(x, router, by_softmax=False)


def route_by_softmax(x: Tensor, router: Router) -> tuple[Tensor, Tensor]:
    """See kernels.routing.reference; as `route`."""
    return _routed(x, router, by_softmax=True)


def _routed(x: Tensor, router: Router, *, by_softmax: bool) -> tuple[Tensor, Tensor]:
    x = x.contiguous()
    rows, width = x.shape
    experts, top = router.weight.shape[0], router.experts_per_token
    chosen = torch.empty((rows, top), dtype=torch.int64, device=x.device)
    weights = torch.empty((rows, top), dtype=torch.float32, device=x.device)
    if not rows:
        return chosen, weights
    parts, expert_blocks = triton.cdiv(width, SLICE), triton.cdiv(experts, EXPERTS)
    partial = torch.empty((parts, rows, experts), dtype=torch.float32, device=x.device)
    product = {
        "NARROW": x.dtype == torch.bfloat16,
        "ROWS": ROWS,
        "EXPERTS": EXPERTS,
        "SLICE": SLICE,
        "BLOCK": GATE_BLOCK,
    }
    choice = {
        "PARTS": parts,
        "TOP": top,
        "TOP2": max(triton.next_power_of_2(top), 2),
        "NORMALISE": router.normalise and top > 1,
        "BY_SOFTMAX": by_softmax,
        "GROUP": GROUP,
        "WIDE": max(triton.next_power_of_2(experts), 32),
    }
    if rows <= MOST_FUSED_ROWS:
        fused_kernel[(parts * expert_blocks,)](
            x, router.weight, router.bias, partial, _ended(x.device), chosen, weights, rows, width,
            experts, expert_blocks, router.scale, **product, **choice, num_warps=4,
        )  # fmt: skip
        return chosen, weights
    row_blocks = triton.cdiv(rows, ROWS)
    gate_kernel[(parts * row_blocks * expert_blocks,)](
        x, router.weight, partial, rows, width, experts, row_blocks, expert_blocks, **product,
        num_warps=4,
    )  # fmt: skip
    choose_group_kernel[(triton.cdiv(rows, GROUP),)](
        partial, router.bias, chosen, weights, rows, experts, router.scale, **choice, num_warps=4
    )
    return chosen, weights


@cache
def _ended(device: torch.device) -> Tensor:
    """How many programs of the launch at hand have ended: 0 between launches."""
    return torch.zeros(1, dtype=torch.int32, device=device)
