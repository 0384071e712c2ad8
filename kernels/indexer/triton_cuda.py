"""Scores of index keys that are read where they lie: one program for a query and some keys."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from kernels.cache_ops.reference import CachedRows, Pages
from kernels.quantize.triton_cuda import NUMBERS, stored_values

KEYS = 64


# Told that 16 divides `per_block`, Triton 3.6 takes the rows themselves for multiples of 16, and
# reads 68 bytes by 16 where only 4 are aligned. 3.7 does not.
@triton.jit(do_not_specialize=["per_block"])
def score_kernel(
    queries,
    weights,
    keys,
    table,
    counts,
    out,
    heads,
    context,
    tiles,
    per_block,
    table_stride,
    FORMAT: tl.constexpr,
    WIDTH: tl.constexpr,
    HEADS: tl.constexpr,
    KEYS: tl.constexpr,
):
    row = (tl.program_id(0) // tiles).to(tl.int64)
    at = tl.program_id(0) % tiles * KEYS + tl.arange(0, KEYS)
    count = tl.load(counts + row)
    visible = (at < count) & (at < context)
    score = tl.zeros((KEYS,), tl.float32)
    if tl.program_id(0) % tiles * KEYS < count:
        block = tl.load(table + row * table_stride + at // per_block, mask=visible, other=0)
        place = block.to(tl.int64) * per_block + at % per_block
        held = stored_values(keys, place, visible, FORMAT, WIDTH, queries.dtype.element_ty)
        for start in range(0, heads, HEADS):
            head = start + tl.arange(0, HEADS)
            inside = head < heads
            here = (row * heads + head)[:, None] * WIDTH + tl.arange(0, WIDTH)[None, :]
            query = tl.load(queries + here, mask=inside[:, None], other=0.0)
            share = tl.load(weights + row * heads + head, mask=inside, other=0.0).to(tl.float32)
            product = tl.dot(query, tl.trans(held), input_precision="ieee")
            product = tl.where(product < 0, 0.0, product)  # a NaN stays one
            score += tl.sum(product * share[:, None], 0)
    score = tl.where(visible, score, float("-inf"))
    tl.store(out + row * context + at, score, mask=at < context)


def score_rows(
    queries: Tensor, weights: Tensor, keys: CachedRows, pages: Pages, counts: Tensor, context: int
) -> Tensor:
    """See kernels.indexer.reference; keys a power of two wide."""
    queries, weights = queries.contiguous(), weights.contiguous()
    rows, heads, width = queries.shape
    out = torch.empty((rows, context), dtype=torch.float32, device=queries.device)
    tiles = triton.cdiv(context, KEYS)
    if rows * tiles:
        score_kernel[(rows * tiles,)](
            queries,
            weights,
            keys.tensor,
            pages.table,
            counts.contiguous(),
            out,
            heads,
            context,
            tiles,
            pages.rows_per_block,
            pages.table.stride(0),
            FORMAT=NUMBERS[keys.packing],
            WIDTH=width,
            HEADS=min(max(triton.next_power_of_2(heads), 16), 64),
            KEYS=KEYS,
            num_warps=4,
        )
    return out
