"""Which global rows each query attends to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from engine.cache.groups import RowFormat
from engine.models.deepseek_v41.caches import global_name, index_name
from engine.models.deepseek_v41.step import Published, Selection
from kernels.cache_ops.reference import paged_rows
from kernels.indexer.reference import candidate_rows, index_scores
from kernels.matmul.reference import linear
from kernels.matmul.weights import Weight
from kernels.ops import Ops
from kernels.rotary.reference import Rotation
from kernels.topk.reference import positions_of, top_k_mask

if TYPE_CHECKING:
    from engine.models.deepseek_v41.config import DeepseekV41Config
    from engine.models.deepseek_v41.parameters import Weights
    from engine.models.deepseek_v41.step import Step
    from engine.models.deepseek_v41.tiles import Tile


@dataclass(frozen=True, kw_only=True)
class Indexer:
    """Scores an owner's global rows for each query and publishes the best `topk`."""

    owner: int
    ratio: int
    wq_b: Weight  # [heads * dim, q_lora]
    weights_proj: Tensor  # [heads, width]
    heads: int
    topk: int
    dense_rows: int  # global rows up to which a tile reads them all and masks
    candidate_block: int
    candidate_blocks: int
    is_candidate_source: bool
    released_caches: bool  # queries are rounded as the cached keys are
    ops: Ops

    @classmethod
    def read(
        cls, weights: Weights, config: DeepseekV41Config, layer: int, *, released_caches: bool
    ) -> Indexer:
        """Parameters under `...attn.` of an index source."""
        plan = config.layers[layer]
        assert plan.kv_owner is not None
        return cls(
            owner=plan.kv_owner,
            ratio=plan.ratio,
            wq_b=weights.matrix("indexer.wq_b.weight"),
            weights_proj=weights["indexer.weights_proj.weight"],
            heads=config.index_n_heads,
            topk=config.index_topk,
            dense_rows=dense_rows(config),
            candidate_block=config.candidate_block_size,
            candidate_blocks=config.candidate_topk_blocks,
            is_candidate_source=plan.is_candidate_source,
            released_caches=released_caches,
            ops=weights.ops,
        )

    def publish(self, x: Tensor, low_rank: Tensor, turn: Rotation, step: Step) -> None:
        """Select for every tile of the running half.

        x [rows, width] normed input, low_rank [rows, q_lora] the normed query latent. Where
        every visible row fits in `topk`, so does every candidate, and nothing is scored.
        """
        tiles = step.half.rows.tiles
        contexts = [tile.end_position // self.ratio for tile in tiles]
        queries = weights = None
        if max(contexts, default=0) > self.topk:
            queries, weights = self.queries(low_rank, turn), self.weights(x)
        old = step.published.candidates
        selections: list[Selection | None] = []
        candidates: list[Tensor | None] = []
        for number, (tile, context) in enumerate(zip(tiles, contexts, strict=True)):
            if context <= self.topk:
                selections.append(self._everything(tile, context, step))
                candidates.append(None)
                continue
            assert queries is not None
            assert weights is not None
            scores = self._scores(tile, queries, weights, context, step)
            mask = old[number] if old is not None else None
            if self.is_candidate_source:  # it selects freely; those after it do not
                candidates.append(self.candidates(scores, tile.visible_counts(self.ratio)))
            elif mask is not None:
                scores = scores.masked_fill(~mask, -torch.inf)
            selections.append(self._best(tile, scores, step))
        keep = candidates if self.is_candidate_source else old
        step.published = Published(selections=selections, candidates=keep)

    def queries(self, low_rank: Tensor, turn: Rotation) -> Tensor:
        """Rotated queries [rows, heads, dim], as cached keys are rounded."""
        heads = self.ops.linear(low_rank, self.wq_b).unflatten(-1, (self.heads, -1))
        queries = self.ops.rotate(heads, turn)
        if self.released_caches:
            queries = self.ops.quantise_dequantise(queries, RowFormat.FP4_GROUP32.value)
        return queries

    def weights(self, x: Tensor) -> Tensor:
        """What each query counts: [rows, heads]."""
        dim = self.wq_b.shape[-2] // self.heads
        return linear(x, self.weights_proj) * (dim**-0.5 * self.heads**-0.5)

    def _scores(
        self, tile: Tile, queries: Tensor, weights: Tensor, context: int, step: Step
    ) -> Tensor:
        name = index_name(self.owner)
        keys = read_shared(tile, name, self.ratio, context, step)
        scores = index_scores(queries[tile.rows], weights[tile.rows], keys)
        return scores.masked_fill_(~_visible(tile, self.ratio, context), -torch.inf)

    def candidates(self, scores: Tensor, counts: Tensor) -> Tensor | None:
        """Rows of the best blocks of scores [..., N], counts [...]; None where every one is."""
        if scores.shape[-1] <= self.candidate_blocks * self.candidate_block:
            return None
        return candidate_rows(scores, counts, self.candidate_block, self.candidate_blocks)

    def _everything(self, tile: Tile, context: int, step: Step) -> Selection | None:
        if context == 0:
            return None
        rows = _physical(tile, global_name(self.owner), self.ratio, context, step)
        visible = _visible(tile, self.ratio, context)
        return Selection(per_query=False, rows=rows, visible=visible)

    def _best(self, tile: Tile, scores: Tensor, step: Step) -> Selection:
        name, context = global_name(self.owner), scores.shape[-1]
        chosen = top_k_mask(scores, self.topk)
        if context <= self.dense_rows:
            rows = _physical(tile, name, self.ratio, context, step)
            return Selection(per_query=False, rows=rows, visible=chosen)
        logical, valid = positions_of(chosen, self.topk)  # [B, Q, topk]
        per_block = step.caches.rows_per_block(name)
        rows = paged_rows(tile.group.block_table, logical.flatten(1), per_block)
        return Selection(
            per_query=True,
            rows=rows.view(-1, self.topk),
            visible=valid.flatten(0, 1).unsqueeze(1),
        )


def dense_rows(config: DeepseekV41Config) -> int:
    """Up to this many global rows, reading all of them for a tile beats gathering by query."""
    return 8 * config.index_topk


def read_shared(tile: Tile, name: str, ratio: int, context: int, step: Step) -> Tensor:
    """The first `context` rows of a paged group for each sequence of a tile: [B, context, dim].

    Read once a step for the tiles and layers that share the group: its owner has written all
    rows of the step before anyone reads.
    """
    reads = tile.group.reads
    if name not in reads or reads[name].shape[1] < context:
        count = max(context, min(tile.group.end_position // ratio, 2 * context))
        reads[name] = step.caches.read(name, _physical(tile, name, ratio, count, step))
    return reads[name][:, :context]


def _physical(tile: Tile, name: str, ratio: int, context: int, step: Step) -> Tensor:
    return tile.group.global_rows(ratio, step.caches.rows_per_block(name), context)


def _visible(tile: Tile, ratio: int, context: int) -> Tensor:
    columns = torch.arange(context, device=tile.rows.device)
    return columns < tile.visible_counts(ratio).unsqueeze(-1)
