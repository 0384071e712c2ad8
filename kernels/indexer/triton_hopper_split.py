"""`score_many_kernel` by warps of their own: four copy queries, twice four multiply.

Each four that multiply have keys of their own and wait for nobody but the copies, so that two
products are not added up at the same time: the second four begin half a set later.
"""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    async_copy,
    mbarrier,
    warpgroup_mma,
    warpgroup_mma_wait,
)

from kernels.hopper import barrier
from kernels.indexer.triton_hopper_shared import (
    COLUMNS,
    KEYS,
    LIFT,
    WIDTH,
    copy_queries,
    counts_of,
    doubled,
    held_keys,
    live_sets,
    lowest,
    queries_of,
    store_scores,
    word_layout,
)

HALF = gl.constexpr(64)  # keys that four warps multiply at once


@gluon.jit
def multiply_sets(
    weights, keys, pages, counts, out, context, works, rings,
    SHIFT: gl.constexpr, HEADS: gl.constexpr, IS_SECOND: gl.constexpr,
):  # fmt: skip
    """Two halves of a tile against every live set."""
    TOGETHER: gl.constexpr = COLUMNS // HEADS
    PRODUCT: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, COLUMNS, 16])
    tile, begin, end, live, longest = works
    stages, full, empty, turn = rings
    STAGES: gl.constexpr = stages.shape[0]
    tile += KEYS if IS_SECOND else 0
    low = held_keys(keys, pages, tile, longest, SHIFT, PRODUCT, word_layout(4))
    high = held_keys(keys, pages, tile + HALF, longest, SHIFT, PRODUCT, word_layout(4))
    none = gl.zeros([HALF, COLUMNS], gl.float32, PRODUCT)
    column = gl.arange(0, COLUMNS, gl.SliceLayout(0, PRODUCT))
    done = gl.to_tensor(0)
    while live != 0:
        row = begin + lowest(live) * TOGETHER
        live = live & (live - 1)
        inside = column // HEADS < (end - row).to(gl.int32)
        weight = gl.load(weights + row * HEADS + column, mask=inside, other=0.0)
        count = counts_of(counts, row, end, TOGETHER)
        stage = done % STAGES
        mbarrier.wait(full.index(stage), done // STAGES & 1)
        query = stages.index(stage).permute((1, 0))
        if IS_SECOND:
            mbarrier.wait(turn, 0)
        product = warpgroup_mma(low, query, none, use_acc=False, is_async=True)
        product = doubled(warpgroup_mma_wait(0, deps=[product]))
        if not IS_SECOND and done == 0:
            barrier()
            mbarrier.arrive(turn)
        share = weight.to(gl.float32) * LIFT
        store_scores(product, share, count, out, row, end, context, tile, HEADS)
        product = warpgroup_mma(high, query, none, use_acc=False, is_async=True)
        product = doubled(warpgroup_mma_wait(0, deps=[product]))
        barrier()
        mbarrier.arrive(empty.index(stage))
        share = weight.to(gl.float32) * LIFT
        store_scores(product, share, count, out, row, end, context, tile + HALF, HEADS)
        done += 1


@gluon.jit
def multiply_first(
    weights, keys, pages, counts, out, context, works, rings, SHIFT: gl.constexpr,
    HEADS: gl.constexpr,
):  # fmt: skip
    """The first tile of keys."""
    multiply_sets(weights, keys, pages, counts, out, context, works, rings, SHIFT, HEADS, False)


@gluon.jit
def multiply_second(
    weights, keys, pages, counts, out, context, works, rings, SHIFT: gl.constexpr,
    HEADS: gl.constexpr,
):  # fmt: skip
    """The second tile of keys."""
    multiply_sets(weights, keys, pages, counts, out, context, works, rings, SHIFT, HEADS, True)


@gluon.jit
def read_sets(queries, works, rings, HEADS: gl.constexpr):
    """Copy every live set as soon as there is room for it."""
    TOGETHER: gl.constexpr = COLUMNS // HEADS
    _tile, begin, end, live, _longest = works
    stages, full, empty, _turn = rings
    STAGES: gl.constexpr = stages.shape[0]
    done = gl.to_tensor(0)
    while live != 0:
        row = begin + lowest(live) * TOGETHER
        live = live & (live - 1)
        stage = done % STAGES
        mbarrier.wait(empty.index(stage), (done // STAGES & 1) ^ 1)
        copy_queries(queries, row, end, stages.index(stage), HEADS)
        async_copy.mbarrier_arrive(full.index(stage), increment_count=False)
        done += 1


@gluon.jit(do_not_specialize=["tiles", "groups", "shared", "each", "table_stride"])
def score_split_kernel(
    queries,
    weights,
    keys,
    table,
    counts,
    out,
    context,
    tiles,
    groups,
    shared,
    each,
    table_stride,
    SHIFT: gl.constexpr,
    HEADS: gl.constexpr,
    STAGES: gl.constexpr,
):
    """As `score_many_kernel`."""
    tile, sequence, begin, end = queries_of(tiles, groups, shared, each)
    live, longest = live_sets(counts, out, tile, begin, end, context, COLUMNS // HEADS)
    stages = gl.allocate_shared_memory(
        gl.bfloat16, [STAGES, COLUMNS, WIDTH], gl.NVMMASharedLayout(128, 16, rank=2)
    )
    full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    turn = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    for stage in gl.static_range(STAGES):
        mbarrier.init(full.index(stage), count=128)
        mbarrier.init(empty.index(stage), count=2)
    mbarrier.init(turn, count=1)
    barrier()
    works = (tile, begin, end, live, longest)
    rings = (stages, full, empty, turn)
    pages = table + sequence * table_stride
    gl.warp_specialize(
        [
            (
                multiply_first,
                (weights, keys, pages, counts, out, context, works, rings, SHIFT, HEADS),
            ),
            (
                multiply_second,
                (weights, keys, pages, counts, out, context, works, rings, SHIFT, HEADS),
            ),
            (read_sets, (queries, works, rings, HEADS)),
        ],
        [4, 4],
        [232, 40],
    )
