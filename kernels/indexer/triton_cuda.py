"""Scores of index keys that are read where they lie: a tile of keys, decoded once, meets queries.

Keys are the rows of the matrix product: they go from memory through registers into it, and a
score is a sum within a few threads (`kernels.indexer.triton_keys`).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from kernels import formats
from kernels.cache_ops.reference import CachedRows, Pages
from kernels.indexer.triton_ahead import SCORES, score_ahead_kernel
from kernels.indexer.triton_keys import (
    NARROWEST_QUARTER,
    key_places,
    key_scales,
    key_tile,
    query_columns,
    rectified_products,
)
from kernels.quantize.triton_cuda import NUMBERS
from kernels.topk.reference import Blocks
from kernels.topk.triton_cuda import Names, launch_best, shape_for
from kernels.tuning import chosen

TUNABLES = (SCORES,)


# Told that 16 divides `per_block`, Triton 3.6 takes the rows themselves for multiples of 16, and
# reads 68 bytes by 16 where only 4 are aligned. 3.7 does not.
@triton.jit(do_not_specialize=["per_block"])
def score_kernel(
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
    page_stride,
    SHIFT: tl.constexpr,
    FORMAT: tl.constexpr,
    PAGE: tl.constexpr,
    WIDTH: tl.constexpr,
    HEADS: tl.constexpr,
    KEYS: tl.constexpr,
    TILES: tl.constexpr,
    STAGES: tl.constexpr,
    PARTS: tl.constexpr,
    IN_ASSEMBLY: tl.constexpr,
):
    """One query against `TILES` tiles of keys."""
    row = (tl.program_id(0) // spans).to(tl.int64)
    start = tl.program_id(0) % spans * (KEYS * TILES)
    count = tl.minimum(tl.load(counts + row), context).to(tl.int32)
    here = out + row * context
    end = start + KEYS * TILES
    if end > count:
        for tile in range(start, end, KEYS):
            at = tile + tl.arange(0, KEYS)
            tl.store(here + at, float("-inf"), mask=(at >= count) & (at < context))
        end = count
    if start < end:
        columns, share = query_columns(
            queries, weights, row, row + 1, heads, WIDTH, HEADS, 1, PARTS
        )
        pages = table + row * table_stride
        for tile in tl.range(start, end, KEYS, num_stages=STAGES):
            at = tile + tl.arange(0, KEYS)
            place = key_places(pages, at, at < count, per_block, SHIFT)
            held = key_tile(
                keys, place, at < count, page_stride, FORMAT, PAGE, WIDTH,
                queries.dtype.element_ty, PARTS, IN_ASSEMBLY,
            )  # fmt: skip
            score = tl.sum(rectified_products(held, columns, share, PARTS), 1)
            if PARTS == 2:
                score *= key_scales(keys, place, at < count, page_stride, PAGE, WIDTH)
            tl.store(here + at, score, mask=at < count)


@triton.jit(do_not_specialize=["per_block"])
def score_blocks_kernel(
    queries,
    weights,
    keys,
    table,
    counts,
    out,
    heads,
    context,
    spans,
    shared,
    per_block,
    table_stride,
    page_stride,
    blocks,
    SHIFT: tl.constexpr,
    FORMAT: tl.constexpr,
    PAGE: tl.constexpr,
    WIDTH: tl.constexpr,
    HEADS: tl.constexpr,
    KEYS: tl.constexpr,
    TILES: tl.constexpr,
    STAGES: tl.constexpr,
    PARTS: tl.constexpr,
    IN_ASSEMBLY: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
):
    """One query against `TILES` tiles of the rows of its blocks."""
    row = (tl.program_id(0) // spans).to(tl.int64)
    start = tl.program_id(0) % spans * (KEYS * TILES)
    count = tl.load(counts + row)
    blocks += row * (context // BLOCK_ROWS)
    columns, share = query_columns(queries, weights, row, row + 1, heads, WIDTH, HEADS, 1, PARTS)
    pages = table + row // shared * table_stride
    end = tl.minimum(start + KEYS * TILES, context)
    for tile in tl.range(start, end, KEYS, num_stages=STAGES):
        at = tile + tl.arange(0, KEYS)
        block = tl.load(blocks + at // BLOCK_ROWS, mask=at < context, other=-1)
        logical = block * BLOCK_ROWS + at % BLOCK_ROWS
        inside = (block >= 0) & (logical < count)
        place = key_places(pages, logical, inside, per_block, SHIFT)
        held = key_tile(
            keys, place, inside, page_stride, FORMAT, PAGE, WIDTH, queries.dtype.element_ty, PARTS,
            IN_ASSEMBLY,
        )  # fmt: skip
        score = tl.sum(rectified_products(held, columns, share, PARTS), 1)
        if PARTS == 2:
            score *= key_scales(keys, place, inside, page_stride, PAGE, WIDTH)
        score = tl.where(inside, score, float("-inf"))
        tl.store(out + row * context + at, score, mask=at < context)


@triton.jit(do_not_specialize=["per_block"])
def score_shared_kernel(
    queries,
    weights,
    keys,
    table,
    counts,
    out,
    heads,
    context,
    tiles,
    groups,
    shared,
    per_block,
    table_stride,
    page_stride,
    SHIFT: tl.constexpr,
    FORMAT: tl.constexpr,
    PAGE: tl.constexpr,
    WIDTH: tl.constexpr,
    HEADS: tl.constexpr,
    KEYS: tl.constexpr,
    QUERIES: tl.constexpr,
    TOGETHER: tl.constexpr,
    STAGES: tl.constexpr,
    PARTS: tl.constexpr,
    IN_ASSEMBLY: tl.constexpr,
):
    """A tile of keys against up to `QUERIES` of the `shared` consecutive queries of a table."""
    group = tl.program_id(0) % groups
    tile = tl.program_id(0) // groups % tiles
    sequence = (tl.program_id(0) // groups // tiles).to(tl.int64)
    begin = sequence * shared + group * QUERIES
    end = tl.minimum(begin + QUERIES, (sequence + 1) * shared)
    at = tile * KEYS + tl.arange(0, KEYS)
    every = begin + tl.arange(0, QUERIES)
    most = tl.max(tl.load(counts + every, mask=every < end, other=0), 0)
    most = tl.minimum(most, context).to(tl.int32)
    stop = begin
    if tile * KEYS < most:
        stop = end
        place = key_places(table + sequence * table_stride, at, at < most, per_block, SHIFT)
        held = key_tile(
            keys, place, at < most, page_stride, FORMAT, PAGE, WIDTH, queries.dtype.element_ty,
            PARTS, IN_ASSEMBLY,
        )  # fmt: skip
        for row in tl.range(begin, end, TOGETHER, num_stages=STAGES):
            columns, share = query_columns(
                queries, weights, row, end, heads, WIDTH, HEADS, TOGETHER, PARTS
            )
            product = rectified_products(held, columns, share, PARTS)
            score = tl.sum(tl.reshape(product, (KEYS, TOGETHER, HEADS)), 2)
            if PARTS == 2:
                score *= key_scales(keys, place, at < most, page_stride, PAGE, WIDTH)[:, None]
            member = row + tl.arange(0, TOGETHER)
            count = tl.load(counts + member, mask=member < end, other=0)
            score = tl.where(at[:, None] < count[None, :], score, float("-inf"))
            here = member.to(tl.int64)[None, :] * context + at[:, None]
            mask = (at < context)[:, None] & (member < end)[None, :]
            tl.store(out + here, score, mask=mask)
    for row in range(stop, end):
        tl.store(out + row * context + at, float("-inf"), mask=at < context)


@triton.jit
def block_score_kernel(
    scores, counts, out, n, blocks, parts, BLOCK_ROWS: tl.constexpr, LANES: tl.constexpr,
    PART: tl.constexpr,
):  # fmt: skip
    """The best score of each block of a part of a row; infinite for the newest visible one."""
    row = (tl.program_id(0) // parts).to(tl.int64)
    block = tl.program_id(0) % parts * PART + tl.arange(0, PART)
    lane = tl.arange(0, LANES)[None, :]
    at = block[:, None] * BLOCK_ROWS + lane
    mask = (at < n) & (lane < BLOCK_ROWS)
    score = tl.load(scores + row * n + at, mask=mask, other=float("-inf"))
    best = tl.max(tl.where(score == score, score, float("-inf")), 1)
    count = tl.load(counts + row)
    is_newest = (count > 0) & (block == (count - 1) // BLOCK_ROWS)
    best = tl.where(is_newest, float("inf"), best)
    tl.store(out + row * blocks + block, best, mask=block < blocks)


@dataclass(frozen=True, kw_only=True)
class Shape:
    """How much of the keys and queries a program takes. Scores do not depend on it."""

    keys: int = 128
    tiles: int = 4  # of keys, for one query
    queries: int = 32  # for one tile of keys
    columns: int = 128  # heads of queries that meet a tile of keys at once
    warps: int = 4
    stages: int = 1
    registers: int = 0  # most of a thread, for one query; 0: as many as there are
    is_ahead: bool = False  # one query's keys are read by `score_ahead_kernel`


QUARTERS = Shape(registers=128)
HALVES = Shape()
WHOLE = Shape(keys=64, tiles=1)
EXACT = Shape(keys=32, tiles=1, columns=64, warps=8)  # float32 takes registers, and would spill
SHAPES = {1: WHOLE, 2: HALVES, 4: QUARTERS}  # by the parts of a key
FEW_QUERIES = 16  # that share keys; so few leave columns idle
FEW_PROGRAMS = 1000  # below it, devices idle: each program takes one tile
RESIDENT_PROGRAMS = 528  # at once on a large device: programs that read ahead take more tiles
PART = 256  # blocks whose best scores are found together


def score_rows(
    queries: Tensor, weights: Tensor, keys: CachedRows, pages: Pages, counts: Tensor, context: int
) -> Tensor:
    """See kernels.indexer.reference; keys a power of two wide."""
    shape = _shape(queries, keys)
    if shape is QUARTERS and len(queries) == len(pages.table):
        shape = _tuned_shape()
    return launch_scores(queries, weights, keys, pages, counts, context, shape)


def _tuned_shape() -> Shape:
    config = chosen(SCORES, "any")
    return Shape(
        keys=config["KEYS"],
        tiles=config["TILES"],
        warps=config["num_warps"],
        stages=config["STAGES"],
        registers=config["maxnreg"],
        is_ahead=config["AHEAD"] == 1,
    )


def score_blocks(
    queries: Tensor, weights: Tensor, keys: CachedRows, pages: Pages, counts: Tensor,
    blocks: Blocks,
) -> Tensor:  # fmt: skip
    """See kernels.indexer.reference; keys a power of two wide."""
    shape = _shape(queries, keys)
    common, constants = _arguments(queries, weights, keys, pages, counts, shape)
    rows, context = len(queries), blocks.index.shape[1] * blocks.rows
    out = torch.empty((rows, context), dtype=torch.float32, device=queries.device)
    if out.numel():
        each = _tiles(rows, context, shape)
        spans = triton.cdiv(context, each * shape.keys)
        score_blocks_kernel[(rows * spans,)](
            *common, out, queries.shape[1], context, spans, rows // len(pages.table),
            pages.rows_per_block, pages.table.stride(0), keys.page_stride,
            blocks.index.contiguous(), TILES=each, BLOCK_ROWS=blocks.rows, **constants,
            **_most(shape),
        )  # fmt: skip
    return out


def launch_scores(
    queries: Tensor, weights: Tensor, keys: CachedRows, pages: Pages, counts: Tensor,
    context: int, shape: Shape,
) -> Tensor:  # fmt: skip
    """`score_rows` by programs of a shape."""
    rows, heads = queries.shape[:2]
    out = torch.empty((rows, context), dtype=torch.float32, device=queries.device)
    if not out.numel():
        return out
    common, constants = _arguments(queries, weights, keys, pages, counts, shape)
    paging = (pages.rows_per_block, pages.table.stride(0), keys.page_stride)
    shared = rows // len(pages.table)
    if shared == 1:
        each = _tiles(rows, context, shape)
        spans = triton.cdiv(context, each * shape.keys)
        kernel = score_kernel
        if shape.is_ahead:
            kernel, paging = score_ahead_kernel, paging[:2]
            del constants["FORMAT"], constants["PAGE"], constants["PARTS"]
        kernel[(rows * spans,)](
            *common, out, heads, context, spans, *paging, TILES=each, **constants, **_most(shape)
        )
    else:
        each = min(triton.next_power_of_2(shared), shape.queries)
        columns = shape.columns if shared > FEW_QUERIES else shape.columns // 2
        tiles, groups = triton.cdiv(context, shape.keys), triton.cdiv(shared, each)
        score_shared_kernel[(len(pages.table) * tiles * groups,)](
            *common,
            out,
            heads,
            context,
            tiles,
            groups,
            shared,
            *paging,
            QUERIES=each,
            TOGETHER=min(max(columns // constants["HEADS"], 1), each),
            **constants,
        )
    return out


def candidate_blocks(scores: Tensor, counts: Tensor, block: int, keep: int) -> Tensor:
    """See kernels.indexer.reference; scores float32."""
    scores = scores.contiguous()
    rows, n = scores.shape
    blocks = triton.cdiv(n, block)
    best = torch.empty((rows, blocks), dtype=torch.float32, device=scores.device)
    if best.numel():
        parts = triton.cdiv(blocks, PART)
        block_score_kernel[(rows * parts,)](
            scores, counts.contiguous(), best, n, blocks, parts, BLOCK_ROWS=block,
            LANES=triton.next_power_of_2(block), PART=PART,
        )  # fmt: skip
    return launch_best(best, keep, Names(), shape_for(best, keep))


def _shape(queries: Tensor, keys: CachedRows) -> Shape:
    return EXACT if queries.dtype == torch.float32 else SHAPES[_parts(queries, keys)]


def _parts(queries: Tensor, keys: CachedRows) -> int:
    """In how many parts a key is multiplied."""
    if queries.dtype != torch.bfloat16:
        return 1
    width = queries.shape[-1]
    if keys.packing == formats.FP8_GROUP128 and width == 128:  # one scale a key
        return 2
    has_quarters = queries.is_cuda and width >= 4 * NARROWEST_QUARTER  # in assembly alone
    return 4 if keys.packing == formats.FP4_GROUP32 and has_quarters else 1


def _arguments(
    queries: Tensor, weights: Tensor, keys: CachedRows, pages: Pages, counts: Tensor, shape: Shape
) -> tuple[tuple[Tensor, ...], dict[str, int]]:
    """What every kernel of scores takes: tensors and constants."""
    heads, width = queries.shape[1:]
    ours = (queries.contiguous(), weights.contiguous())
    return (*ours, keys.tensor, pages.table, counts.contiguous()), {
        "SHIFT": _shift(pages.rows_per_block),
        "FORMAT": NUMBERS[keys.packing],
        "PAGE": keys.page_rows or 0,
        "WIDTH": width,
        "HEADS": max(triton.next_power_of_2(heads), 16),
        "KEYS": shape.keys,
        "STAGES": shape.stages,
        "PARTS": _parts(queries, keys),
        "IN_ASSEMBLY": queries.is_cuda,
        "num_warps": shape.warps,
    }


def _most(shape: Shape) -> dict[str, int]:
    return {"maxnreg": shape.registers} if shape.registers else {}


def _tiles(rows: int, context: int, shape: Shape) -> int:
    tiles = triton.cdiv(context, shape.keys)
    if shape.is_ahead:
        most = max(rows * tiles // RESIDENT_PROGRAMS, 1)
        return min(shape.tiles, 1 << (most.bit_length() - 1))
    return shape.tiles if rows * tiles > FEW_PROGRAMS * shape.tiles else 1


def _shift(rows_per_block: int) -> int:
    is_power = not rows_per_block & (rows_per_block - 1)
    return rows_per_block.bit_length() - 1 if is_power else -1
