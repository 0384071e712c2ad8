"""Attention over packed cache rows on Hopper: four warps decode rows, eight multiply.

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

from kernels.attention.reference import ChosenRows, OwnRows
from kernels.attention.triton_cuda import join
from kernels.cache_ops.triton_hopper import barrier, byte_offsets, decode_tile
from kernels.quantize.triton_cuda import NUMBERS
from kernels.rotary.reference import Rotation

KEYS = 64  # of a tile
HEADS = 64  # of a program
WIDTH = 512
STAGES = gl.constexpr(2)
LOG2_E = gl.constexpr(1.4426950408889634)


@gluon.jit
def read_rows(
    own, chosen, index, position, slot, floor, tiles, rings, length, count, start, end, own_tiles,
    ring, own_page_stride, chosen_page_stride,
    OWN: gl.constexpr, CHOSEN: gl.constexpr, OWN_PAGE: gl.constexpr, CHOSEN_PAGE: gl.constexpr,
    KEYS: gl.constexpr, VEC: gl.constexpr,
):  # fmt: skip
    """The warps that fill tiles."""
    rows, scale_rows, bias, full, empty = rings
    KEY: gl.constexpr = gl.BlockedLayout([1], [32], [gl.num_warps()], [0])
    key = gl.arange(0, KEYS, KEY)
    for t in range(start, end):
        step = t - start
        stage = step % STAGES
        if t < own_tiles:
            back = t * KEYS + key
            at = position - length + 1 + back
            seen = (back < length) & (at >= floor)
            place = slot * ring + gl.where(seen, at, 0) % ring
            row, scale_row = byte_offsets(place, seen, own_page_stride, OWN, OWN_PAGE)
        else:
            number = (t - own_tiles) * KEYS + key
            place = gl.load(index + number, mask=number < count, other=-1)
            seen = place >= 0
            row, scale_row = byte_offsets(place, seen, chosen_page_stride, CHOSEN, CHOSEN_PAGE)
        rows.store(row)
        scale_rows.store(scale_row)
        mbarrier.wait(empty.index(stage), (step // STAGES & 1) ^ 1)
        bias.index(stage).store(gl.where(seen, 0.0, float("-inf")))
        barrier()
        if t < own_tiles:
            decode_tile(own, rows, scale_rows, tiles.index(stage), OWN, VEC, KEYS)
        else:
            decode_tile(chosen, rows, scale_rows, tiles.index(stage), CHOSEN, VEC, KEYS)
        fence_async_shared()
        barrier()
        mbarrier.arrive(full.index(stage))


@gluon.jit
def attend_tiles(query, tiles, rings, start, end, factor, KEYS: gl.constexpr):
    """The warps that multiply: greatest score, total and sum of values of each head."""
    _, _, bias, full, empty = rings
    SCORES: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 2], [16, KEYS // 2, 16])
    SUMS: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 2], [16, 256, 16])
    HEAD: gl.constexpr = gl.SliceLayout(1, SCORES)
    most = gl.full([64], -1e30, gl.float32, HEAD)
    total = gl.zeros([64], gl.float32, HEAD)
    acc = gl.zeros([64, 512], gl.float32, SUMS)
    none = gl.zeros([64, KEYS], gl.float32, SCORES)
    mbarrier.wait(full.index(0), 0)
    score = warpgroup_mma(query, tiles.index(0).permute((1, 0)), none, use_acc=False)
    for t in range(start, end):
        step = t - start
        stage = step % STAGES
        score = score * factor + bias.index(stage).load(gl.SliceLayout(0, SCORES))[None, :]
        higher = gl.maximum(most, gl.max(score, 1))  # finite: `most` starts so
        share = gl.exp2(score - higher[:, None])
        shrink = gl.exp2(most - higher)
        total = total * shrink + gl.sum(share, 1)
        most = higher
        acc = acc * gl.convert_layout(shrink, gl.SliceLayout(1, SUMS))[:, None]
        weights = gl.convert_layout(share.to(gl.bfloat16), gl.DotOperandLayout(0, SUMS, 2))
        pending = warpgroup_mma(weights, tiles.index(stage), acc, is_async=True)
        if t + 1 < end:
            following = (step + 1) % STAGES
            mbarrier.wait(full.index(following), (step + 1) // STAGES & 1)
            acc = warpgroup_mma_wait(0, deps=[pending])
            barrier()  # one thread arrives, for both warp groups
            mbarrier.arrive(empty.index(stage))
            score = warpgroup_mma(
                query, tiles.index(following).permute((1, 0)), none, use_acc=False
            )
        else:
            acc = warpgroup_mma_wait(0, deps=[pending])
    return most, total, acc


@gluon.jit
def store_heads(tile, cos, sin, out, row, first_head, heads, HAS_TURN: gl.constexpr):
    """Write 64 heads of 512 that lie in shared memory, turned back where there is a rotation."""
    STORED: gl.constexpr = gl.BlockedLayout([1, 8], [1, 32], [8, 1], [1, 0])
    head = first_head + gl.arange(0, 64, gl.SliceLayout(1, STORED))
    column = gl.arange(0, 512, gl.SliceLayout(0, STORED))
    inside = (head < heads)[:, None]
    if HAS_TURN:
        inside = inside & (column < 448)[None, :]
    here = (row * heads + head[:, None]) * 512 + column[None, :]
    gl.store(out + here, tile.load(STORED), mask=inside)
    if HAS_TURN:
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
    do_not_specialize=["heads", "head_blocks", "splits", "split_tiles", "ring", "length", "count"]
)
def attend_kernel(
    queries, cos, sin, own, chosen, index, slots, positions, floors, sink, out, tops,
    heads, head_blocks, splits, split_tiles, ring, length, count, factor,
    own_page_stride, chosen_page_stride,
    OWN: gl.constexpr, CHOSEN: gl.constexpr, OWN_PAGE: gl.constexpr, CHOSEN_PAGE: gl.constexpr,
    HAS_TURN: gl.constexpr, IS_WHOLE: gl.constexpr, KEYS: gl.constexpr, VEC: gl.constexpr,
    READER_WARPS: gl.constexpr, READER_REGISTERS: gl.constexpr,
):  # fmt: skip
    """One split of the keys of one query and 64 heads of 512."""
    program = gl.program_id(0)
    split = program % splits
    row = (program // splits // head_blocks).to(gl.int64)
    first_head = program // splits % head_blocks * 64
    own_tiles = (length + KEYS - 1) // KEYS
    start = split * split_tiles
    end = gl.minimum(start + split_tiles, own_tiles + (count + KEYS - 1) // KEYS)
    SWIZZLED: gl.constexpr = gl.NVMMASharedLayout(128, 16, rank=2)
    PLAIN: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [0])
    query = gl.allocate_shared_memory(gl.bfloat16, [64, 512], SWIZZLED)
    tiles = gl.allocate_shared_memory(gl.bfloat16, [STAGES, KEYS, 512], SWIZZLED)
    rows = gl.allocate_shared_memory(gl.int64, [KEYS], PLAIN)
    scale_rows = gl.allocate_shared_memory(gl.int64, [KEYS], PLAIN)
    bias = gl.allocate_shared_memory(gl.float32, [STAGES, KEYS], PLAIN)
    full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    for stage in gl.static_range(STAGES):
        mbarrier.init(full.index(stage), count=1)
        mbarrier.init(empty.index(stage), count=1)
    LOADED: gl.constexpr = gl.BlockedLayout([1, 8], [1, 32], [8, 1], [1, 0])
    head = first_head + gl.arange(0, 64, gl.SliceLayout(1, LOADED))
    column = gl.arange(0, 512, gl.SliceLayout(0, LOADED))
    here = queries + (row * heads + head[:, None]) * 512 + column[None, :]
    query.store(gl.load(here, mask=(head < heads)[:, None], other=0.0))
    TURNED: gl.constexpr = gl.BlockedLayout([1, 8], [4, 8], [8, 1], [1, 0])
    if HAS_TURN:
        turned_head = first_head + gl.arange(0, 64, gl.SliceLayout(1, TURNED))
        place = gl.arange(0, 64, gl.SliceLayout(0, TURNED))
        here = queries + (row * heads + turned_head[:, None]) * 512 + 448
        seen = (turned_head < heads)[:, None]
        value = gl.load(here + place[None, :], mask=seen, other=0.0).to(gl.float32)
        partner = gl.load(here + (place ^ 1)[None, :], mask=seen, other=0.0).to(gl.float32)
        c, s = gl.load(cos + row * 64 + place), gl.load(sin + row * 64 + place)
        barrier()
        turned = value * c[None, :] + partner * s[None, :]
        query.slice(448, 64, dim=1).store(turned.to(gl.bfloat16))
    fence_async_shared()
    barrier()
    position = gl.load(positions + row).to(gl.int32)
    slot = gl.load(slots + row).to(gl.int64)
    floor = gl.maximum(gl.load(floors + row).to(gl.int32), 0)
    rings = (rows, scale_rows, bias, full, empty)
    most, total, acc = gl.warp_specialize(
        [
            (attend_tiles, (query, tiles, rings, start, end, factor, KEYS)),
            (
                read_rows,
                (
                    own, chosen, index + row * count, position, slot, floor, tiles, rings, length,
                    count, start, end, own_tiles, ring, own_page_stride, chosen_page_stride,
                    OWN, CHOSEN, OWN_PAGE, CHOSEN_PAGE, KEYS, VEC,
                ),
            ),
        ],
        [READER_WARPS],
        [READER_REGISTERS],
    )  # fmt: skip
    SUMS: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 2], [16, 256, 16])
    STORED: gl.constexpr = gl.SliceLayout(1, SUMS)
    most, total = gl.convert_layout(most, STORED), gl.convert_layout(total, STORED)
    head = first_head + gl.arange(0, 64, STORED)
    column = gl.arange(0, 512, gl.SliceLayout(0, SUMS))
    inside = head < heads
    if IS_WHOLE:
        rest = gl.load(sink + head, mask=inside, other=0.0) * LOG2_E
        higher = gl.maximum(most, rest)
        shrink = gl.exp2(most - higher)
        weight = total * shrink + gl.exp2(rest - higher)
        share = gl.where(weight > 0, shrink / weight, 0.0)
        query.store((acc * share[:, None]).to(gl.bfloat16))
        barrier()
        store_heads(query, cos, sin, out, row, first_head, heads, HAS_TURN)
    else:
        part = (row * splits + split) * heads + head
        gl.store(out + part[:, None] * 512 + column[None, :], acc, mask=inside[:, None])
        gl.store(tops + 2 * part, most, mask=inside)
        gl.store(tops + 2 * part + 1, total, mask=inside)


def attend_cached(
    queries: Tensor, own: OwnRows, chosen: ChosenRows | None, sink: Tensor, scale: float
) -> Tensor:
    """See kernels.attention.reference; bfloat16 heads of 512, rows plain or packed."""
    split = tiles_of_split(queries.shape, _tiles(own, chosen))
    return attend_in_splits(queries, own, chosen, sink, scale, None, split)


def attend_turned(
    queries: Tensor,
    own: OwnRows,
    chosen: ChosenRows | None,
    sink: Tensor,
    scale: float,
    turn: Rotation,
) -> Tensor:
    """See kernels.attention.reference; the last 64 of bfloat16 heads of 512 turned."""
    split = tiles_of_split(queries.shape, _tiles(own, chosen))
    return attend_in_splits(queries, own, chosen, sink, scale, turn, split)


def tiles_of_split(shape: tuple[int, ...], tiles: int) -> int:
    """Tiles of one split: as many splits as there is room for beside the other programs."""
    programs = max(shape[0] * triton.cdiv(shape[1], HEADS), 1)
    return triton.cdiv(tiles, max(1, min(tiles, 132 // programs)))


def _tiles(own: OwnRows, chosen: ChosenRows | None) -> int:
    count = 0 if chosen is None else chosen.index.shape[1]
    return triton.cdiv(own.length, KEYS) + triton.cdiv(count, KEYS)


def attend_in_splits(
    queries: Tensor,
    own: OwnRows,
    chosen: ChosenRows | None,
    sink: Tensor,
    scale: float,
    turn: Rotation | None,
    split_tiles: int,
    vector: int = 8,
    warps: int = 4,
    registers: int = 96,
) -> Tensor:
    """Both of the above, in splits of some tiles."""
    queries = queries.contiguous()
    rows, heads, width = queries.shape
    out = torch.empty_like(queries)
    if not rows:
        return out
    head_blocks = triton.cdiv(heads, HEADS)
    splits = triton.cdiv(_tiles(own, chosen), split_tiles)
    parts, tops = out, sink
    if splits > 1:
        kind = {"dtype": torch.float32, "device": queries.device}
        parts = torch.empty((rows, splits, heads, width), **kind)
        tops = torch.empty((rows, splits, heads, 2), **kind)
    other = own if chosen is None else chosen
    attend_kernel[(rows * head_blocks * splits,)](
        queries,
        sink if turn is None else turn.cos,
        sink if turn is None else turn.sin,
        own.cache.tensor.view(torch.uint8),
        other.cache.tensor.view(torch.uint8),
        own.positions if chosen is None else chosen.index.contiguous(),
        own.slots,
        own.positions,
        own.floors,
        sink,
        parts,
        tops,
        heads,
        head_blocks,
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
        HAS_TURN=turn is not None,
        IS_WHOLE=splits == 1,
        KEYS=KEYS,
        VEC=vector,
        READER_WARPS=warps,
        READER_REGISTERS=registers,
        num_warps=8,
    )
    if splits > 1:
        join(parts, tops, sink, turn, out)
    return out
