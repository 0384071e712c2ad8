"""Rows of activations, once for each expert that a row chose, in order of the experts.

`kernels.grouped_matmul.triton_hopper` multiplies them where they then lie: rows of one expert
beside each other, and the inputs of a row in the order in which it unpacks weights.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from kernels.dependent_launch import early, wait_for_results
from kernels.grouped_matmul.triton_tiles import Cut, Tiles, choices, group_chunk
from kernels.quantize.triton_cuda import e4m3_code, e4m3_value
from kernels.quantize.triton_operands import group_exponents, power_of_two

INPUTS = 128  # that are in an order of their own: see `ordered`
BLOCK = 1024
COMPARED = tl.constexpr(512)  # pairs that those of a row are compared with at a time


@triton.jit
def ordered(value, BLOCK: tl.constexpr):
    """Inputs of each 128 in another order: the bits 6543210 of a place are those of the input that
    are numbered 1043652.

    A thread of a matrix instruction has 16 bytes of a row of mxfp4 weights, a group of 32 inputs
    (bits 6 and 5). Which nibble of a word of 16 bits an input is (bits 1 and 0) decides, as bit 4
    does, which instruction takes it; bits 3 and 2 which of the thread's four values of a row.
    """
    value = tl.reshape(value, (BLOCK // 128, 4, 2, 2, 2, 4))
    return tl.reshape(tl.permute(value, (0, 5, 2, 3, 1, 4)), (BLOCK,))


@triton.jit
def laid_out(x, row, block, width, GROUP: tl.constexpr, BLOCK: tl.constexpr):
    """A block of a row, rounded in groups (GROUP 0: not), in the order of `ordered`."""
    at = block * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + row * width + at, mask=at < width, other=0.0).to(tl.float32)
    if GROUP > 0:
        groups = tl.reshape(value, (BLOCK // GROUP, GROUP))
        exponent = group_exponents(groups, 1)
        down = power_of_two(tl.where(exponent == 255, 255, 254 - exponent))
        rounded = e4m3_value(e4m3_code(groups * down[:, None])) * power_of_two(exponent)[:, None]
        value = tl.reshape(rounded, (BLOCK,))
    return ordered(value.to(tl.bfloat16), BLOCK)


@triton.jit
def spread_block(
    value, row, block, place, is_some, slot, weights, out, shares, width,
    TOP: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """A block of a row to the places of its pairs, vectors of at least TOP; weights too."""
    at = block * BLOCK + tl.arange(0, BLOCK)
    for i in tl.static_range(TOP):
        here = tl.sum(tl.where(slot == i, place, 0), 0).to(tl.int64)
        if tl.sum((is_some & (slot == i)).to(tl.int32), 0) > 0:
            tl.store(out + here * width + at, value, mask=at < width)
    if block == 0:
        weight = tl.load(weights + row * TOP + slot, mask=is_some, other=0.0)
        tl.store(shares + place, weight, mask=is_some)


@triton.jit(do_not_specialize=["blocks"])
def spread_kernel(
    x, chosen, weights, places, out, shares, width, blocks,
    EARLY: tl.constexpr, TOP: tl.constexpr, SLOTS: tl.constexpr, GROUP: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """A block of a row to each place of the row; SLOTS: a power of two not less than TOP."""
    wait_for_results(EARLY)
    row = (tl.program_id(0) // blocks).to(tl.int64)
    block = tl.program_id(0) % blocks
    slot = tl.arange(0, SLOTS)
    is_some = tl.load(chosen + row * TOP + slot, mask=slot < TOP, other=-1) >= 0
    place = tl.load(places + row * TOP + slot, mask=is_some, other=0)
    value = laid_out(x, row, block, width, GROUP, BLOCK)
    spread_block(value, row, block, place, is_some, slot, weights, out, shares, width, TOP, BLOCK)


@triton.jit(do_not_specialize=["pairs", "chunks", "blocks"])
def group_and_spread_kernel(
    x, chosen, weights, order, places, tiles, tile_expert, tile_start, tile_end, out, shares,
    pairs, experts, chunks, width, blocks,
    EARLY: tl.constexpr, COUNTED: tl.constexpr, TILE: tl.constexpr, BINS: tl.constexpr,
    CHUNK: tl.constexpr, STEP: tl.constexpr,
    TOP: tl.constexpr, SLOTS: tl.constexpr, GROUP: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """`group_chunk` of all chunks, and blocks of rows, which count for themselves where they go."""
    wait_for_results(EARLY)
    if tl.program_id(0) < chunks:
        group_chunk(
            chosen, chosen, order, places, tiles, tile_expert, tile_start, tile_end, pairs,
            experts, tl.program_id(0), chunks, COUNTED, TILE, BINS, CHUNK, STEP,
        )  # fmt: skip
    else:
        row = ((tl.program_id(0) - chunks) // blocks).to(tl.int64)
        block = (tl.program_id(0) - chunks) % blocks
        slot = tl.arange(0, SLOTS)
        pair = row * TOP + slot
        mine = tl.load(chosen + pair, mask=slot < TOP, other=-1).to(tl.int32)
        place = tl.zeros((SLOTS,), tl.int32)
        for start in range(0, pairs, COMPARED):
            at = start + tl.arange(0, COMPARED)
            one = choices(chosen, at, pairs, experts)
            is_before = (one[None, :] == mine[:, None]) & (at[None, :] < pair[:, None])
            is_before = is_before | (one[None, :] < mine[:, None])
            place += tl.sum(is_before.to(tl.int32), 1)
        value = laid_out(x, row, block, width, GROUP, BLOCK)
        spread_block(
            value, row, block, place, mine >= 0, slot, weights, out, shares, width, TOP, BLOCK
        )


def spread(
    x: Tensor, chosen: Tensor, weights: Tensor, experts: int, *, size: int, group: int | None
) -> tuple[Tiles, Tensor, Tensor]:
    """Tiles of at most `size` pairs, and bfloat16 [pairs, width] and weights [pairs] in order of
    the experts, with nothing written after the last pair that has one. x [rows, width], chosen and
    weights [rows, k], contiguous.
    """
    rows, width = x.shape
    pairs, blocks, top = chosen.numel(), triton.cdiv(width, BLOCK), chosen.shape[1]
    out = torch.empty((pairs, width), dtype=torch.bfloat16, device=x.device)
    shares = torch.empty(pairs, dtype=torch.float32, device=x.device)
    constants = {
        "TOP": top, "SLOTS": triton.next_power_of_2(top), "GROUP": group or 0, "BLOCK": BLOCK,
        "num_warps": 4, **early(),
    }  # fmt: skip
    cut = Cut.of(pairs, experts, size)
    if cut.counted:
        tiles = Tiles.of(chosen, experts, size)
        spread_kernel[(rows * blocks,)](
            x, chosen, weights, tiles.places, out, shares, width, blocks, **constants
        )
    else:
        tiles = Tiles.room(chosen, experts, size)
        group_and_spread_kernel[(cut.chunks + rows * blocks,)](
            x, chosen, weights, *tiles.written, out, shares, pairs, experts, cut.chunks, width,
            blocks, **cut.constants, **constants,
        )  # fmt: skip
    return tiles, out, shares
