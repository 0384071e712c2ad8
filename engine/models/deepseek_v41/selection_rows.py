"""Which global rows each query attends to, where attention reads cache rows in place."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.models.deepseek_v41.caches import cached_rows, global_name, index_name
from engine.models.deepseek_v41.step import PublishedRows
from kernels.cache_ops.reference import Pages

if TYPE_CHECKING:
    from torch import Tensor

    from engine.models.deepseek_v41.selection import Indexer
    from engine.models.deepseek_v41.step import Step
    from kernels.rotary.reference import Rotation


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
    ops, pages = indexer.ops, Pages(table=rows.block_table, rows_per_block=per_block)
    counts = (rows.positions + 1) // indexer.ratio
    queries, weights = indexer.queries(x, low_rank, turn)
    keys = cached_rows(step.caches, index_name(indexer.owner))
    scores = ops.score_rows(queries, weights, keys, pages, counts, context)
    candidates = old.candidates
    if indexer.is_candidate_source:  # it selects freely; those after it do not
        candidates = indexer.candidates(scores, counts)
    elif candidates is not None:
        scores = scores.masked_fill(~candidates, float("-inf"))
    index = ops.best_rows(scores, indexer.topk, pages)
    step.published_rows = PublishedRows(index=index, candidates=candidates)
