"""The best of a row of scores, exactly and in order, whatever ties: no sampling and no atomics.

A row is read twice. First for the maxima of `lanes` interleaved groups: at least k scores reach
the k-th best of those. Then for the few scores that do, which are put together in order; among
them the k-th best is found bit by bit. Where more reach it than there is room for, the whole row
is searched instead. Long rows are cut into parts, whose best are chosen among again.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from kernels.cache_ops.reference import Pages
from kernels.topk.reference import Blocks
from kernels.topk.triton_lines import BEST, LINE, MOST_LINES, best_lines_kernel
from kernels.topk.triton_parts import (
    choose_held,
    fill_rest,
    kth_of_held,
    places_of,
    row_part,
    search_row,
    tile_at,
)
from kernels.tuning import chosen

TUNABLES = (BEST,)


@triton.jit
def best_kernel(
    scores,
    index,
    table,
    held,
    held_at,
    best,
    out,
    n,
    k,
    shared,
    span,
    parts,
    table_stride,
    index_stride,
    IS_ORDERED: tl.constexpr,
    NAMES: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    IS_FINAL: tl.constexpr,
    PER_BLOCK: tl.constexpr,
    LANES: tl.constexpr,
    ROOM: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """The k best of one of `parts` spans of a row of n."""
    program = tl.program_id(0).to(tl.int64)
    row, first = program // parts, (program % parts).to(tl.int32) * span
    scores += row * n + first
    index += row * index_stride
    table += row // shared * table_stride
    out += program * k
    best += program * k
    held += program * ROOM
    held_at += program * ROOM
    size = tl.minimum(n - first, span)
    least = tl.zeros((), tl.uint32)
    is_few = size <= ROOM
    total = size
    if not is_few:
        most = tl.zeros((LANES,), tl.uint32)
        for start in tl.range(0, size, LANES, loop_unroll_factor=4):
            part = row_part(scores, start + tl.arange(0, LANES), size, IS_ORDERED)
            most = tl.maximum(most, part)
        least = kth_of_held(most, k, k + k // 8)
        above = 0
        level = 0
        for start in range(0, size, BLOCK):
            at = tile_at(start, BLOCK)
            part = row_part(scores, at, size, IS_ORDERED)
            place, chosen, above, level = places_of(part, least, k, above, level)
            mask = chosen & (place < ROOM)
            tl.store(held + place, part, mask=mask)
            tl.store(held_at + place, first + at, mask=mask)
        total = above + tl.minimum(level, k)
    chosen_count = 0
    if total <= ROOM:
        at = tile_at(0, ROOM)
        if is_few:
            part = row_part(scores, at, size, IS_ORDERED)
            column = first + at
        else:
            tl.debug_barrier()
            part = tl.load(held + at, mask=at < total, other=0)
            column = tl.load(held_at + at, mask=at < total, other=0)
        chosen_count = choose_held(
            index, best, out, table, column, part, kth_of_held(part, k, k), k, NAMES, BLOCK_ROWS,
            IS_FINAL, PER_BLOCK,
        )  # fmt: skip
    else:
        chosen_count = search_row(
            scores, index, best, out, table, first, size, k, IS_ORDERED, NAMES, BLOCK_ROWS,
            IS_FINAL, PER_BLOCK, BLOCK,
        )  # fmt: skip
    fill_rest(best, out, chosen_count, k, IS_FINAL, LANES)


@dataclass(frozen=True, kw_only=True)
class Shape:
    """How a row is cut. The result does not depend on it."""

    block: int = 4096  # scores that are ranked at once
    warps: int = 8
    span: int = 32768  # of the parts of a long row, where there are few rows
    lanes: int = 1024  # least groups
    held: int = 4096  # most columns that are held at once without looking for the best groups
    is_lines: bool = False  # by `best_lines_kernel`, where lines are few enough


SHAPE = Shape()
MANY = Shape(block=2048, warps=4)  # small programs, several to a processor
FEW_ROWS, MANY_ROWS = 64, 1024


@dataclass(frozen=True, kw_only=True)
class Names:
    """What the columns of scores stand for, and how the chosen are told."""

    index: Tensor | None = None  # [rows, columns] int32, or [rows, blocks] int64
    block_rows: int = 0  # of a block, where `index` has blocks
    pages: Pages | None = None  # None: logical rows are told


def best_rows(scores: Tensor, k: int, pages: Pages) -> Tensor:
    """See kernels.topk.reference; scores float32, fewer than 2^21 a row."""
    return launch_best(scores, k, Names(pages=pages), shape_for(scores, k))


def best_of_blocks(scores: Tensor, k: int, pages: Pages, blocks: Blocks) -> Tensor:
    """See kernels.topk.reference; scores float32, fewer than 2^21 a row."""
    names = Names(index=blocks.index.contiguous(), block_rows=blocks.rows, pages=pages)
    return launch_best(scores, k, names, shape_for(scores, k))


def shape_for(scores: Tensor, k: int) -> Shape:
    """The shape that was fastest for so many rows on an H200."""
    rows, n = scores.shape
    count = "many" if rows >= MANY_ROWS else "few"
    config = chosen(BEST, f"{k} of {triton.next_power_of_2(n)}, {count} rows")
    if config["LINES"]:
        return Shape(
            block=config["BLOCK"], warps=config["num_warps"], held=config["HELD"], is_lines=True
        )
    return MANY if rows >= MANY_ROWS else SHAPE


def launch_best(scores: Tensor, k: int, names: Names, shape: Shape) -> Tensor:
    """The k best columns of scores [rows, n] by programs of a shape: [rows, k] int64."""
    scores = scores.contiguous()
    rows, n = scores.shape
    out = torch.empty((rows, k), dtype=torch.int64, device=scores.device)
    if not rows * k:
        return out
    if rows <= FEW_ROWS and n > 2 * shape.span and shape.span >= 4 * k:
        parts = triton.cdiv(n, shape.span)
        best = torch.empty((rows, parts * k), dtype=torch.uint32, device=scores.device)
        index = torch.empty((rows, parts * k), dtype=torch.int32, device=scores.device)
        _launch(scores, names, index, best, k, parts, shape)
        _launch(best, Names(index=index, pages=names.pages), out, None, k, 1, shape)
    else:
        _launch(scores, names, out, None, k, 1, shape)
    return out


def _launch(
    scores: Tensor, names: Names, out: Tensor, best: Tensor | None, k: int, parts: int,
    shape: Shape,
) -> None:  # fmt: skip
    rows, n = scores.shape
    span = n if parts == 1 else shape.span
    lanes = max(triton.next_power_of_2(2 * k), shape.lanes)
    most = triton.next_power_of_2(span)
    room = max(most, 128) if span <= shape.held else 2 * lanes
    is_lines = shape.is_lines and scores.dtype == torch.float32 and most <= LINE.value * MOST_LINES
    kept = room if span > room else 1
    held = torch.empty((rows * parts, kept), dtype=torch.int32, device=out.device)
    index = held if names.index is None else names.index
    table = out if names.pages is None else names.pages.table
    kind = 0 if names.index is None else 2 if names.block_rows else 1
    numbers = held.view(torch.uint32)
    sizes = (n, k, max(rows // max(len(table), 1), 1), span, parts, table.stride(0))
    constants = {
        "NAMES": kind,
        "BLOCK_ROWS": names.block_rows,
        "IS_FINAL": best is None,
        "PER_BLOCK": 0 if names.pages is None else names.pages.rows_per_block,
        "LANES": lanes,
        "ROOM": room,
        "BLOCK": min(shape.block, max(most, 128)),
        "num_warps": _warps(span, room, shape),
    }
    best = numbers if best is None else best
    if is_lines:
        count = max(most, 128) // LINE.value
        lines = torch.empty((rows * parts, count), dtype=torch.int64, device=out.device)
        best_lines_kernel[(rows * parts,)](
            scores, index, table, lines, held, best, out, *sizes, index.stride(0), MOST=count,
            UNROLL=8, **constants,
        )  # fmt: skip
    else:
        best_kernel[(rows * parts,)](
            scores, index, table, numbers, torch.empty_like(held), best, out, *sizes,
            index.stride(0), IS_ORDERED=scores.dtype == torch.uint32, **constants,
        )  # fmt: skip


def _warps(span: int, room: int, shape: Shape) -> int:
    if span > 4096:
        return shape.warps
    return min(max(room // 256, 1), 16) if span <= room else 8
