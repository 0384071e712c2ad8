"""Scores of fp4 index keys for single queries, each tile of keys read while another is multiplied.

Words of a key are copied to shared memory by the group of 32 values that they belong to, so that a
thread asks for four keys and not for sixteen; places beyond the last key are read as that key, so
that nothing is masked. Keys come as `kernels.indexer.triton_keys` decodes them: in quarters, over
`REBASED`.
"""

from __future__ import annotations

import triton
import triton.language as tl

from kernels.indexer.triton_keys import query_columns, rectified_products
from kernels.quantize.triton_operands import BY_PRODUCTS, fp4_planes
from kernels.tuning import Tunable

SCORES = Tunable(
    name="score_rows",
    op="score_rows",
    default={"AHEAD": 0, "KEYS": 128, "TILES": 4, "STAGES": 1, "num_warps": 4, "maxnreg": 128},
    candidates=(
        {"AHEAD": 0, "KEYS": 128, "TILES": 4, "STAGES": 1, "num_warps": 4, "maxnreg": 128},
        *(
            {"AHEAD": 1, "KEYS": k, "TILES": t, "STAGES": s, "num_warps": w, "maxnreg": most}
            for k, t, s, w, most in (
                (64, 16, 2, 4, 96), (64, 16, 3, 4, 96), (128, 8, 2, 4, 128), (128, 16, 2, 4, 128),
                (128, 32, 2, 4, 128), (128, 16, 3, 4, 128), (128, 16, 3, 4, 168),
                (256, 8, 2, 8, 128),
            )
        ),
    ),
)  # fmt: skip


@triton.jit
def key_words(keys, place, WIDTH: tl.constexpr):
    """The words of fp4 rows [rows], 16 bits each, and their scales: [groups, rows, 8] and
    [groups, rows].
    """
    GROUPS: tl.constexpr = WIDTH // 32
    here = keys + place * (WIDTH // 2 + GROUPS)
    group = tl.arange(0, GROUPS)
    lane = tl.arange(0, 8)
    at = here.to(tl.pointer_type(tl.int16), bitcast=True)[None, :, None]
    word = tl.load(at + group[:, None, None] * 8 + lane[None, None, :])
    return word, tl.load(here[None, :] + WIDTH // 2 + group[:, None])


@triton.jit
def quarters_of(word, scale, WIDTH: tl.constexpr, IN_ASSEMBLY: tl.constexpr):
    """See `kernels.indexer.triton_keys.key_quarters`, which reads what this is given."""
    ROWS: tl.constexpr = word.shape[1]
    QUARTER: tl.constexpr = WIDTH // 4
    word = tl.permute(word, (1, 0, 2))  # here, while it is a quarter of what it becomes
    bits = (tl.minimum(tl.trans(scale).to(tl.int32) + 62, 255) << 7).to(tl.int16)
    factor = bits.to(tl.bfloat16, bitcast=True)[:, :, None]
    factor = tl.broadcast_to(factor, word.shape)
    quarters = fp4_planes(word, factor, BY_PRODUCTS if IN_ASSEMBLY else 0)
    return (
        tl.reshape(quarters[0], (ROWS, QUARTER)),
        tl.reshape(quarters[1], (ROWS, QUARTER)),
        tl.reshape(quarters[2], (ROWS, QUARTER)),
        tl.reshape(quarters[3], (ROWS, QUARTER)),
    )


@triton.jit
def page_of(table, logical, per_block, SHIFT: tl.constexpr):
    """Pages of logical rows; of 2^SHIFT rows each, or `per_block` where SHIFT is below 0."""
    return tl.load(table + (logical >> SHIFT if SHIFT >= 0 else logical // per_block))


@triton.jit
def place_of(page, logical, per_block, SHIFT: tl.constexpr):
    """Rows of the cache, by the pages of logical rows."""
    within = logical & ((1 << SHIFT) - 1) if SHIFT >= 0 else logical % per_block
    return page.to(tl.int64) * per_block + within


@triton.jit(do_not_specialize=["per_block"])
def score_ahead_kernel(
    queries,
    weights,
    keys,
    table,
    counts,
    out,
    heads,
    context,
    spans,
    per_block,
    table_stride,
    SHIFT: tl.constexpr,
    WIDTH: tl.constexpr,
    HEADS: tl.constexpr,
    KEYS: tl.constexpr,
    TILES: tl.constexpr,
    STAGES: tl.constexpr,
    IN_ASSEMBLY: tl.constexpr,
):
    """One query against `TILES` tiles of keys."""
    row = (tl.program_id(0) // spans).to(tl.int64)
    start = tl.program_id(0) % spans * (KEYS * TILES)
    count = tl.minimum(tl.load(counts + row), context).to(tl.int32)
    here = out + row * context
    end = start + KEYS * TILES
    lane = tl.arange(0, KEYS)
    if end > count:
        for tile in range(start, end, KEYS):
            at = tile + lane
            tl.store(here + at, float("-inf"), mask=(at >= count) & (at < context))
        end = count
    if start < end:
        pages = table + row * table_stride
        last = end - 1
        page = page_of(pages, tl.minimum(start + lane, last), per_block, SHIFT)
        columns, share = query_columns(queries, weights, row, row + 1, heads, WIDTH, HEADS, 1, 4)
        for tile in tl.range(start, end, KEYS, num_stages=STAGES):
            at = tl.minimum(tile + lane, last)
            word, scale = key_words(keys, place_of(page, at, per_block, SHIFT), WIDTH)
            page = page_of(pages, tl.minimum(tile + KEYS + lane, last), per_block, SHIFT)
            held = quarters_of(word, scale, WIDTH, IN_ASSEMBLY)
            score = tl.sum(rectified_products(held, columns, share, 4), 1)
            tl.store(here + at, score)
