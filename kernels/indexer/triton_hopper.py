"""Scores of 4-bit index keys on Hopper: which kernel serves which queries.

The kernels are written in Gluon, which the interpreter does not run: `kernels.indexer.triton_cuda`
is the same computation, in another order, for every other device, format and page.
"""

from __future__ import annotations

import torch
import triton
from torch import Tensor

from kernels import formats
from kernels.cache_ops.reference import CachedRows, Pages
from kernels.hopper import processors
from kernels.indexer import triton_cuda
from kernels.indexer.triton_hopper_own import score_own_kernel
from kernels.indexer.triton_hopper_shared import COLUMNS, KEYS, SETS, WIDTH, score_many_kernel
from kernels.indexer.triton_hopper_split import score_split_kernel
from kernels.tuning import Tunable, chosen

STAGES = 4  # of queries that share keys
NARROWEST = 16  # heads of a product
MOST_HEADS = 128
LEAST_PAGE = 4
FEW_QUERIES = 32
FEW_SHARED = 16  # queries of a sequence
BUSY_KEYS = 32_768  # so many, of all sequences, give every processor of a large device some
SHORT_CONTEXT = 8192
OWN = Tunable(
    name="score_own",
    op="score_rows",
    implementation="gluon",
    default={"STAGES": 3, "PROGRAMS": 400, "maxnreg": 0},
    candidates=tuple(
        {"STAGES": stages, "PROGRAMS": programs, "maxnreg": most}
        for stages, programs, most in (
            (3, 400, 0),
            (3, 800, 0),
            (3, 1600, 0),
            (2, 400, 0),
            (2, 528, 128),
            (2, 1056, 128),
        )
    ),
)
SHARED = Tunable(
    name="score_shared",
    op="score_rows",
    implementation="gluon",
    default={"SPLIT": 0},
    candidates=({"SPLIT": 0}, {"SPLIT": 1}),
)
TUNABLES = (OWN, SHARED)


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
    elif _is_shared_enough(rows, heads, len(pages.table), context):
        _launch_shared(*ours)
    else:
        return triton_cuda.score_rows(queries, weights, keys, pages, counts, context)
    return out


def _is_shared_enough(rows: int, heads: int, tables: int, context: int) -> bool:
    """Whether the kernels for queries that share keys suit so many.

    A program has a processor to itself, which multiplies nothing while it decodes keys: few
    queries of each of many sequences would leave it to decode most of the time.
    """
    are_many = rows > FEW_SHARED * tables or tables * context <= BUSY_KEYS
    return MOST_HEADS % heads == 0 and heads >= NARROWEST and are_many


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
    config = chosen(OWN, _class_of(rows, context))
    each = tiles_of_program(rows, triton.cdiv(context, KEYS.value), config["PROGRAMS"])
    spans = triton.cdiv(context, each * KEYS.value)
    most = {"maxnreg": config["maxnreg"]} if config["maxnreg"] else {}
    score_own_kernel[(rows * spans,)](
        queries, weights, keys.tensor, pages.table, counts, out, heads, context, spans, each,
        pages.table.stride(0), SHIFT=pages.rows_per_block.bit_length() - 1,
        HEADS=max(triton.next_power_of_2(heads), NARROWEST), STAGES=config["STAGES"], num_warps=4,
        **most,
    )  # fmt: skip


def _launch_shared(
    queries: Tensor, weights: Tensor, keys: CachedRows, pages: Pages, counts: Tensor, out: Tensor
) -> None:
    heads, context = queries.shape[1], out.shape[1]
    tables, tiles = len(pages.table), triton.cdiv(context, 2 * KEYS.value)
    shared = len(queries) // tables
    at_once = processors(queries.device)
    each = queries_of_program(shared, tables * tiles, COLUMNS.value // heads, at_once)
    groups = triton.cdiv(shared, each)
    is_split = chosen(SHARED, _class_of(shared, context))["SPLIT"] == 1
    kernel = score_split_kernel if is_split else score_many_kernel
    kernel[(tables * tiles * groups,)](
        queries, weights, keys.tensor, pages.table, counts, out, context, tiles, groups, shared,
        each, pages.table.stride(0), SHIFT=pages.rows_per_block.bit_length() - 1, HEADS=heads,
        STAGES=STAGES, num_warps=4 if is_split else 8,
    )  # fmt: skip


def _class_of(queries: int, context: int) -> str:
    rows = "few" if queries <= FEW_QUERIES else "many"
    return f"{rows} queries, {'long' if context > SHORT_CONTEXT else 'short'} context"


def tiles_of_program(rows: int, tiles: int, programs: int) -> int:
    """Tiles of keys for one program, so that there are no more than so many beside one a row."""
    spans = max(1, min(tiles, programs // rows))
    return triton.cdiv(tiles, spans)


def queries_of_program(shared: int, tiles: int, together: int, processors: int) -> int:
    """Of `shared` queries that meet so many tiles: as many as leave work for all processors."""
    sets = triton.cdiv(shared, together)
    groups = max(triton.cdiv(sets, SETS.value), min(sets, processors // tiles))
    return triton.cdiv(sets, groups) * together
