"""Scores of 4-bit index keys for single queries on Hopper: pages are copied ahead.

A key is 68 bytes, so that pages of 4 keys and more begin at multiples of 16, and are copied by as
many; in shared memory no more than two of the words that a warp reads at once lie in one bank. A
thread decodes groups, which have one scale each, and feeds them to the product in the order that
it holds them in; queries are laid out in that order (`ordered_queries`).
"""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    async_copy,
    fence_async_shared,
    warpgroup_mma,
    warpgroup_mma_init,
    warpgroup_mma_wait,
)

from kernels.hopper import barrier
from kernels.indexer.triton_hopper_shared import (
    KEYS,
    LIFT,
    WIDTH,
    doubled,
    planes_of,
    scale_factor,
)

CLEARED = gl.constexpr(512)  # scores of dead keys that are written at once


@gluon.constexpr_function
def group_layout() -> gl.DistributedLinearLayout:
    """int16 [64 keys, 4 groups, 1 word, 2 halves]: a thread holds a group of two keys in 16."""
    return gl.DistributedLinearLayout(
        reg_bases=[[0, 0, 0, 1], [8, 0, 0, 0]],
        lane_bases=[[0, 1, 0, 0], [0, 2, 0, 0], [1, 0, 0, 0], [2, 0, 0, 0], [4, 0, 0, 0]],
        warp_bases=[[16, 0, 0, 0], [32, 0, 0, 0]],
        block_bases=[],
        shape=[64, 4, 1, 2],
    )


@gluon.jit
def page_numbers(tile, SHIFT: gl.constexpr, FIRST: gl.constexpr, COUNT: gl.constexpr):
    """In the table: of the page of each of some words of a tile, or that of all."""
    number = tile >> SHIFT
    if KEYS > 1 << SHIFT:
        number += words_of(FIRST, COUNT) // (17 << SHIFT)
    return number


@gluon.jit
def words_of(FIRST: gl.constexpr, COUNT: gl.constexpr):
    """Numbers of words of a tile."""
    return FIRST + gl.arange(0, COUNT, gl.BlockedLayout([4], [32], [gl.num_warps()], [0]))


@gluon.jit
def pages_of(pages, tile, last, SHIFT: gl.constexpr):
    """The pages of a tile, none of them after that of key `last`: of its first 16 words for each
    key, and of as many more as there are keys.
    """
    main = gl.minimum(page_numbers(tile, SHIFT, 0, KEYS * 16), last >> SHIFT)
    main = gl.load(pages + main).to(gl.uint32)
    rest = main
    if KEYS > 1 << SHIFT:
        rest = gl.minimum(page_numbers(tile, SHIFT, KEYS * 16, KEYS), last >> SHIFT)
        rest = gl.load(pages + rest).to(gl.uint32)
    return main, rest


@gluon.jit
def copy_words(
    keys, page, tile, last, stage, SHIFT: gl.constexpr, FIRST: gl.constexpr, COUNT: gl.constexpr
):
    """Start to copy words of a tile by their pages, up to that of key `last`."""
    PAGE: gl.constexpr = 17 << SHIFT
    word = words_of(FIRST, COUNT)
    seen = page_numbers(tile, SHIFT, FIRST, COUNT) <= last >> SHIFT
    if KEYS > 1 << SHIFT:
        here = keys + word % PAGE + page.to(gl.int64) * PAGE
        seen = gl.max_constancy(seen, 4)
    else:
        here = keys + (page.to(gl.int64) * PAGE + (tile & ((1 << SHIFT) - 1)) * 17) + word
    here = gl.max_contiguous(gl.multiple_of(here, 16), 4)
    async_copy.async_copy_global_to_shared(stage.slice(FIRST, COUNT), here, mask=seen)


@gluon.jit
def copy_tile(keys, page, tile, last, stage, SHIFT: gl.constexpr):
    """Start to copy a tile of keys."""
    main, rest = page
    copy_words(keys, main, tile, last, stage, SHIFT, 0, KEYS * 16)
    copy_words(keys, rest, tile, last, stage, SHIFT, KEYS * 16, KEYS)
    async_copy.commit_group()


@gluon.jit
def factors_of(stage, HALF: gl.constexpr):
    """Of each group of 64 keys of a tile."""
    BY_GROUP: gl.constexpr = gl.SliceLayout(2, gl.SliceLayout(3, group_layout()))
    scales = stage.slice(16, 16)._reinterpret(
        gl.int32, [KEYS], gl.PaddedSharedLayout.with_identity_for([[1, 16]], [KEYS], [0])
    )
    four = scales.slice(64 * HALF, 64).load(gl.SliceLayout(1, BY_GROUP))
    group = gl.arange(0, 4, gl.SliceLayout(0, BY_GROUP))
    factor = scale_factor((four[:, None] >> (8 * group[None, :])) & 255)
    return gl.expand_dims(gl.expand_dims(factor, 2), 3)


@gluon.jit
def decoded(stage, factor, HALF: gl.constexpr, WORD: gl.constexpr, PRODUCT: gl.constexpr):
    """Of 64 keys of a tile, the values of a word of each group: bfloat16 [64, 32] by value of a
    half, group and half, the last fastest.
    """
    halves = stage._reinterpret(
        gl.int16,
        [KEYS, 4, 4, 2],
        gl.PaddedSharedLayout.with_identity_for([[32, 2]], [KEYS, 4, 4, 2], [3, 2, 1, 0]),
    )
    # One word: they begin at any multiple of 4 bytes, and two would be read by 8.
    word = halves.slice(64 * HALF, 64, dim=0).slice(WORD, 1, dim=2).load(group_layout())
    planes = gl.permute(planes_of(word, factor), (0, 2, 4, 5, 1, 3))
    return gl.convert_layout(gl.reshape(planes, (64, 32)), gl.DotOperandLayout(0, PRODUCT, 2))


@gluon.jit
def ordered_queries(queries, row, heads, tiles, HEADS: gl.constexpr):
    """The heads of a query to shared memory [4 words, HEADS, 32], in the order of `decoded`."""
    LAYOUT: gl.constexpr = gl.BlockedLayout([1, 1, 8], [8, 4, 1], [4, 1, 1], [2, 1, 0])
    BY_GROUP: gl.constexpr = gl.SliceLayout(2, LAYOUT)
    head = gl.arange(0, HEADS, gl.SliceLayout(1, BY_GROUP))
    group = gl.arange(0, 4, gl.SliceLayout(0, BY_GROUP))
    value = gl.arange(0, 8, gl.SliceLayout(0, gl.SliceLayout(0, LAYOUT)))
    here = queries + (row * heads + head[:, None]) * WIDTH + 32 * group[None, :]
    here = gl.expand_dims(here, 2) + gl.expand_dims(value[None, :], 0)
    inside = gl.expand_dims((head < heads)[:, None], 2)
    for word in gl.static_range(4):
        values = gl.load(here + 8 * word, mask=inside, other=0.0)
        values = gl.permute(gl.reshape(values, (HEADS, 4, 2, 4)), (0, 3, 1, 2))
        tiles.index(word).store(gl.reshape(values, (HEADS, 32)))
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
    STAGES: gl.constexpr,
):
    """One query against `each` tiles of keys of its own. What is decoded is multiplied while the
    next is decoded, of one half of a tile and the other in turn.
    """
    PRODUCT: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, HEADS, 16])
    LANE: gl.constexpr = gl.BlockedLayout([1], [32], [4], [0])
    row = (gl.program_id(0) // spans).to(gl.int64)
    start = gl.program_id(0) % spans * (KEYS * each)
    pages = table + row * table_stride
    count = gl.minimum(gl.load(counts + row), context).to(gl.int32)
    page = pages_of(pages, start, context - 1, SHIFT)  # those of no key are not copied
    next_page = pages_of(pages, start + KEYS, context - 1, SHIFT)
    here = out + row * context
    end = gl.minimum(start + KEYS * each, context)
    lane = gl.arange(0, CLEARED, LANE)
    never = gl.full([CLEARED], float("-inf"), gl.float32, LANE)
    for dead in range(gl.maximum(start, count), end, CLEARED):
        gl.store(here + dead + lane, never, mask=dead + lane < end)
    end = gl.minimum(end, count)
    if start < end:
        last = end - 1
        words = keys.to(gl.pointer_type(gl.int32), bitcast=True)
        query = gl.allocate_shared_memory(
            gl.bfloat16, [4, HEADS, 32], gl.NVMMASharedLayout(64, 16, rank=2)
        )
        stages = gl.allocate_shared_memory(
            gl.int32, [STAGES, 32 * KEYS], gl.SwizzledSharedLayout(1, 1, 1, [0])
        )
        copy_tile(words, page, start, last, stages.index(0), SHIFT)
        page = next_page
        if STAGES > 2:
            copy_tile(words, page, start + KEYS, last, stages.index(1), SHIFT)
            page = pages_of(pages, start + 2 * KEYS, last, SHIFT)
        ordered_queries(queries, row, heads, query, HEADS)
        head = gl.arange(0, HEADS, gl.SliceLayout(0, PRODUCT))
        share = gl.load(weights + row * heads + head, mask=head < heads, other=0.0)
        share = share.to(gl.float32) * LIFT
        none = gl.zeros([64, HEADS], gl.float32, PRODUCT)
        key = gl.arange(0, 64, gl.SliceLayout(1, PRODUCT))
        held = gl.to_tensor(0)
        for tile in range(start, end, KEYS):
            async_copy.wait_group(STAGES - 2)
            barrier()
            stage = stages.index(held)
            free = stages.index(gl.where(held == 0, STAGES, held) - 1)
            held = gl.where(held + 1 == STAGES, 0, held + 1)
            copy_tile(words, page, tile + (STAGES - 1) * KEYS, last, free, SHIFT)
            page = pages_of(pages, tile + STAGES * KEYS, last, SHIFT)
            low, high = factors_of(stage, 0), factors_of(stage, 1)
            first = warpgroup_mma_init(none)
            second = warpgroup_mma_init(none)
            for word in gl.static_range(4):  # read late: the compiler decodes as soon as it can
                columns = query.index(word).permute((1, 0))
                values = decoded(stage, low, 0, word, PRODUCT)
                first = warpgroup_mma(values, columns, first, use_acc=word > 0, is_async=True)
                values = decoded(stage, high, 1, word, PRODUCT)
                second = warpgroup_mma(values, columns, second, use_acc=word > 0, is_async=True)
            first, second = warpgroup_mma_wait(0, deps=[first, second])
            at = tile + key
            gl.store(here + at, gl.sum(doubled(first) * share[None, :], 1), mask=at < end)
            at += 64
            gl.store(here + at, gl.sum(doubled(second) * share[None, :], 1), mask=at < end)
        async_copy.wait_group(0)
