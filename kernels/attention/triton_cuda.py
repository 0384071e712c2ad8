"""Attention of single queries over cache rows that are read where they lie.

The keys of a query (its own rows, then the chosen ones) are cut into splits of a fixed number,
each the work of one program for a block of heads; a second launch joins them in ascending
order. So a query comes out the same whatever the batch.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from kernels.attention.reference import ChosenRows, OwnRows
from kernels.cache_ops.triton_cuda import cached_values
from kernels.quantize.triton_cuda import NUMBERS
from kernels.rotary.reference import Rotation
from kernels.rotary.triton_cuda import rotate

KEYS = 32  # of a tile
SPLIT = 5  # tiles of a split
MOST_HEADS = 64  # of a program
STAGES = 3
MOST_TOGETHER = 32  # splits that a program joins at once


@triton.jit
def joined(query, keys, visible, most, total, acc, factor):
    """One tile more: keys [n, dim], visible [n]. Scores are in powers of two."""
    score = tl.dot(query, tl.trans(keys), input_precision="ieee") * factor
    score = tl.where(visible[None, :], score, float("-inf"))
    higher = tl.maximum(most, tl.max(score, 1))  # finite: `most` starts so
    share = tl.exp2(score - higher[:, None])
    shrink = tl.exp2(most - higher)
    total = total * shrink + tl.sum(share, 1)
    acc = tl.dot(share.to(keys.dtype), keys, acc * shrink[:, None], input_precision="ieee")
    return higher, total, acc


@triton.jit(do_not_specialize=["ring"])  # see kernels.indexer.triton_cuda: a row modulo `ring`
def attend_kernel(
    queries,
    own,
    chosen,
    index,
    slots,
    positions,
    floors,
    sink,
    out,
    tops,
    heads,
    head_blocks,
    splits,
    ring,
    length,
    count,
    own_page_stride,
    chosen_page_stride,
    factor,
    OWN: tl.constexpr,
    CHOSEN: tl.constexpr,
    OWN_PAGE: tl.constexpr,
    CHOSEN_PAGE: tl.constexpr,
    IS_WHOLE: tl.constexpr,
    WIDTH: tl.constexpr,
    HEADS: tl.constexpr,
    KEYS: tl.constexpr,
    SPLIT: tl.constexpr,
):
    program = tl.program_id(0)
    split = program % splits
    row = (program // splits // head_blocks).to(tl.int64)
    head = program // splits % head_blocks * HEADS + tl.arange(0, HEADS)
    at = tl.arange(0, WIDTH)
    inside = (head < heads)[:, None]
    here = (row * heads + head[:, None]) * WIDTH + at[None, :]
    query = tl.load(queries + here, mask=inside, other=0.0)
    most = tl.full((HEADS,), -1e30, tl.float32)
    total = tl.zeros((HEADS,), tl.float32)
    acc = tl.zeros((HEADS, WIDTH), tl.float32)
    key = tl.arange(0, KEYS)
    own_tiles = tl.cdiv(length, KEYS)
    start = split * SPLIT
    end = tl.minimum(start + SPLIT, own_tiles + tl.cdiv(count, KEYS))
    position = tl.load(positions + row).to(tl.int64)
    first = tl.load(slots + row).to(tl.int64) * ring
    floor = tl.maximum(tl.load(floors + row).to(tl.int64), 0)
    for tile in range(start, tl.minimum(end, own_tiles)):
        back = tile * KEYS + key
        key_position = position - length + 1 + back
        visible = (back < length) & (key_position >= floor)
        place = first + key_position % ring
        keys = cached_values(
            own, place, visible, own_page_stride, OWN, OWN_PAGE, WIDTH, queries.dtype.element_ty
        )
        most, total, acc = joined(query, keys, visible, most, total, acc, factor)
    for tile in range(tl.maximum(start, own_tiles), end):
        number = (tile - own_tiles) * KEYS + key
        place = tl.load(index + row * count + number, mask=number < count, other=-1).to(tl.int64)
        visible = place >= 0
        keys = cached_values(
            chosen,
            place,
            visible,
            chosen_page_stride,
            CHOSEN,
            CHOSEN_PAGE,
            WIDTH,
            queries.dtype.element_ty,
        )
        most, total, acc = joined(query, keys, visible, most, total, acc, factor)
    if IS_WHOLE:
        rest = tl.load(sink + head, mask=head < heads, other=0.0) * 1.4426950408889634
        higher = tl.maximum(most, rest)
        shrink = tl.exp2(most - higher)
        weight = total * shrink + tl.exp2(rest - higher)
        share = tl.where(weight > 0, shrink / weight, 0.0)
        tl.store(out + here, acc * share[:, None], mask=inside)
    else:
        part = (row * splits + split) * heads + head
        share = tl.where(total > 0, 1.0 / total, 0.0)
        tl.store(out + part[:, None] * WIDTH + at[None, :], acc * share[:, None], mask=inside)
        tl.store(tops + 2 * part, most, mask=head < heads)
        tl.store(tops + 2 * part + 1, total, mask=head < heads)


@triton.jit
def join_kernel(
    parts,
    tops,
    sink,
    cos,
    sin,
    out,
    heads,
    splits,
    turn_width,
    WIDTH: tl.constexpr,
    TOGETHER: tl.constexpr,
    PASSES: tl.constexpr,
    HAS_TURN: tl.constexpr,
    IS_EARLY: tl.constexpr,
):
    """The splits of one head of one query, TOGETHER in a pass; turned back at the end.

    IS_EARLY: launched while the kernel before may still run, for whose end it waits.
    """
    row = (tl.program_id(0) // heads).to(tl.int64)
    head = tl.program_id(0) % heads
    at = tl.arange(0, WIDTH)
    member = tl.arange(0, TOGETHER)
    rest = tl.load(sink + head) * 1.4426950408889634
    if HAS_TURN:
        place = 2 * tl.arange(0, WIDTH // 2) - (WIDTH - turn_width)
        turned = place >= 0
        c = tl.load(cos + row * turn_width + place, mask=turned, other=1.0)
        s = tl.load(sin + row * turn_width + place + 1, mask=turned, other=0.0)
    if IS_EARLY:
        tl.extra.cuda.gdc_wait()
        tl.extra.cuda.gdc_launch_dependents()
    most = tl.maximum(rest, -1e30)
    weight = tl.exp2(rest - most)
    acc = tl.zeros((WIDTH,), tl.float32)
    for turn in tl.static_range(PASSES):
        there = turn * TOGETHER + member < splits
        part = (row * splits + turn * TOGETHER + member) * heads + head
        top = tl.load(tops + 2 * part, mask=there, other=float("-inf"))
        total = tl.load(tops + 2 * part + 1, mask=there, other=0.0)
        here = parts + part[:, None] * WIDTH + at[None, :]
        values = tl.load(here, mask=there[:, None], other=0.0)
        higher = tl.maximum(most, tl.max(top, 0))
        shrink = tl.exp2(most - higher)
        share = total * tl.exp2(top - higher)
        weight = weight * shrink + tl.sum(share, 0)
        acc = acc * shrink + tl.sum(values.to(tl.float32) * share[:, None], 0)
        most = higher
    acc = (acc * tl.where(weight > 0, 1.0 / weight, 0.0)).to(out.dtype.element_ty)
    if HAS_TURN:
        even, odd = tl.split(tl.reshape(acc.to(tl.float32), (WIDTH // 2, 2)))
        acc = tl.reshape(tl.join(even * c + odd * s, odd * c - even * s), (WIDTH,))
    tl.store(out + (row * heads + head) * WIDTH + at, acc)


def attend_cached(
    queries: Tensor, own: OwnRows, chosen: ChosenRows | None, sink: Tensor, scale: float
) -> Tensor:
    """See kernels.attention.reference; heads a power of two wide, float32 ones at most 128."""
    queries = queries.contiguous()
    rows, heads, width = queries.shape
    out = torch.empty_like(queries)
    if not rows:
        return out
    limit = 16 if queries.dtype == torch.float32 else MOST_HEADS
    block = min(max(triton.next_power_of_2(heads), 16), limit)
    head_blocks = triton.cdiv(heads, block)
    count = 0 if chosen is None else chosen.index.shape[1]
    tiles = triton.cdiv(own.length, KEYS) + triton.cdiv(count, KEYS)
    splits = triton.cdiv(tiles, SPLIT)
    parts, tops = out, sink
    if splits > 1:
        kind = {"dtype": torch.float32, "device": queries.device}
        parts = torch.empty((rows, splits, heads, width), **kind)
        tops = torch.empty((rows, splits, heads, 2), **kind)
    other = own if chosen is None else chosen
    attend_kernel[(rows * head_blocks * splits,)](
        queries,
        own.cache.tensor,
        other.cache.tensor,
        own.positions if chosen is None else chosen.index.contiguous(),
        own.slots.contiguous(),
        own.positions.contiguous(),
        own.floors.contiguous(),
        sink,
        parts,
        tops,
        heads,
        head_blocks,
        splits,
        own.ring,
        own.length,
        count,
        own.cache.page_stride,
        other.cache.page_stride,
        scale * 1.4426950408889634,
        OWN=NUMBERS[own.cache.packing],
        CHOSEN=NUMBERS[other.cache.packing],
        OWN_PAGE=own.cache.page_rows or 0,
        CHOSEN_PAGE=other.cache.page_rows or 0,
        IS_WHOLE=splits == 1,
        WIDTH=width,
        HEADS=block,
        KEYS=KEYS,
        SPLIT=SPLIT,
        num_warps=8 if width > 128 else 4,
        num_stages=STAGES,
    )
    if splits > 1:
        join(parts, tops, sink, None, out, is_early=False)
    return out


def attend_turned(
    queries: Tensor,
    own: OwnRows,
    chosen: ChosenRows | None,
    sink: Tensor,
    scale: float,
    turn: Rotation,
) -> Tensor:
    """See kernels.attention.reference."""
    attended = attend_cached(rotate(queries, turn), own, chosen, sink, scale)
    return rotate(attended, turn.inverse)


def join(
    parts: Tensor, tops: Tensor, sink: Tensor, turn: Rotation | None, out: Tensor, *, is_early: bool
) -> None:
    """Write out [rows, heads, width] of splits; `is_early` overlaps the launch with their end.

    parts [rows, splits, heads, width]: what each would give by itself, without the sink; tops
    float32 [rows, splits, heads, 2]: the greatest score in powers of two, and the total.
    """
    rows, splits, heads, width = parts.shape
    together = min(triton.next_power_of_2(splits), MOST_TOGETHER)
    join_kernel[(rows * heads,)](
        parts,
        tops,
        sink,
        sink if turn is None else turn.cos,
        sink if turn is None else turn.sin,
        out,
        heads,
        splits,
        0 if turn is None else turn.cos.shape[-1],
        WIDTH=width,
        TOGETHER=together,
        PASSES=triton.cdiv(splits, together),
        HAS_TURN=turn is not None,
        IS_EARLY=is_early,
        num_warps=2,
        launch_pdl=is_early,
    )
