"""Attention over packed cache rows on Hopper: four warps decode rows, eight multiply.

Written in Gluon, which the interpreter does not run: `kernels.attention.triton_cuda` is the same
computation for every other device, and `python -m kernels.check` holds both on a device.
"""

from __future__ import annotations

from functools import cache

import torch
import triton
from torch import Tensor
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    async_copy,
    fence_async_shared,
    mbarrier,
    warpgroup_mma,
    warpgroup_mma_wait,
)

from kernels.attention import triton_cuda
from kernels.attention.reference import ChosenRows, OwnRows
from kernels.attention.triton_cuda import join
from kernels.cache_ops.triton_hopper import (
    barrier,
    byte_offsets,
    copy_tile,
    decode_tile,
    fetch_tile,
)
from kernels.quantize.triton_cuda import NUMBERS
from kernels.rotary.reference import Rotation

KEYS = 64  # of a tile
HEADS = 64  # of a program
TURNED_WIDTH = 64
WORDS = 4  # that a thread loads at once
READER_REGISTERS = 120  # the others get what is left
STAGES = gl.constexpr(2)
LOG2_E = gl.constexpr(1.4426950408889634)


@gluon.jit
def fill_tiles(
    cache, index, count, window, tiles, rings, first_step, first, last, page_stride,
    IS_OWN: gl.constexpr, FORMAT: gl.constexpr, PAGE: gl.constexpr, VEC: gl.constexpr,
):  # fmt: skip
    """Fill tiles `first` to `last` of a cache, fetching each while the one before is decoded.

    Packed rows go through registers; plain ones are copied straight into the tile.
    """
    rows, scales, bias, full, empty = rings
    KEYS: gl.constexpr = tiles.shape[1]
    SCALES: gl.constexpr = 16 if FORMAT == 1 else (32 if FORMAT == 2 else 8)
    BY_KEY: gl.constexpr = gl.BlockedLayout([1, SCALES], [32, 1], [gl.num_warps(), 1], [1, 0])
    KEY: gl.constexpr = gl.SliceLayout(1, BY_KEY)
    key = gl.arange(0, KEYS, KEY)
    which = gl.arange(0, SCALES, gl.SliceLayout(0, BY_KEY))
    place, seen = key_places(index, count, window, first * KEYS + key, IS_OWN)
    row, scale_row = byte_offsets(place, seen, page_stride, FORMAT, PAGE)
    rows.index(first_step % 2).store(row)
    place, seen_next = key_places(index, count, window, (first + 1) * KEYS + key, IS_OWN)
    barrier()
    if FORMAT != 0:
        raw = fetch_tile(cache, rows.index(first_step % 2), FORMAT, PAGE, VEC)
        scale = gl.load(cache + scale_row[:, None] + which[None, :], mask=seen[:, None], other=0)
    for t in range(first, last):
        step = first_step + t - first
        stage = step % STAGES
        mbarrier.wait(empty.index(stage), (step // STAGES & 1) ^ 1)
        bias.index(stage).store(gl.where(seen, 0.0, float("-inf")))
        if FORMAT == 0:
            copy_tile(cache, rows.index(step % 2), tiles.index(stage))
            async_copy.mbarrier_arrive(full.index(stage))
        else:
            scales.slice(0, SCALES, dim=1).store(scale)
            barrier()
            decode_tile(raw, scales, tiles.index(stage), FORMAT)
            fence_async_shared()
        row, scale_row = byte_offsets(place, seen_next, page_stride, FORMAT, PAGE)
        seen = seen_next
        rows.index((step + 1) % 2).store(row)
        barrier()
        mbarrier.arrive(full.index(stage))
        if FORMAT != 0:
            raw = fetch_tile(cache, rows.index((step + 1) % 2), FORMAT, PAGE, VEC)
            scale = gl.load(
                cache + scale_row[:, None] + which[None, :], mask=seen[:, None], other=0
            )
        place, seen_next = key_places(index, count, window, (t + 2) * KEYS + key, IS_OWN)


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
def load_queries(queries, cos, sin, tile, row, first_head, heads):
    """64 heads of 512 to shared memory, the last 64 values turned"""
    LOADED: gl.constexpr = gl.BlockedLayout([1, 8], [1, 32], [8, 1], [1, 0])
    head = first_head + gl.arange(0, 64, gl.SliceLayout(1, LOADED))
    column = gl.arange(0, 512, gl.SliceLayout(0, LOADED))
    here = queries + (row * heads + head[:, None]) * 512 + column[None, :]
    plain = gl.load(here, mask=(head < heads)[:, None], other=0.0)
    TURNED: gl.constexpr = gl.BlockedLayout([1, 8], [4, 8], [8, 1], [1, 0])
    turned_head = first_head + gl.arange(0, 64, gl.SliceLayout(1, TURNED))
    place = gl.arange(0, 64, gl.SliceLayout(0, TURNED))
    here = queries + (row * heads + turned_head[:, None]) * 512 + 448
    seen = (turned_head < heads)[:, None]
    value = gl.load(here + place[None, :], mask=seen, other=0.0).to(gl.float32)
    partner = gl.load(here + (place ^ 1)[None, :], mask=seen, other=0.0).to(gl.float32)
    c, s = gl.load(cos + row * 64 + place), gl.load(sin + row * 64 + place)
    turned = value * c[None, :] + partner * s[None, :]
    tile.store(plain)
    barrier()
    tile.slice(448, 64, dim=1).store(turned.to(gl.bfloat16))
    fence_async_shared()
    barrier()


@gluon.jit
def attend_tiles(
    queries, cos, sin, sink, out, tops, query, tiles, rings, works, heads, splits, split_tiles,
    length, count, factor,
    IS_WHOLE: gl.constexpr, ARE_COPIED: gl.constexpr,
):  # fmt: skip
    """The warps that multiply."""
    bias, full, empty = rings[2], rings[3], rings[4]
    KEYS: gl.constexpr = tiles.shape[1]
    SCORES: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 2], [16, KEYS // 2, 16])
    SUMS: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 2], [16, 256, 16])
    HEAD: gl.constexpr = gl.SliceLayout(1, SCORES)
    none = gl.zeros([64, KEYS], gl.float32, SCORES)
    done = gl.to_tensor(0)
    for work in range(gl.program_id(0), works, gl.num_programs(0)):
        row, first_head, split, start, end, _own_tiles = part_of(
            work, heads, splits, split_tiles, length, count, KEYS
        )
        load_queries(queries, cos, sin, query, row, first_head, heads)
        most = gl.full([64], -1e30, gl.float32, HEAD)
        total = gl.zeros([64], gl.float32, HEAD)
        acc = gl.zeros([64, 512], gl.float32, SUMS)
        mbarrier.wait(full.index(done % STAGES), done // STAGES & 1)
        if ARE_COPIED:
            fence_async_shared()
        score = warpgroup_mma(
            query, tiles.index(done % STAGES).permute((1, 0)), none, use_acc=False
        )
        for t in range(start, end):
            stage = done % STAGES
            score = score * factor + bias.index(stage).load(gl.SliceLayout(0, SCORES))[None, :]
            higher = gl.maximum(most, gl.max(score, 1))  # finite: `most` starts so
            share = gl.exp2(score - higher[:, None])
            shrink = gl.exp2(most - higher)
            total = total * shrink + gl.sum(share, 1)
            most = higher
            acc = acc * gl.convert_layout(shrink, gl.SliceLayout(1, SUMS))[:, None]
            weights = gl.convert_layout(share.to(gl.bfloat16), gl.DotOperandLayout(0, SUMS, 2))
            pending = warpgroup_mma(weights, tiles.index(stage), acc, is_async=True)
            done += 1
            if t + 1 < end:
                following = done % STAGES
                mbarrier.wait(full.index(following), done // STAGES & 1)
                if ARE_COPIED:
                    fence_async_shared()
                keys = tiles.index(following).permute((1, 0))
                scoring = warpgroup_mma(query, keys, none, use_acc=False, is_async=True)
                acc = warpgroup_mma_wait(1, deps=[pending])
                barrier()  # one thread arrives, for both warp groups
                mbarrier.arrive(empty.index(stage))
                score = warpgroup_mma_wait(0, deps=[scoring])
            else:
                acc = warpgroup_mma_wait(0, deps=[pending])
                barrier()
                mbarrier.arrive(empty.index(stage))
        head = first_head + gl.arange(0, 64, HEAD)
        inside = head < heads
        if IS_WHOLE:
            rest = gl.load(sink + head, mask=inside, other=0.0) * LOG2_E
            higher = gl.maximum(most, rest)
            shrink = gl.exp2(most - higher)
            weight = total * shrink + gl.exp2(rest - higher)
            share = gl.where(weight > 0, shrink / weight, 0.0)
            share = gl.convert_layout(share, gl.SliceLayout(1, SUMS))
            query.store((acc * share[:, None]).to(gl.bfloat16))
            barrier()
            store_heads(query, cos, sin, out, row, first_head, heads)
            barrier()
        else:
            part = (row * splits + split) * heads + head
            gl.store(tops + 2 * part, most, mask=inside)
            gl.store(tops + 2 * part + 1, total, mask=inside)
            head = first_head + gl.arange(0, 64, gl.SliceLayout(1, SUMS))
            part = (row * splits + split) * heads + head
            column = gl.arange(0, 512, gl.SliceLayout(0, SUMS))
            here = out + part[:, None] * 512 + column[None, :]
            gl.store(here, acc, mask=(head < heads)[:, None])


@gluon.jit
def store_heads(tile, cos, sin, out, row, first_head, heads):
    """Write 64 heads of 512 that lie in shared memory, turned back"""
    STORED: gl.constexpr = gl.BlockedLayout([1, 8], [1, 32], [8, 1], [1, 0])
    head = first_head + gl.arange(0, 64, gl.SliceLayout(1, STORED))
    column = gl.arange(0, 512, gl.SliceLayout(0, STORED))
    inside = (head < heads)[:, None] & (column < 448)[None, :]
    here = (row * heads + head[:, None]) * 512 + column[None, :]
    gl.store(out + here, tile.load(STORED), mask=inside)
    PAIRS: gl.constexpr = gl.BlockedLayout([1, 4, 2], [4, 8, 1], [8, 1, 1], [2, 1, 0])
    PAIR: gl.constexpr = gl.SliceLayout(2, PAIRS)
    TURNED: gl.constexpr = gl.BlockedLayout([1, 8], [4, 8], [8, 1], [1, 0])
    values = tile.slice(448, 64, dim=1).load(TURNED).to(gl.float32)
    pairs = gl.convert_layout(gl.reshape(values, (64, 32, 2)), PAIRS)
    even, odd = gl.split(pairs)
    even, odd = gl.convert_layout(even, PAIR), gl.convert_layout(odd, PAIR)
    place = gl.arange(0, 32, gl.SliceLayout(0, PAIR))
    c = gl.load(cos + row * 64 + 2 * place)[None, :]
    s = gl.load(sin + row * 64 + 2 * place + 1)[None, :]
    turned = gl.join(even * c + odd * s, odd * c - even * s)
    turned = gl.convert_layout(gl.reshape(turned, (64, 64)), TURNED)
    turned_head = first_head + gl.arange(0, 64, gl.SliceLayout(1, TURNED))
    at = 448 + gl.arange(0, 64, gl.SliceLayout(0, TURNED))
    here = (row * heads + turned_head[:, None]) * 512 + at[None, :]
    gl.store(out + here, turned.to(gl.bfloat16), mask=(turned_head < heads)[:, None])


@gluon.jit(  # `ring`: see kernels.attention.triton_cuda; the others: one compilation for all
    do_not_specialize=["works", "heads", "splits", "split_tiles", "ring", "length", "count"]
)
def attend_kernel(
    queries, cos, sin, own, chosen, index, slots, positions, floors, sink, out, tops,
    works, heads, splits, split_tiles, ring, length, count, factor,
    own_page_stride, chosen_page_stride,
    OWN: gl.constexpr, CHOSEN: gl.constexpr, OWN_PAGE: gl.constexpr, CHOSEN_PAGE: gl.constexpr,
    IS_WHOLE: gl.constexpr, KEYS: gl.constexpr, VEC: gl.constexpr,
    READER_REGISTERS: gl.constexpr,
):  # fmt: skip
    """Works in turn: a split of the keys of one query and 64 heads of 512."""
    SWIZZLED: gl.constexpr = gl.NVMMASharedLayout(128, 16, rank=2)
    PLAIN: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [0])
    PLAIN2: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [1, 0])
    query = gl.allocate_shared_memory(gl.bfloat16, [64, 512], SWIZZLED)
    tiles = gl.allocate_shared_memory(gl.bfloat16, [STAGES, KEYS, 512], SWIZZLED)
    rows = gl.allocate_shared_memory(gl.int64, [2, KEYS], PLAIN)
    scales = gl.allocate_shared_memory(gl.uint8, [KEYS, 32], PLAIN2)
    bias = gl.allocate_shared_memory(gl.float32, [STAGES, KEYS], PLAIN)
    full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    gl.inline_asm_elementwise(  # what joins the splits may be launched, and waits for the end
        "griddepcontrol.launch_dependents; mov.u32 $0, 0;",
        "=r",
        [],
        dtype=gl.int32,
        is_pure=False,
        pack=1,
    )
    for stage in gl.static_range(STAGES):
        mbarrier.init(full.index(stage), count=1)
        mbarrier.init(empty.index(stage), count=1)
    barrier()
    rings = (rows, scales, bias, full, empty)
    gl.warp_specialize(
        [
            (
                attend_tiles,
                (
                    queries, cos, sin, sink, out, tops, query, tiles, rings, works, heads, splits,
                    split_tiles, length, count, factor, IS_WHOLE,
                    OWN == 0 or CHOSEN == 0,
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
        [4],
        [READER_REGISTERS],
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
    if turn.cos.shape[-1] != TURNED_WIDTH:
        return triton_cuda.attend_turned(queries, own, chosen, sink, scale, turn)
    programs = max(len(queries) * triton.cdiv(queries.shape[1], HEADS), 1)
    split = tiles_of_split(programs, _tiles(own, chosen), processors(queries.device))
    return attend_in_splits(queries, own, chosen, sink, scale, turn, split)


@cache
def processors(device: torch.device) -> int:
    """Programs that a device runs at once."""
    properties = triton.runtime.driver.active.utils.get_device_properties(device.index or 0)
    return properties["multiprocessor_count"]


def tiles_of_split(programs: int, tiles: int, at_once: int) -> int:
    """Tiles of one split: as many splits as there is room for beside the other programs."""
    return triton.cdiv(tiles, max(1, min(tiles, at_once // programs)))


def _tiles(own: OwnRows, chosen: ChosenRows | None) -> int:
    count = 0 if chosen is None else chosen.index.shape[1]
    return triton.cdiv(own.length, KEYS) + triton.cdiv(count, KEYS)


def attend_in_splits(
    queries: Tensor,
    own: OwnRows,
    chosen: ChosenRows | None,
    sink: Tensor,
    scale: float,
    turn: Rotation,
    split_tiles: int,
) -> Tensor:
    """`attend_turned` in splits of some tiles."""
    queries = queries.contiguous()
    rows, heads, width = queries.shape
    out = torch.empty_like(queries)
    if not rows:
        return out
    splits = triton.cdiv(_tiles(own, chosen), split_tiles)
    works = rows * triton.cdiv(heads, HEADS) * splits
    parts, tops = out, sink
    if splits > 1:
        kind = {"dtype": torch.float32, "device": queries.device}
        parts = torch.empty((rows, splits, heads, width), **kind)
        tops = torch.empty((rows, splits, heads, 2), **kind)
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
        KEYS=KEYS,
        VEC=WORDS,
        READER_REGISTERS=READER_REGISTERS,
        num_warps=8,
    )
    if splits > 1:
        join(parts, tops, sink, turn, out, is_early=True)
    return out
