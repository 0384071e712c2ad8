"""Scoring global rows for a query, and narrowing them to candidate blocks: the definition."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from kernels.cache_ops.reference import CachedRows, Pages
from kernels.precision import at_least_float32
from kernels.topk.reference import Blocks, positions_of, top_k_mask


def index_scores(queries: Tensor, weights: Tensor, keys: Tensor) -> Tensor:
    """sum over heads of weight * relu(query . key), in at least float32.

    queries [B, Q, heads, dim], weights [B, Q, heads], keys [B, N, dim]. Returns [B, Q, N].
    """
    wide = at_least_float32(queries.dtype)
    batch, rows, heads, _ = queries.shape
    products = torch.bmm(queries.flatten(1, 2).to(wide), keys.to(wide).mT)  # [B, Q * heads, N]
    relu = products.relu_().view(batch, rows, heads, keys.shape[1])
    return torch.matmul(weights.to(wide).unsqueeze(-2), relu).squeeze(-2)


def score_rows(
    queries: Tensor, weights: Tensor, keys: CachedRows, pages: Pages, counts: Tensor, context: int
) -> Tensor:
    """`index_scores` over keys that are read where they lie, each query by itself.

    queries [rows, heads, dim], weights [rows, heads], counts [rows] visible keys of each.
    Returns [rows, context], -inf where a key is not visible.
    """
    logical = torch.arange(context, device=queries.device).expand(len(queries), -1)
    return _scores_of(queries, weights, keys, pages, logical, logical < counts.unsqueeze(-1))


def score_blocks(
    queries: Tensor, weights: Tensor, keys: CachedRows, pages: Pages, counts: Tensor,
    blocks: Blocks,
) -> Tensor:  # fmt: skip
    """`score_rows` of the rows of some blocks alone: [rows, blocks * rows of a block]."""
    logical = blocks.logical()
    visible = (logical >= 0) & (logical < counts.unsqueeze(-1))
    return _scores_of(queries, weights, keys, pages, logical, visible)


def _scores_of(
    queries: Tensor, weights: Tensor, keys: CachedRows, pages: Pages, logical: Tensor,
    visible: Tensor,
) -> Tensor:  # fmt: skip
    places = pages.physical(torch.where(visible, logical, 0))
    rows = keys.read(torch.where(visible, places, 0), queries.dtype)
    scores = index_scores(queries.unsqueeze(1), weights.unsqueeze(1), rows).squeeze(1)
    return torch.where(visible, scores, -torch.inf)


def candidate_blocks(scores: Tensor, counts: Tensor, block: int, keep: int) -> Tensor:
    """The `keep` best blocks of `block` rows each, ascending; ties to the lowest block.

    scores [rows, N] with -inf where a row is not visible, counts [rows] visible rows. A block is
    as good as its best row, and the block of the newest visible row always stays. Blocks without
    a visible row are never kept. Returns [rows, keep] int64, -1 where there are fewer.
    """
    best = block_scores(scores, counts, block)
    index, valid = positions_of(top_k_mask(best, keep), keep)
    return torch.where(valid, index, -1)


def candidate_rows(scores: Tensor, counts: Tensor, block: int, keep: int) -> Tensor:
    """The rows of `candidate_blocks` as a mask [..., N]; scores [..., N], counts [...]."""
    best = block_scores(scores, counts, block)
    return top_k_mask(best, keep).repeat_interleave(block, -1)[..., : scores.shape[-1]]


def block_scores(scores: Tensor, counts: Tensor, block: int) -> Tensor:
    """The best of each block of scores [..., N]; infinite for that of the newest visible row."""
    n = scores.shape[-1]
    blocks = -(-n // block)
    padded = functional.pad(scores, (0, blocks * block - n), value=-torch.inf)
    best = padded.unflatten(-1, (blocks, block)).amax(-1)
    newest = torch.arange(blocks, device=scores.device) == ((counts - 1) // block).unsqueeze(-1)
    return best.masked_fill(newest & (counts > 0).unsqueeze(-1), torch.inf)
