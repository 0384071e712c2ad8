"""Scoring global rows for a query, and narrowing them to candidate blocks: the definition."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from kernels.cache_ops.reference import CachedRows, Pages
from kernels.precision import at_least_float32
from kernels.topk.reference import top_k_mask


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
    logical = torch.arange(context, device=queries.device)
    visible = logical < counts.unsqueeze(-1)
    places = pages.physical(logical.expand(len(queries), -1))
    rows = keys.read(torch.where(visible, places, 0), queries.dtype)
    scores = index_scores(queries.unsqueeze(1), weights.unsqueeze(1), rows).squeeze(1)
    return torch.where(visible, scores, -torch.inf)


def candidate_rows(scores: Tensor, counts: Tensor, block: int, keep: int) -> Tensor:
    """Rows that lie in the `keep` best blocks of `block` rows each; ties to the lowest block.

    scores [..., N] with -inf where a row is not visible, counts [...] visible rows. A block
    is as good as its best row, and the block of the newest visible row always stays.
    Returns a mask [..., N].
    """
    n = scores.shape[-1]
    blocks = -(-n // block)
    padded = functional.pad(scores, (0, blocks * block - n), value=-torch.inf)
    best = padded.unflatten(-1, (blocks, block)).amax(-1)  # [B, Q, blocks]
    newest = torch.arange(blocks, device=scores.device) == ((counts - 1) // block).unsqueeze(-1)
    best = best.masked_fill(newest & (counts > 0).unsqueeze(-1), torch.inf)
    return top_k_mask(best, keep).repeat_interleave(block, -1)[..., :n]
