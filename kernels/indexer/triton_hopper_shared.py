"""Scores of 4-bit index keys for the queries of one sequence on Hopper.

Keys are decoded once into registers, two tiles of them; queries come by way of shared memory, as
many at a time as have 128 heads together. While a tile is multiplied, the products of the other
are added up.
"""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    async_copy,
    fence_async_shared,
    warpgroup_mma,
    warpgroup_mma_wait,
)

from kernels.hopper import barrier
from kernels.quantize.triton_operands import FP4_BY_PRODUCTS

WIDTH = gl.constexpr(128)  # of a key
KEYS = gl.constexpr(128)  # of a tile, which eight warps multiply
COLUMNS = gl.constexpr(128)  # heads that they meet at once
SETS = gl.constexpr(32)  # of queries, at most, that meet the keys of a program
LIFT = gl.constexpr(9223372036854775808.0)  # 2^63: half of what decoded keys are divided by
STAGES = 4


@gluon.jit
def scale_factor(scale):
    """bfloat16 of ue8m0 bytes (int32) for `planes_of`; see `kernels.indexer.triton_keys`."""
    bits = (gl.minimum(scale + 62, 255) << 7).to(gl.int16)
    return bits.to(gl.bfloat16, bitcast=True)


@gluon.jit
def planes_of(word, factor):
    """The four values of words (int16) times their factors, over 2^64: bfloat16 [..., 2, 2]."""
    factor, word = gl.broadcast(factor, word)
    first, second, third, fourth = gl.inline_asm_elementwise(
        FP4_BY_PRODUCTS,
        "=&r,=&r,=&r,=&r,r,r",
        [word, factor],
        dtype=(gl.bfloat16, gl.bfloat16, gl.bfloat16, gl.bfloat16),
        is_pure=False,  # stays where it is, beside the products before it
        pack=2,
    )
    return gl.join(gl.join(first, third), gl.join(second, fourth))


@gluon.jit
def doubled(product):
    """Twice a product above zero, zero below."""
    return product + gl.abs(product)


@gluon.constexpr_function
def word_layout(warps: int) -> gl.DistributedLinearLayout:
    """int16 [16 keys for each warp, 4 groups, 4 words, 2 halves]."""
    return gl.DistributedLinearLayout(
        reg_bases=[[0, 0, 0, 1], [0, 0, 1, 0], [0, 0, 2, 0], [8, 0, 0, 0]],
        lane_bases=[[0, 1, 0, 0], [0, 2, 0, 0], [1, 0, 0, 0], [2, 0, 0, 0], [4, 0, 0, 0]],
        warp_bases=[[16 << i, 0, 0, 0] for i in range(warps.bit_length() - 1)],
        block_bases=[],
        shape=[16 * warps, 4, 4, 2],
    )


@gluon.jit
def held_keys(
    keys, pages, first, count, SHIFT: gl.constexpr, PRODUCT: gl.constexpr, LAYOUT: gl.constexpr
):
    """As many keys as LAYOUT has, decoded, from key `first` on; any for those from `count` on."""
    TILE: gl.constexpr = LAYOUT.shape[0]
    BY_WORD: gl.constexpr = gl.SliceLayout(3, LAYOUT)
    BY_GROUP: gl.constexpr = gl.SliceLayout(2, BY_WORD)
    at = first + gl.arange(0, TILE, gl.SliceLayout(1, BY_GROUP))
    at = gl.maximum(gl.minimum(at, count - 1), 0)
    page = gl.where(count > 0, gl.load(pages + (at >> SHIFT)), 0)
    here = keys + ((page << SHIFT) + (at & ((1 << SHIFT) - 1))) * 68
    group = gl.arange(0, 4, gl.SliceLayout(0, BY_GROUP))
    scale = gl.load(here[:, None] + 64 + group[None, :]).to(gl.int32)
    factor = gl.expand_dims(gl.expand_dims(scale_factor(scale), 2), 3)
    word = gl.arange(0, 4, gl.SliceLayout(0, gl.SliceLayout(0, BY_WORD)))
    word = gl.expand_dims(gl.expand_dims(word[None, :], 0), 3)
    half = gl.arange(0, 2, gl.SliceLayout(0, gl.SliceLayout(0, gl.SliceLayout(0, LAYOUT))))
    half = gl.expand_dims(gl.expand_dims(half[None, :], 0), 0)
    words = here.to(gl.pointer_type(gl.int16), bitcast=True)[:, None] + 8 * group[None, :]
    words = gl.expand_dims(gl.expand_dims(words, 2), 3) + 2 * word + half
    words = gl.max_contiguous(gl.multiple_of(words, [1, 1, 1, 4]), [1, 1, 1, 2])
    values = gl.reshape(planes_of(gl.load(words), factor), (TILE, WIDTH))
    return gl.convert_layout(values, gl.DotOperandLayout(0, PRODUCT, 2))


@gluon.jit
def lowest(bits):
    """The number of the lowest bit that is set."""
    return gl.inline_asm_elementwise(
        "{ .reg .b64 t; brev.b64 t, $1; clz.b64 $0, t; }",
        "=r,l",
        [bits],
        dtype=gl.int32,
        is_pure=True,
        pack=1,
    )


@gluon.jit
def rest_of(bits):
    """Without the lowest, unless it is the last."""
    return gl.where(bits & (bits - 1) == 0, bits, bits & (bits - 1))


@gluon.jit
def queries_of(tiles, groups, shared, each):
    """The first key of a program, its sequence, and the first of its queries and their end."""
    tile = gl.program_id(0) % tiles * (2 * KEYS)
    group = groups - 1 - gl.program_id(0) // tiles % groups  # the last may see most keys
    sequence = (gl.program_id(0) // tiles // groups).to(gl.int64)
    begin = sequence * shared + group * each
    return tile, sequence, begin, gl.minimum(begin + each, (sequence + 1) * shared)


@gluon.jit
def live_sets(counts, out, tile, begin, end, context, TOGETHER: gl.constexpr):
    """The sets of queries that see a key of the two tiles, as bits, and the most keys that one
    sees. The scores of the others are written.
    """
    LANE: gl.constexpr = gl.BlockedLayout([1], [32], [gl.num_warps()], [0])
    MEMBERS: gl.constexpr = gl.BlockedLayout([1, TOGETHER], [32, 1], [gl.num_warps(), 1], [1, 0])
    SET: gl.constexpr = gl.SliceLayout(1, MEMBERS)
    number = gl.arange(0, SETS, SET)
    member = gl.arange(0, TOGETHER, gl.SliceLayout(0, MEMBERS))
    every = begin + number[:, None] * TOGETHER + member[None, :]
    most = gl.max(gl.load(counts + every, mask=every < end, other=0), 1)
    bit = gl.full([SETS], 1, gl.int64, SET) << number.to(gl.int64)
    dead = gl.sum(gl.where((most <= tile) & (begin + number * TOGETHER < end), bit, 0), 0)
    at = tile + gl.arange(0, 2 * KEYS, LANE)
    never = gl.full([2 * KEYS], float("-inf"), gl.float32, LANE)
    while dead != 0:
        row = begin + lowest(dead) * TOGETHER
        dead = dead & (dead - 1)
        for other in gl.static_range(TOGETHER):
            seen = (at < context) & (row + other < end)
            gl.store(out + (row + other) * context + at, never, mask=seen)
    live = gl.sum(gl.where(most > tile, bit, 0), 0)
    return live, gl.minimum(gl.max(most, 0), context).to(gl.int32)


@gluon.jit
def copy_queries(queries, row, end, tile, HEADS: gl.constexpr):
    """Start to copy the heads of a set of queries to shared memory."""
    LAYOUT: gl.constexpr = gl.BlockedLayout([1, 8], [2, 16], [gl.num_warps(), 1], [1, 0])
    head = gl.arange(0, COLUMNS, gl.SliceLayout(1, LAYOUT))
    value = gl.arange(0, WIDTH, gl.SliceLayout(0, LAYOUT))
    here = queries + row * (HEADS * WIDTH) + (head[:, None] * WIDTH + value[None, :])
    seen = head // HEADS < (end - row).to(gl.int32)
    async_copy.async_copy_global_to_shared(tile, here, mask=seen[:, None])


@gluon.jit
def store_scores(product, share, count, out, row, end, context, first, HEADS: gl.constexpr):
    """The scores of a set of queries, from doubled products [keys, COLUMNS]."""
    TILE: gl.constexpr = product.shape[0]
    TOGETHER: gl.constexpr = COLUMNS // HEADS
    score = gl.sum(gl.reshape(product * share[None, :], (TILE, TOGETHER, HEADS)), 2)
    LAYOUT: gl.constexpr = score.type.layout
    at = first + gl.arange(0, TILE, gl.SliceLayout(1, product.type.layout))
    at = gl.convert_layout(at, gl.SliceLayout(1, LAYOUT))
    member = gl.arange(0, TOGETHER, gl.SliceLayout(0, LAYOUT))
    count = gl.convert_layout(count, gl.SliceLayout(0, LAYOUT))
    score = gl.where(at[:, None] < count[None, :], score, float("-inf"))
    here = out + row * context + (member[None, :] * context + at[:, None])
    inside = member < (end - row).to(gl.int32)
    gl.store(here, score, mask=(at < context)[:, None] & inside[None, :])


@gluon.jit
def counts_of(counts, row, end, TOGETHER: gl.constexpr):
    """The keys that each query of a set sees."""
    member = gl.arange(0, TOGETHER, gl.BlockedLayout([TOGETHER], [32], [gl.num_warps()], [0]))
    inside = member < (end - row).to(gl.int32)
    return gl.load(counts + row + member, mask=inside, other=0).to(gl.int32)


@gluon.jit(do_not_specialize=["tiles", "groups", "shared", "each", "table_stride"])
def score_many_kernel(
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
    """Two tiles of keys against `each` of the `shared` consecutive queries of a table; sets of
    queries that see none of them are not multiplied.
    """
    TOGETHER: gl.constexpr = COLUMNS // HEADS
    PRODUCT: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [8, 1], [16, COLUMNS, 16])
    HEAD: gl.constexpr = gl.SliceLayout(0, PRODUCT)
    LANE: gl.constexpr = gl.BlockedLayout([1], [32], [8], [0])
    SWIZZLED: gl.constexpr = gl.NVMMASharedLayout(128, 16, rank=2)
    tile, sequence, begin, end = queries_of(tiles, groups, shared, each)
    live, longest = live_sets(counts, out, tile, begin, end, context, TOGETHER)
    if live != 0:
        stages = gl.allocate_shared_memory(gl.bfloat16, [STAGES, COLUMNS, WIDTH], SWIZZLED)
        high = gl.allocate_shared_memory(gl.bfloat16, [KEYS, WIDTH], SWIZZLED)
        shares = gl.allocate_shared_memory(
            gl.float32, [4, COLUMNS], gl.SwizzledSharedLayout(1, 1, 1, [0])
        )
        coming = live
        for ahead in gl.static_range(STAGES - 1):
            row = begin + lowest(coming) * TOGETHER
            copy_queries(queries, row, end, stages.index(ahead), HEADS)
            async_copy.commit_group()
            coming = rest_of(coming)
        pages = table + sequence * table_stride
        low = held_keys(keys, pages, tile, longest, SHIFT, PRODUCT, word_layout(8))
        high.store(held_keys(keys, pages, tile + KEYS, longest, SHIFT, PRODUCT, word_layout(8)))
        fence_async_shared()
        none = gl.zeros([KEYS, COLUMNS], gl.float32, PRODUCT)
        column = gl.arange(0, COLUMNS, LANE)
        row = begin + lowest(live) * TOGETHER
        inside = column // HEADS < (end - row).to(gl.int32)
        weight = gl.load(weights + row * HEADS + column, mask=inside, other=0.0)
        old_row = end  # of nobody
        old_count = counts_of(counts, end, end, TOGETHER)
        second = none
        done = gl.to_tensor(0)
        while live != 0:
            row = begin + lowest(live) * TOGETHER
            live = live & (live - 1)
            shares.index(done % 4).store(weight.to(gl.float32) * LIFT)
            next_row = gl.where(live == 0, row, begin + lowest(live) * TOGETHER)
            inside = column // HEADS < (end - next_row).to(gl.int32)
            weight = gl.load(weights + next_row * HEADS + column, mask=inside, other=0.0)
            count = counts_of(counts, row, end, TOGETHER)
            async_copy.wait_group(STAGES - 2)
            barrier()
            far = begin + lowest(coming) * TOGETHER
            copy_queries(queries, far, end, stages.index((done + STAGES - 1) % STAGES), HEADS)
            async_copy.commit_group()
            coming = rest_of(coming)
            query = stages.index(done % STAGES).permute((1, 0))
            multiplying = warpgroup_mma(low, query, none, use_acc=False, is_async=True)
            share = shares.index((done + 3) % 4).load(HEAD)
            store_scores(second, share, old_count, out, old_row, end, context, tile + KEYS, HEADS)
            first = warpgroup_mma_wait(0, deps=[multiplying])
            multiplying = warpgroup_mma(high, query, none, use_acc=False, is_async=True)
            share = shares.index(done % 4).load(HEAD)
            store_scores(doubled(first), share, count, out, row, end, context, tile, HEADS)
            # Doubled here: the compiler waits at once where registers of a product are carried.
            second = doubled(warpgroup_mma_wait(0, deps=[multiplying]))
            old_row = row
            old_count = count
            done += 1
        async_copy.wait_group(0)
        share = shares.index((done + 3) % 4).load(HEAD)
        store_scores(second, share, old_count, out, old_row, end, context, tile + KEYS, HEADS)
