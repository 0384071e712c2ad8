"""Scores of 4-bit index keys on Hopper: whole pages of keys are copied ahead of those multiplied.

A key is 68 bytes, so that pages of 4 keys and more begin at multiples of 16, and are copied by as
many; in shared memory no more than two of the words that a warp reads at once lie in one bank. A
thread decodes groups, which have one scale each, and feeds them to the product in the order that
it holds them in; queries are laid out in that order (`ordered_queries`).

Written in Gluon, which the interpreter does not run: `kernels.indexer.triton_cuda` is the same
computation, in another order, for every other device, format and page.
"""

from __future__ import annotations

import torch
import triton
from torch import Tensor
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    async_copy,
    fence_async_shared,
    warpgroup_mma,
    warpgroup_mma_wait,
)

from kernels import formats
from kernels.attention.triton_hopper import processors
from kernels.cache_ops.reference import CachedRows, Pages
from kernels.cache_ops.triton_hopper import barrier
from kernels.indexer import triton_cuda
from kernels.indexer.triton_hopper_shared import (
    LIFT,
    WIDTH,
    doubled,
    launch_shared,
    planes_of,
    scale_factor,
)

KEYS = 64  # of a tile, which four warps multiply
STAGES = 3  # tiles: one that is multiplied, the others on their way
RESIDENT_PROGRAMS = 660  # at once on a large device
CLEARED = gl.constexpr(512)  # scores of dead keys that are written at once
NARROWEST = 16  # heads of a product
MOST_HEADS = 128
LEAST_PAGE = 4


@gluon.constexpr_function
def half_layout(keys: int) -> gl.DistributedLinearLayout:
    """int16 [keys, 4 groups, 1 word, 2 halves]: a thread holds a group of two keys in 16."""
    more = [[64 << i, 0, 0, 0] for i in range((keys // 64).bit_length() - 1)]
    return gl.DistributedLinearLayout(
        reg_bases=[[0, 0, 0, 1], [8, 0, 0, 0], *more],
        lane_bases=[[0, 1, 0, 0], [0, 2, 0, 0], [1, 0, 0, 0], [2, 0, 0, 0], [4, 0, 0, 0]],
        warp_bases=[[16, 0, 0, 0], [32, 0, 0, 0]],
        block_bases=[],
        shape=[keys, 4, 1, 2],
    )


@gluon.jit
def words_of(KEYS: gl.constexpr):
    """Numbers of the words that are copied for a tile, and of some more: a power of two."""
    return gl.arange(0, 32 * KEYS, gl.BlockedLayout([4], [32], [gl.num_warps()], [0]))


@gluon.jit
def page_numbers(tile, SHIFT: gl.constexpr, KEYS: gl.constexpr):
    """In the table: of the page of each word of a tile, or of that of all."""
    number = tile >> SHIFT
    if KEYS > 1 << SHIFT:
        number += words_of(KEYS) // (17 << SHIFT)
    return number


@gluon.jit
def pages_of(pages, tile, last, SHIFT: gl.constexpr, KEYS: gl.constexpr):
    """The pages of a tile, none of them after that of key `last`."""
    number = gl.minimum(page_numbers(tile, SHIFT, KEYS), last >> SHIFT)
    return gl.load(pages + number).to(gl.uint32)


@gluon.jit
def seen_pages(page, tile, last, SHIFT: gl.constexpr, KEYS: gl.constexpr):
    """With page 0, which is always there, in the place of those after that of key `last`."""
    return gl.where(page_numbers(tile, SHIFT, KEYS) <= last >> SHIFT, page, 0).to(gl.uint32)


@gluon.jit
def copy_tile(keys, page, tile, stage, SHIFT: gl.constexpr, KEYS: gl.constexpr):
    """Start to copy a tile of keys by its pages."""
    PAGE: gl.constexpr = 17 << SHIFT
    word = words_of(KEYS)
    if KEYS > 1 << SHIFT:
        here = keys + word % PAGE + page.to(gl.int64) * PAGE
    else:
        here = keys + (page.to(gl.int64) * PAGE + (tile & ((1 << SHIFT) - 1)) * 17) + word
    here = gl.max_contiguous(gl.multiple_of(here, 16), 4)
    inside = gl.max_constancy(word < 17 * KEYS, 4)
    async_copy.async_copy_global_to_shared(stage, here, mask=inside)
    async_copy.commit_group()


@gluon.jit
def tile_words(stage, KEYS: gl.constexpr):
    """Scales (int32 [KEYS]) and words 0 to 3 of each group (int16 [KEYS, 4, 1, 2]) of a tile."""
    LAYOUT: gl.constexpr = half_layout(KEYS)
    BY_GROUP: gl.constexpr = gl.SliceLayout(2, gl.SliceLayout(3, LAYOUT))
    scales = stage.slice(16, 16)._reinterpret(
        gl.int32, [KEYS], gl.PaddedSharedLayout.with_identity_for([[1, 16]], [KEYS], [0])
    )
    halves = stage._reinterpret(
        gl.int16,
        [KEYS, 4, 4, 2],
        gl.PaddedSharedLayout.with_identity_for([[32, 2]], [KEYS, 4, 4, 2], [3, 2, 1, 0]),
    )
    return (  # word by word: they begin at any multiple of 4 bytes, and two would be read by 8
        scales.load(gl.SliceLayout(1, BY_GROUP)),
        halves.slice(0, 1, dim=2).load(LAYOUT),
        halves.slice(1, 1, dim=2).load(LAYOUT),
        halves.slice(2, 1, dim=2).load(LAYOUT),
        halves.slice(3, 1, dim=2).load(LAYOUT),
    )


@gluon.jit
def decoded(words, KEYS: gl.constexpr):
    """bfloat16 [KEYS, WIDTH] by word, value of a half, group and half, the last fastest."""
    scales, first, second, third, fourth = words
    group = gl.arange(
        0, 4, gl.SliceLayout(0, gl.SliceLayout(2, gl.SliceLayout(3, half_layout(KEYS))))
    )
    factor = scale_factor((scales[:, None] >> (8 * group[None, :])) & 255)
    factor = gl.expand_dims(gl.expand_dims(factor, 2), 3)
    low = gl.join(planes_of(first, factor), planes_of(third, factor))
    high = gl.join(planes_of(second, factor), planes_of(fourth, factor))
    planes = gl.permute(gl.join(low, high), (0, 2, 6, 7, 4, 5, 1, 3))
    return gl.reshape(planes, (KEYS, WIDTH))


@gluon.jit
def ordered_queries(queries, row, heads, tile, HEADS: gl.constexpr):
    """The heads of a query to shared memory [HEADS, WIDTH], in the order of `decoded`."""
    LAYOUT: gl.constexpr = gl.BlockedLayout([1, 8], [2, 16], [gl.num_warps(), 1], [1, 0])
    head = gl.arange(0, HEADS, gl.SliceLayout(1, LAYOUT))
    column = gl.arange(0, WIDTH, gl.SliceLayout(0, LAYOUT))
    here = queries + (row * heads + head[:, None]) * WIDTH + column[None, :]
    value = gl.load(here, mask=(head < heads)[:, None], other=0.0)
    value = gl.permute(gl.reshape(value, (HEADS, 4, 4, 2, 4)), (0, 2, 4, 1, 3))
    tile.store(gl.reshape(value, (HEADS, WIDTH)))
    fence_async_shared()
    barrier()


@gluon.jit(do_not_specialize=["spans", "each", "table_stride"])
def score_own_kernel(
    queries,
    weights,
    keys,
    table,
    counts,
    out,
    heads,
    context,
    spans,
    each,
    table_stride,
    SHIFT: gl.constexpr,
    HEADS: gl.constexpr,
    KEYS: gl.constexpr,
    STAGES: gl.constexpr,
):
    """One query against `each` tiles of keys of its own."""
    PRODUCT: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, HEADS, 16])
    LANE: gl.constexpr = gl.BlockedLayout([1], [32], [4], [0])
    row = (gl.program_id(0) // spans).to(gl.int64)
    start = gl.program_id(0) % spans * (KEYS * each)
    pages = table + row * table_stride
    count = gl.minimum(gl.load(counts + row), context).to(gl.int32)
    first = pages_of(pages, start, context - 1, SHIFT, KEYS)  # need not exist: see `seen_pages`
    second = pages_of(pages, start + KEYS, context - 1, SHIFT, KEYS)
    here = out + row * context
    end = gl.minimum(start + KEYS * each, context)
    lane = gl.arange(0, CLEARED, LANE)
    never = gl.full([CLEARED], float("-inf"), gl.float32, LANE)
    for at in range(gl.maximum(start, count), end, CLEARED):
        gl.store(here + at + lane, never, mask=at + lane < end)
    end = gl.minimum(end, count)
    if start < end:
        last = end - 1
        words = keys.to(gl.pointer_type(gl.int32), bitcast=True)
        query = gl.allocate_shared_memory(
            gl.bfloat16, [HEADS, WIDTH], gl.NVMMASharedLayout(128, 16, rank=2)
        )
        stages = gl.allocate_shared_memory(
            gl.int32, [STAGES, 32 * KEYS], gl.SwizzledSharedLayout(1, 1, 1, [0])
        )
        first = seen_pages(first, start, last, SHIFT, KEYS)
        copy_tile(words, first, start, stages.index(0), SHIFT, KEYS)
        if STAGES > 2:
            second = seen_pages(second, start + KEYS, last, SHIFT, KEYS)
            copy_tile(words, second, start + KEYS, stages.index(1), SHIFT, KEYS)
        page = pages_of(pages, start + (STAGES - 1) * KEYS, last, SHIFT, KEYS)
        ordered_queries(queries, row, heads, query, HEADS)
        head = gl.arange(0, HEADS, gl.SliceLayout(0, PRODUCT))
        share = gl.load(weights + row * heads + head, mask=head < heads, other=0.0)
        share = share.to(gl.float32) * LIFT
        none = gl.zeros([KEYS, HEADS], gl.float32, PRODUCT)
        key = gl.arange(0, KEYS, gl.SliceLayout(1, PRODUCT))
        held = gl.to_tensor(0)
        for tile in range(start, end, KEYS):
            async_copy.wait_group(STAGES - 2)
            barrier()
            read = tile_words(stages.index(held), KEYS)
            free = stages.index(gl.where(held == 0, STAGES, held) - 1)
            held = gl.where(held + 1 == STAGES, 0, held + 1)
            copy_tile(words, page, tile + (STAGES - 1) * KEYS, free, SHIFT, KEYS)
            page = pages_of(pages, tile + STAGES * KEYS, last, SHIFT, KEYS)
            values = gl.convert_layout(decoded(read, KEYS), gl.DotOperandLayout(0, PRODUCT, 2))
            multiplying = warpgroup_mma(
                values, query.permute((1, 0)), none, use_acc=False, is_async=True
            )
            product = doubled(warpgroup_mma_wait(0, deps=[multiplying]))
            score = gl.sum(product * share[None, :], 1)
            gl.store(here + tile + key, score, mask=tile + key < end)
        async_copy.wait_group(0)


def score_rows(
    queries: Tensor, weights: Tensor, keys: CachedRows, pages: Pages, counts: Tensor, context: int
) -> Tensor:
    """See kernels.indexer.reference; a score that float32 cannot hold is not a number."""
    if not _is_written_for(queries, keys, pages):
        return triton_cuda.score_rows(queries, weights, keys, pages, counts, context)
    rows, heads = queries.shape[:2]
    out = torch.empty((rows, context), dtype=torch.float32, device=queries.device)
    if not out.numel():
        return out
    ours = (queries.contiguous(), weights.contiguous(), keys, pages, counts.contiguous(), out)
    if rows == len(pages.table):
        _launch_own(*ours)
    elif MOST_HEADS % heads == 0 and heads >= NARROWEST:
        launch_shared(*ours, processors(queries.device))
    else:
        return triton_cuda.score_rows(queries, weights, keys, pages, counts, context)
    return out


def _is_written_for(queries: Tensor, keys: CachedRows, pages: Pages) -> bool:
    per_block = pages.rows_per_block
    return (
        queries.dtype == torch.bfloat16
        and queries.shape[2] == WIDTH.value
        and queries.shape[1] <= MOST_HEADS
        and keys.packing == formats.FP4_GROUP32
        and keys.page_rows is None
        and per_block >= LEAST_PAGE
        and not per_block & (per_block - 1)
        and keys.tensor.data_ptr() % 16 == 0
    )


def _launch_own(
    queries: Tensor, weights: Tensor, keys: CachedRows, pages: Pages, counts: Tensor, out: Tensor
) -> None:
    rows, heads = queries.shape[:2]
    context = out.shape[1]
    each = tiles_of_program(rows, triton.cdiv(context, KEYS))
    spans = triton.cdiv(context, each * KEYS)
    score_own_kernel[(rows * spans,)](
        queries, weights, keys.tensor, pages.table, counts, out, heads, context, spans, each,
        pages.table.stride(0), SHIFT=pages.rows_per_block.bit_length() - 1,
        HEADS=max(triton.next_power_of_2(heads), NARROWEST), KEYS=KEYS, STAGES=STAGES, num_warps=4,
    )  # fmt: skip


def tiles_of_program(rows: int, tiles: int) -> int:
    """Tiles of keys for one program: so many that there are no more than two rounds of programs."""
    spans = max(1, min(tiles, 2 * RESIDENT_PROGRAMS // rows))
    return triton.cdiv(tiles, spans)
