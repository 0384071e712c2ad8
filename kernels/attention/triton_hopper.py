"""Attention over packed cache rows on Hopper: warps that decode, warps that score, warps that add.

Four warps decode rows into tiles of shared memory, four multiply them with the queries and give
shares, and twice four multiply the shares with half of the columns of a tile, each of them ahead
of the next. All is multiplied in float16; for its range see `kernels.cache_ops.triton_hopper`.
Queries are divided by 16 for theirs: up to a million.

Written in Gluon, which the interpreter does not run: `kernels.attention.triton_cuda` is the same
computation for every other device, and `python -m kernels.check` holds both on a device.
"""

from __future__ import annotations

import torch
import triton
from torch import Tensor
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    warpgroup_mma,
    warpgroup_mma_wait,
)

from kernels.attention import triton_cuda
from kernels.attention.reference import ChosenRows, OwnRows
from kernels.attention.triton_cuda import join
from kernels.cache_ops.triton_hopper import (
    byte_offsets,
    decode_half,
    fetch_half,
)
from kernels.hopper import barrier, processors
from kernels.quantize.triton_cuda import NUMBERS
from kernels.rotary.reference import Rotation
from kernels.tuning import Tunable
from kernels.tuning import chosen as tuned

HELD_KEYS = 128  # in tiles that are filled or read
HEADS = 64  # of a program
WIDTH = 512  # of a head
TURNED_WIDTH = 64
WORDS = 4  # that a thread loads at once
READER_REGISTERS = 96
ADDER_REGISTERS = 160  # of each of the two; those that score get what is left
LOG2_E = gl.constexpr(1.4426950408889634)
ROWS = Tunable(
    name="attend_rows",
    op="attend_turned",
    implementation="gluon",
    default={"KEYS": 64},  # of a tile
    candidates=({"KEYS": 32}, {"KEYS": 64}),
)
TUNABLES = (ROWS,)
ROOMS = ((10, "10 splits"), (2, "2 splits"), (1, "whole"), (0, "in turn"))
"""Classes, by the splits of each query that there is room for at least."""


@gluon.jit
def key_places(index, count, window, number, IS_OWN: gl.constexpr):
    """Physical rows of keys by number, and which of them are seen."""
    if IS_OWN:
        position, base, floor, ring, length = window
        at = position - length + 1 + number
        seen = (number < length) & (at >= floor)
        place = base + gl.where(seen, at, 0) % ring
    else:
        place = gl.load(index + number, mask=number < count, other=-1)
        seen = place >= 0
    return place, seen


@gluon.jit
def fill_tiles(
    cache, index, count, window, tiles, rings, first_step, first, last, page_stride,
    IS_OWN: gl.constexpr, FORMAT: gl.constexpr, PAGE: gl.constexpr, VEC: gl.constexpr,
):  # fmt: skip
    """Fill tiles `first` to `last` of a cache; rows are fetched half a tile ahead."""
    rows, scales, bias, full, empty = rings
    KEYS: gl.constexpr = tiles.shape[1]
    STAGES: gl.constexpr = bias.shape[0]
    SCALES: gl.constexpr = 16 if FORMAT == 1 else (32 if FORMAT == 2 else 8)
    BY_KEY: gl.constexpr = gl.BlockedLayout([1, SCALES], [32, 1], [gl.num_warps(), 1], [1, 0])
    KEY: gl.constexpr = gl.SliceLayout(1, BY_KEY)
    key = gl.arange(0, KEYS, KEY)
    which = gl.arange(0, SCALES, gl.SliceLayout(0, BY_KEY))
    place, seen = key_places(index, count, window, first * KEYS + key, IS_OWN)
    row, scale_row = byte_offsets(place, seen, page_stride, FORMAT, PAGE)
    rows.index(first_step % 2).store(row)
    place, seen_next = key_places(index, count, window, (first + 1) * KEYS + key, IS_OWN)
    seen_next = seen_next & (first + 1 < last)
    barrier()
    low = fetch_half(cache, rows.index(first_step % 2), FORMAT, PAGE, VEC, 0)
    if FORMAT != 0:
        high = fetch_half(cache, rows.index(first_step % 2), FORMAT, PAGE, VEC, 1)
        scale = gl.load(cache + scale_row[:, None] + which[None, :], mask=seen[:, None], other=0)
    for t in range(first, last):
        step = first_step + t - first
        stage = step % STAGES
        row, scale_row = byte_offsets(place, seen_next, page_stride, FORMAT, PAGE)
        rows.index((step + 1) % 2).store(row)
        if FORMAT != 0:
            scales.slice(0, SCALES, dim=1).store(scale)
        mbarrier.wait(empty.index(stage), (step // STAGES & 1) ^ 1)
        bias.index(stage).store(gl.where(seen, 0.0, float("-inf")))
        barrier()
        seen = seen_next
        decode_half(low, scales, tiles.index(2 * stage), FORMAT, 0)
        fence_async_shared()
        if FORMAT == 0:
            high = fetch_half(cache, rows.index(step % 2), FORMAT, PAGE, VEC, 1)
        else:
            low = fetch_half(cache, rows.index((step + 1) % 2), FORMAT, PAGE, VEC, 0)
        barrier()
        mbarrier.arrive(full.index(2 * stage))
        decode_half(high, scales, tiles.index(2 * stage + 1), FORMAT, 1)
        fence_async_shared()
        if FORMAT == 0:
            low = fetch_half(cache, rows.index((step + 1) % 2), FORMAT, PAGE, VEC, 0)
        else:
            high = fetch_half(cache, rows.index((step + 1) % 2), FORMAT, PAGE, VEC, 1)
            scale = gl.load(
                cache + scale_row[:, None] + which[None, :], mask=seen[:, None], other=0
            )
        place, seen_next = key_places(index, count, window, (t + 2) * KEYS + key, IS_OWN)
        seen_next = seen_next & (t + 2 < last)
        barrier()
        mbarrier.arrive(full.index(2 * stage + 1))


@gluon.jit
def part_of(work, heads, splits, split_tiles, length, count, KEYS: gl.constexpr):
    """Row, first head, split, first tile and end of a work, and the tiles of own rows."""
    head_blocks = (heads + 63) // 64
    split = work % splits
    row = (work // splits // head_blocks).to(gl.int64)
    first_head = work // splits % head_blocks * 64
    own_tiles = (length + KEYS - 1) // KEYS
    start = split * split_tiles
    end = gl.minimum(start + split_tiles, own_tiles + (count + KEYS - 1) // KEYS)
    return row, first_head, split, start, end, own_tiles


@gluon.jit
def read_rows(
    own, chosen, index, positions, slots, floors, tiles, rings, works, heads, splits, split_tiles,
    length, count, ring, own_page_stride, chosen_page_stride,
    OWN: gl.constexpr, CHOSEN: gl.constexpr, OWN_PAGE: gl.constexpr, CHOSEN_PAGE: gl.constexpr,
    VEC: gl.constexpr,
):  # fmt: skip
    """The warps that fill tiles, ahead of those that multiply."""
    KEYS: gl.constexpr = tiles.shape[1]
    done = gl.to_tensor(0)
    for work in range(gl.program_id(0), works, gl.num_programs(0)):
        row, _first_head, _split, start, end, own_tiles = part_of(
            work, heads, splits, split_tiles, length, count, KEYS
        )
        own_end = gl.minimum(end, own_tiles)
        if start < own_end:
            position = gl.load(positions + row).to(gl.int32)
            base = gl.load(slots + row).to(gl.int64) * ring
            floor = gl.maximum(gl.load(floors + row).to(gl.int32), 0)
            fill_tiles(
                own, index, count, (position, base, floor, ring, length), tiles, rings, done,
                start, own_end, own_page_stride, True, OWN, OWN_PAGE, VEC,
            )  # fmt: skip
        if own_end < end:
            first = gl.maximum(start, own_tiles)
            fill_tiles(
                chosen, index + row * count, count, 0, tiles, rings, done + first - start,
                first - own_tiles, end - own_tiles, chosen_page_stride,
                False, CHOSEN, CHOSEN_PAGE, VEC,
            )  # fmt: skip
        done += end - start


@gluon.jit
def load_columns(queries, cos, sin, tile, heads, FIRST: gl.constexpr):
    """Columns FIRST on of 64 heads to shared memory, over 16, the last 64 of all turned."""
    COLUMNS: gl.constexpr = tile.shape[1]
    LOADED: gl.constexpr = gl.BlockedLayout(
        [1, 8], [256 // COLUMNS, COLUMNS // 8], [gl.num_warps(), 1], [1, 0]
    )
    head = gl.arange(0, 64, gl.SliceLayout(1, LOADED))
    column = gl.arange(0, COLUMNS, gl.SliceLayout(0, LOADED))
    here = queries + head[:, None] * 512 + FIRST + column[None, :]
    value = gl.load(here, mask=(head < heads)[:, None], other=0.0)
    if FIRST + COLUMNS > 448:
        even, odd = gl.split(gl.reshape(value, (64, COLUMNS // 2, 2)))
        even, odd = even.to(gl.float32), odd.to(gl.float32)
        place = FIRST + 2 * gl.arange(0, COLUMNS // 2, gl.SliceLayout(0, even.type.layout)) - 448
        c = gl.load(cos + place, mask=place >= 0, other=1.0) * 0.0625
        s = gl.load(sin + place + 1, mask=place >= 0, other=0.0) * 0.0625
        c, s = c[None, :], s[None, :]
        pairs = gl.join((even * c - odd * s).to(gl.float16), (odd * c + even * s).to(gl.float16))
        tile.store(gl.reshape(pairs, (64, COLUMNS)))
    else:
        tile.store((value.to(gl.float32) * 0.0625).to(gl.float16))


@gluon.jit
def score_tiles(
    queries, cos, sin, sink, tops, query, tiles, rings, shares, works, heads, splits, split_tiles,
    length, count, factor, IS_WHOLE: gl.constexpr,
):  # fmt: skip
    """The warps that multiply keys and queries, and give shares."""
    _rows, _scales, bias, full, _empty = rings
    weights, shrinks, ends, given, taken = shares
    KEYS: gl.constexpr = tiles.shape[1]
    STAGES: gl.constexpr = bias.shape[0]
    GIVEN: gl.constexpr = weights.shape[0]
    SCORES: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, KEYS, 16])
    HEAD: gl.constexpr = gl.SliceLayout(1, SCORES)
    none = gl.zeros([64, KEYS], gl.float32, SCORES)
    SWIZZLED: gl.constexpr = gl.NVMMASharedLayout(128, 16, rank=2)
    pieces = query._reinterpret(gl.float16, [4, 64, 128], SWIZZLED)
    done = gl.to_tensor(0)
    for work in range(gl.program_id(0), works, gl.num_programs(0)):
        row, first_head, split, start, end, _own_tiles = part_of(
            work, heads, splits, split_tiles, length, count, KEYS
        )
        held = queries + (row * heads + first_head) * 512
        for piece in gl.static_range(4):
            load_columns(
                held, cos + row * 64, sin + row * 64, pieces.index(piece), heads - first_head,
                128 * piece,
            )  # fmt: skip
        fence_async_shared()
        barrier()
        head = first_head + gl.arange(0, 64, HEAD)
        inside = head < heads
        if IS_WHOLE:
            rest = gl.load(sink + head, mask=inside, other=0.0) * LOG2_E
        most = gl.full([64], -1e30, gl.float32, HEAD)
        total = gl.zeros([64], gl.float32, HEAD)
        for t in range(start, end):
            stage = done % STAGES
            phase = done // STAGES & 1
            mbarrier.wait(full.index(2 * stage), phase)
            keys = tiles.index(2 * stage).permute((1, 0))
            score = warpgroup_mma(query.index(0), keys, none, use_acc=False, is_async=True)
            mbarrier.wait(full.index(2 * stage + 1), phase)
            keys = tiles.index(2 * stage + 1).permute((1, 0))
            score = warpgroup_mma(query.index(1), keys, score, is_async=True)
            seen = bias.index(stage).load(gl.SliceLayout(0, SCORES))
            score = warpgroup_mma_wait(0, deps=[score])
            score = score * factor + seen[None, :]
            higher = gl.maximum(most, gl.max(score, 1))  # finite: `most` starts so
            share = gl.exp2(score - higher[:, None])
            shrink = gl.exp2(most - higher)
            most = higher
            slot = done % GIVEN
            mbarrier.wait(taken.index(slot), (done // GIVEN & 1) ^ 1)
            weights.index(slot).store(share.to(gl.float16))
            shrinks.index(slot).store(shrink)
            if t + 1 == end:
                weight = total * shrink + gl.sum(share, 1)
                if IS_WHOLE:
                    above = gl.maximum(most, rest)
                    rescale = gl.exp2(most - above)
                    weight = weight * rescale + gl.exp2(rest - above)
                    ends.index(slot).store(gl.where(weight > 0, rescale / weight, 0.0))
                else:
                    ends.index(slot).store(gl.where(weight > 0, 1.0 / weight, 0.0))
            fence_async_shared()
            barrier()
            mbarrier.arrive(given.index(slot))
            total = total * shrink + gl.sum(share, 1)  # late: those that add wait for no sum
            done += 1
        if not IS_WHOLE:
            part = (row * splits + split) * heads + head
            gl.store(tops + 2 * part, most, mask=inside)
            gl.store(tops + 2 * part + 1, total, mask=inside)


@gluon.jit
def add_tiles(
    cos, sin, out, tiles, rings, shares, works, heads, splits, split_tiles, length, count,
    IS_WHOLE: gl.constexpr, HALF: gl.constexpr,
):  # fmt: skip
    """The warps that multiply shares and values: columns 256 * HALF on."""
    _rows, _scales, bias, _full, empty = rings
    weights, shrinks, ends, given, taken = shares
    KEYS: gl.constexpr = tiles.shape[1]
    STAGES: gl.constexpr = bias.shape[0]
    GIVEN: gl.constexpr = weights.shape[0]
    SUMS: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, 128, 16])
    HEAD: gl.constexpr = gl.SliceLayout(1, SUMS)
    done = gl.to_tensor(0)
    for work in range(gl.program_id(0), works, gl.num_programs(0)):
        row, first_head, split, start, end, _own_tiles = part_of(
            work, heads, splits, split_tiles, length, count, KEYS
        )
        acc = gl.zeros([64, 256], gl.float32, SUMS)
        share = gl.zeros([64], gl.float32, HEAD)
        for t in range(start, end):
            stage, slot = done % STAGES, done % GIVEN
            mbarrier.wait(given.index(slot), done // GIVEN & 1)
            acc = acc * shrinks.index(slot).load(HEAD)[:, None]
            acc = warpgroup_mma(
                weights.index(slot), tiles.index(2 * stage + HALF), acc, is_async=True
            )
            if t + 1 == end:
                share = ends.index(slot).load(HEAD)
            acc = warpgroup_mma_wait(0, deps=[acc])
            barrier()  # one thread arrives, for all warps
            mbarrier.arrive(taken.index(slot))
            mbarrier.arrive(empty.index(stage))
            done += 1
        value = (acc * share[:, None]).to(out.dtype.element_ty)
        first = (row * heads + first_head) * 512
        if not IS_WHOLE:
            first = ((row * splits + split) * heads + first_head) * 512
        store_half(value, cos + row * 64, sin + row * 64, out + first, heads - first_head, HALF,
                   IS_WHOLE)  # fmt: skip


@gluon.constexpr_function
def stored_layout(columns: int) -> gl.DistributedLinearLayout:
    """[64, columns] over four warps as products lie, but eight columns in a row for a thread."""
    across = [[0, 32], [0, 64], [0, 128]][: {64: 1, 128: 2, 256: 3}[columns]]
    return gl.DistributedLinearLayout(
        reg_bases=[[0, 1], [0, 2], [0, 4], *across, [8, 0]],
        lane_bases=[[0, 8], [0, 16], [1, 0], [2, 0], [4, 0]],
        warp_bases=[[16, 0], [32, 0]],
        block_bases=[],
        shape=[64, columns],
    )


@gluon.jit
def store_columns(value, out, heads, FIRST: gl.constexpr):
    COLUMNS: gl.constexpr = value.shape[1]
    STORED: gl.constexpr = stored_layout(COLUMNS)
    value = gl.convert_layout(value, STORED)
    head = gl.arange(0, 64, gl.SliceLayout(1, STORED))
    column = gl.arange(0, COLUMNS, gl.SliceLayout(0, STORED))
    here = out + FIRST + head[:, None] * 512 + column[None, :]
    here = gl.max_contiguous(gl.multiple_of(here, [1, 16]), [1, 8])
    gl.store(here, value, mask=(head < heads)[:, None])


@gluon.jit
def store_half(value, cos, sin, out, heads, HALF: gl.constexpr, IS_TURNED: gl.constexpr):
    """Write [64, 256] of a half of the columns; the last 64 of all turned back."""
    if HALF == 1 and IS_TURNED:
        value, last = gl.split(gl.permute(gl.reshape(value, (64, 2, 128)), (0, 2, 1)))
        store_columns(value, out, heads, 256)
        value, last = gl.split(gl.permute(gl.reshape(last, (64, 2, 64)), (0, 2, 1)))
        store_columns(value, out, heads, 384)
        even, odd = gl.split(gl.reshape(last, (64, 32, 2)))
        even, odd = even.to(gl.float32), odd.to(gl.float32)
        place = 2 * gl.arange(0, 32, gl.SliceLayout(0, even.type.layout))
        c, s = gl.load(cos + place)[None, :], gl.load(sin + place + 1)[None, :]
        turned = gl.join(even * c + odd * s, odd * c - even * s)
        store_columns(gl.reshape(turned, (64, 64)).to(value.dtype), out, heads, 448)
    else:
        store_columns(value, out, heads, 256 * HALF)


@gluon.jit(  # `ring`: see kernels.attention.triton_cuda; the others: one compilation for all
    do_not_specialize=["works", "heads", "splits", "split_tiles", "ring", "length", "count"]
)
def attend_kernel(
    queries, cos, sin, own, chosen, index, slots, positions, floors, sink, out, tops,
    works, heads, splits, split_tiles, ring, length, count, factor,
    own_page_stride, chosen_page_stride,
    OWN: gl.constexpr, CHOSEN: gl.constexpr, OWN_PAGE: gl.constexpr, CHOSEN_PAGE: gl.constexpr,
    IS_WHOLE: gl.constexpr, KEYS: gl.constexpr, STAGES: gl.constexpr, VEC: gl.constexpr,
    READER_REGISTERS: gl.constexpr, ADDER_REGISTERS: gl.constexpr, IS_EARLY: gl.constexpr,
):  # fmt: skip
    """Works in turn: a split of the keys of one query and 64 heads of 512."""
    GIVEN: gl.constexpr = 2
    SWIZZLED: gl.constexpr = gl.NVMMASharedLayout(128, 16, rank=2)
    SHARES: gl.constexpr = gl.NVMMASharedLayout(128 if KEYS == 64 else 64, 16, rank=2)
    PLAIN: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [0])
    PLAIN2: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [1, 0])
    BARRIER: gl.constexpr = mbarrier.MBarrierLayout()
    query = gl.allocate_shared_memory(gl.float16, [2, 64, 256], SWIZZLED)
    tiles = gl.allocate_shared_memory(gl.float16, [2 * STAGES, KEYS, 256], SWIZZLED)
    rows = gl.allocate_shared_memory(gl.int64, [2, KEYS], PLAIN)
    scales = gl.allocate_shared_memory(gl.uint8, [KEYS, 32], PLAIN2)
    bias = gl.allocate_shared_memory(gl.float32, [STAGES, KEYS], PLAIN)
    full = gl.allocate_shared_memory(gl.int64, [2 * STAGES, 1], BARRIER)
    empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], BARRIER)
    weights = gl.allocate_shared_memory(gl.float16, [GIVEN, 64, KEYS], SHARES)
    shrinks = gl.allocate_shared_memory(gl.float32, [GIVEN, 64], PLAIN)
    ends = gl.allocate_shared_memory(gl.float32, [GIVEN, 64], PLAIN)
    given = gl.allocate_shared_memory(gl.int64, [GIVEN, 1], BARRIER)
    taken = gl.allocate_shared_memory(gl.int64, [GIVEN, 1], BARRIER)
    gl.inline_asm_elementwise(  # what joins the splits may be launched, and waits for the end
        "griddepcontrol.launch_dependents; mov.u32 $0, 0;",
        "=r",
        [],
        dtype=gl.int32,
        is_pure=False,
        pack=1,
    )
    for stage in gl.static_range(STAGES):
        mbarrier.init(full.index(2 * stage), count=1)
        mbarrier.init(full.index(2 * stage + 1), count=1)
        mbarrier.init(empty.index(stage), count=2)
    for slot in gl.static_range(GIVEN):
        mbarrier.init(given.index(slot), count=1)
        mbarrier.init(taken.index(slot), count=2)
    if IS_EARLY:
        gl.inline_asm_elementwise(
            "griddepcontrol.wait; mov.u32 $0, 0;", "=r", [], dtype=gl.int32, is_pure=False, pack=1
        )
    barrier()
    rings = (rows, scales, bias, full, empty)
    shares = (weights, shrinks, ends, given, taken)
    gl.warp_specialize(
        [
            (
                score_tiles,
                (
                    queries, cos, sin, sink, tops, query, tiles, rings, shares, works, heads,
                    splits, split_tiles, length, count, factor * 16.0, IS_WHOLE,
                ),
            ),
            (
                add_tiles,
                (
                    cos, sin, out, tiles, rings, shares, works, heads, splits, split_tiles,
                    length, count, IS_WHOLE, 0,
                ),
            ),
            (
                add_tiles,
                (
                    cos, sin, out, tiles, rings, shares, works, heads, splits, split_tiles,
                    length, count, IS_WHOLE, 1,
                ),
            ),
            (
                read_rows,
                (
                    own, chosen, index, positions, slots, floors, tiles, rings, works, heads,
                    splits, split_tiles, length, count, ring, own_page_stride,
                    chosen_page_stride, OWN, CHOSEN, OWN_PAGE, CHOSEN_PAGE, VEC,
                ),
            ),
        ],
        [4, 4, 4],
        [ADDER_REGISTERS, ADDER_REGISTERS, READER_REGISTERS],
    )  # fmt: skip


def attend_turned(
    queries: Tensor,
    own: OwnRows,
    chosen: ChosenRows | None,
    sink: Tensor,
    scale: float,
    turn: Rotation,
) -> Tensor:
    """See kernels.attention.reference; bfloat16 heads of 512, of which the last 64 are turned."""
    if (queries.shape[2], turn.cos.shape[-1]) != (WIDTH, TURNED_WIDTH):
        return triton_cuda.attend_turned(queries, own, chosen, sink, scale, turn)
    if not len(queries):
        return torch.empty_like(queries)
    programs = len(queries) * triton.cdiv(queries.shape[1], HEADS)
    at_once = processors(queries.device)
    keys = tuned(ROWS, shapes(own, chosen, at_once // programs))["KEYS"]
    split = tiles_of_split(programs, _tiles(own, chosen, keys), at_once)
    return attend_in_splits(queries, own, chosen, sink, scale, turn, split, keys)


def shapes(own: OwnRows, chosen: ChosenRows | None, room: int) -> str:
    """The class of a call: its packings, and how many splits of each query there is room for."""
    other = own if chosen is None else chosen
    packings = f"{NUMBERS[own.cache.packing]} and {NUMBERS[other.cache.packing]}"
    return f"{packings}, {next(told for least, told in ROOMS if room >= least)}"


def tiles_of_split(programs: int, tiles: int, at_once: int) -> int:
    """Tiles of one split: as many splits as there is room for beside the other programs."""
    return triton.cdiv(tiles, max(1, min(tiles, at_once // programs)))


def _tiles(own: OwnRows, chosen: ChosenRows | None, keys: int) -> int:
    count = 0 if chosen is None else chosen.index.shape[1]
    return triton.cdiv(own.length, keys) + triton.cdiv(count, keys)


def attend_in_splits(
    queries: Tensor,
    own: OwnRows,
    chosen: ChosenRows | None,
    sink: Tensor,
    scale: float,
    turn: Rotation,
    split_tiles: int,
    keys: int,
) -> Tensor:
    """`attend_turned` in splits of some tiles of so many keys.

    What a split gives is kept in float16, as everything that is multiplied.
    """
    queries = queries.contiguous()
    rows, heads, width = queries.shape
    out = torch.empty_like(queries)
    splits = triton.cdiv(_tiles(own, chosen, keys), split_tiles)
    works = rows * triton.cdiv(heads, HEADS) * splits
    parts, tops = out, sink
    if splits > 1:
        parts = queries.new_empty((rows, splits, heads, width), dtype=torch.float16)
        tops = queries.new_empty((rows, splits, heads, 2), dtype=torch.float32)
    other = own if chosen is None else chosen
    attend_kernel[(min(works, processors(queries.device)),)](
        queries,
        turn.cos.contiguous(),
        turn.sin.contiguous(),
        own.cache.tensor.view(torch.uint8),
        other.cache.tensor.view(torch.uint8),
        own.positions if chosen is None else chosen.index.contiguous(),
        own.slots.contiguous(),
        own.positions.contiguous(),
        own.floors.contiguous(),
        sink,
        parts,
        tops,
        works,
        heads,
        splits,
        split_tiles,
        own.ring,
        own.length,
        0 if chosen is None else chosen.index.shape[1],
        scale * 1.4426950408889634,
        own.cache.page_stride,
        other.cache.page_stride,
        OWN=NUMBERS[own.cache.packing],
        CHOSEN=NUMBERS[other.cache.packing],
        OWN_PAGE=own.cache.page_rows or 0,
        CHOSEN_PAGE=other.cache.page_rows or 0,
        IS_WHOLE=splits == 1,
        KEYS=keys,
        STAGES=HELD_KEYS // keys,
        VEC=WORDS,
        READER_REGISTERS=READER_REGISTERS,
        ADDER_REGISTERS=ADDER_REGISTERS,
        IS_EARLY=True,
        num_warps=4,
        launch_pdl=True,
    )
    if splits > 1:
        join(parts, tops, sink, turn, out, is_early=True)
    return out
