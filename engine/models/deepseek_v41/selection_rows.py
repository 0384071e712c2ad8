"""Which global rows each query attends to, where attention reads cache rows in place."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from engine.models.deepseek_v41.caches import cached_rows, global_name, index_name
from engine.models.deepseek_v41.step import PublishedRows
from kernels.cache_ops.reference import CachedRows, Pages
from kernels.topk.reference import Blocks

if TYPE_CHECKING:
    from engine.models.deepseek_v41.layout import RowSet
    from engine.models.deepseek_v41.selection import Indexer
    from engine.models.deepseek_v41.step import Step
    from kernels.beside import Later
    from kernels.rotary.reference import Rotation

SCORE_BYTES = 1 << 29  # of float32 scores that are held at once


def start_weights(indexer: Indexer, x: Tensor, step: Step) -> Later[Tensor] | None:
    """What queries count, which needs no query; None where nothing is scored."""
    if step.half.rows.end_position // indexer.ratio <= indexer.topk:
        return None
    return step.start_ahead(partial(indexer.weights, x), len(x))


def publish_rows(
    indexer: Indexer, counted: Later[Tensor] | None, low_rank: Tensor, turn: Rotation, step: Step
) -> None:
    """Select for every row of the running half; see `Indexer.publish`.

    `counted` is what `start_weights` made.
    """
    old, rows = step.published_rows, step.half.rows
    context = rows.end_position // indexer.ratio
    per_block = step.caches.rows_per_block(global_name(indexer.owner))
    if counted is None:
        index = step.everything(indexer.ratio, per_block, context) if context else None
        candidates = None if indexer.is_candidate_source else old.candidates
        step.published_rows = PublishedRows(index=index, candidates=candidates)
        return
    queries, weights = indexer.queries(low_rank, turn), counted.result()
    counts, keys = step.half.visible_counts(indexer.ratio), index_name(indexer.owner)
    at_once = max(1, SCORE_BYTES // (4 * context))
    found = [
        _select(
            indexer,
            _Scored(
                queries=queries[part],
                weights=weights[part],
                keys=cached_rows(step.caches, keys),
                pages=Pages(table=_tables(rows, part), rows_per_block=per_block),
                counts=counts[part],
                context=context,
                candidates=_some(old.candidates, part),
            ),
        )
        for part in (slice(i, i + at_once) for i in range(0, len(counts), at_once))
    ]
    if len(found) == 1:
        step.published_rows = found[0]
        return
    step.published_rows = PublishedRows(
        index=torch.cat([one.index for one in found if one.index is not None]),
        candidates=_joined([one.candidates for one in found if one.candidates is not None]),
    )


def _tables(rows: RowSet, part: slice) -> Tensor:
    """Block tables of some rows, each that of as many of them."""
    tables = rows.shared_tables
    is_whole = part.stop >= len(rows.positions)
    return tables if len(tables) == 1 or (part.start == 0 and is_whole) else rows.block_table[part]


def _some(blocks: Blocks | None, part: slice) -> Blocks | None:
    return None if blocks is None else Blocks(index=blocks.index[part], rows=blocks.rows)


def _joined(parts: list[Blocks]) -> Blocks | None:
    if not parts:
        return None
    return Blocks(index=torch.cat([part.index for part in parts]), rows=parts[0].rows)


@dataclass(frozen=True, kw_only=True)
class _Scored:
    """Rows whose scores are held at once."""

    queries: Tensor
    weights: Tensor
    keys: CachedRows
    pages: Pages
    counts: Tensor
    context: int
    candidates: Blocks | None


def _select(indexer: Indexer, rows: _Scored) -> PublishedRows:
    ops, blocks = indexer.ops, rows.candidates
    common = (rows.queries, rows.weights, rows.keys, rows.pages, rows.counts)
    if blocks is not None and not indexer.is_candidate_source:
        scores = ops.score_blocks(*common, blocks)
        index = ops.best_of_blocks(scores, indexer.topk, rows.pages, blocks)
        return PublishedRows(index=index, candidates=blocks)
    scores = ops.score_rows(*common, rows.context)
    if indexer.is_candidate_source:  # it selects freely; those after it do not
        blocks = _candidates(indexer, scores, rows.counts)
    return PublishedRows(index=ops.best_rows(scores, indexer.topk, rows.pages), candidates=blocks)


def _candidates(indexer: Indexer, scores: Tensor, counts: Tensor) -> Blocks | None:
    """The best blocks of scores [rows, context]; None where every one is among them."""
    block, keep = indexer.candidate_block, indexer.candidate_blocks
    if scores.shape[1] <= keep * block:
        return None
    return Blocks(index=indexer.ops.candidate_blocks(scores, counts, block, keep), rows=block)
