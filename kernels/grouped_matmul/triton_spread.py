"""Rows of activations, once for each expert that a row chose, in order of the experts.

`kernels.grouped_matmul.triton_hopper` multiplies them where they then lie: rows of one expert
beside each other, and the inputs of a row in the order in which it unpacks weights.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from kernels.grouped_matmul.triton_tiles import Tiles
from kernels.quantize.triton_cuda import e4m3_code, e4m3_value
from kernels.quantize.triton_operands import group_exponents, power_of_two

INPUTS = 128  # that are in an order of their own: see `ordered`
BLOCK = 1024
PAIRS = 512  # of one program


@triton.jit
def places_kernel(order, tiles, tile_end, places, pairs, BLOCK: tl.constexpr):
    """Where each pair that has an expert lies in order of the experts."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    last = tl.load(tiles)
    total = tl.load(tile_end + tl.maximum(last - 1, 0), mask=last > 0, other=0)
    inside = (at < total) & (at < pairs)
    pair = tl.load(order + at, mask=inside, other=0)
    tl.store(places + pair, at, mask=inside)


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


@triton.jit(do_not_specialize=["blocks"])
def spread_kernel(
    x, chosen, weights, places, out, shares, width, blocks,
    TOP: tl.constexpr, GROUP: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """A block of a row, rounded in groups (GROUP 0: not), to each place of the row; weights too."""
    row = (tl.program_id(0) // blocks).to(tl.int64)
    block = tl.program_id(0) % blocks
    at = block * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + row * width + at, mask=at < width, other=0.0).to(tl.float32)
    if GROUP > 0:
        groups = tl.reshape(value, (BLOCK // GROUP, GROUP))
        exponent = group_exponents(groups, 1)
        down = power_of_two(tl.where(exponent == 255, 255, 254 - exponent))
        rounded = e4m3_value(e4m3_code(groups * down[:, None])) * power_of_two(exponent)[:, None]
        value = tl.reshape(rounded, (BLOCK,))
    value = ordered(value.to(tl.bfloat16), BLOCK)
    for i in tl.static_range(TOP):
        if tl.load(chosen + row * TOP + i) >= 0:
            place = tl.load(places + row * TOP + i).to(tl.int64)
            tl.store(out + place * width + at, value, mask=at < width)
            if block == 0:
                tl.store(shares + place, tl.load(weights + row * TOP + i))


def spread(
    x: Tensor, chosen: Tensor, weights: Tensor, tiles: Tiles, group: int | None
) -> tuple[Tensor, Tensor]:
    """bfloat16 [pairs, width] and weights [pairs] in order of the experts, with nothing written
    after the last pair that has one. x [rows, width], chosen and weights [rows, k], contiguous.
    """
    rows, width = x.shape
    pairs, blocks = chosen.numel(), triton.cdiv(width, BLOCK)
    places = torch.empty(pairs, dtype=torch.int32, device=x.device)
    out = torch.empty((pairs, width), dtype=torch.bfloat16, device=x.device)
    shares = torch.empty(pairs, dtype=torch.float32, device=x.device)
    places_kernel[(triton.cdiv(pairs, PAIRS),)](
        tiles.order, tiles.tiles, tiles.end, places, pairs, BLOCK=PAIRS, num_warps=4
    )
    spread_kernel[(rows * blocks,)](
        x, chosen, weights, places, out, shares, width, blocks,
        TOP=chosen.shape[1], GROUP=group or 0, BLOCK=BLOCK, num_warps=4,
    )  # fmt: skip
    return out, shares
