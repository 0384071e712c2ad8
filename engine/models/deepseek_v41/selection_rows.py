"""Which global rows each query attends to, where attention reads cache rows in place."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from engine.models.deepseek_v41.caches import cached_rows, global_name, index_name
from engine.models.deepseek_v41.step import PublishedRows
from kernels.cache_ops.reference import CachedRows, Pages

if TYPE_CHECKING:
    from engine.models.deepseek_v41.selection import Indexer
    from engine.models.deepseek_v41.step import Step
    from kernels.rotary.reference import Rotation

SCORE_BYTES = 1 << 29  # of float32 scores that are held at once


def publish_rows(indexer: Indexer, x: Tensor, low_rank: Tensor, turn: Rotation, step: Step) -> None:
    """Select for every row of the running half; see `Indexer.publish`."""
    old, rows = step.published_rows, step.half.rows
    context = rows.end_position // indexer.ratio
    per_block = step.caches.rows_per_block(global_name(indexer.owner))
    if context <= indexer.topk:
        index = step.everything(indexer.ratio, per_block, context) if context else None
        candidates = None if indexer.is_candidate_source else old.candidates
        step.published_rows = PublishedRows(index=index, candidates=candidates)
        return
    queries, weights = indexer.queries(x, low_rank, turn)
    counts, keys = (rows.positions + 1) // indexer.ratio, index_name(indexer.owner)
    at_once = max(1, SCORE_BYTES // (4 * context))
    found = [
        _select(
            indexer,
            _Scored(
                queries=queries[part],
                weights=weights[part],
                keys=cached_rows(step.caches, keys),
                pages=Pages(table=rows.block_table[part], rows_per_block=per_block),
                counts=counts[part],
                context=context,
                candidates=None if old.candidates is None else old.candidates[part],
            ),
        )
        for part in (slice(i, i + at_once) for i in range(0, len(counts), at_once))
    ]
    masks = [one.candidates for one in found if one.candidates is not None]
    step.published_rows = PublishedRows(
        index=torch.cat([one.index for one in found if one.index is not None]),
        candidates=torch.cat(masks) if masks else None,
    )


@dataclass(frozen=True, kw_only=True)
class _Scored:
    """Rows whose scores are held at once."""

    queries: Tensor
    weights: Tensor
    keys: CachedRows
    pages: Pages
    counts: Tensor
    context: int
    candidates: Tensor | None


def _select(indexer: Indexer, rows: _Scored) -> PublishedRows:
    ops, candidates = indexer.ops, rows.candidates
    scores = ops.score_rows(
        rows.queries, rows.weights, rows.keys, rows.pages, rows.counts, rows.context
    )
    if indexer.is_candidate_source:  # it selects freely; those after it do not
        candidates = indexer.candidates(scores, rows.counts)
    elif candidates is not None:
        scores = scores.masked_fill(~candidates, float("-inf"))
    index = ops.best_rows(scores, indexer.topk, rows.pages)
    return PublishedRows(index=index, candidates=candidates)
