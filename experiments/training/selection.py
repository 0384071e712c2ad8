"""Global rows and which of them a query attends to, and how the indexer learns to choose.

The indexer has no gradient from the language loss: it is trained to give each query the
distribution over global rows that the attention of its layers gives (KL, on a sample of the
queries), as DeepSeek's sparse attention does. Its inputs are detached.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch

from kernels.indexer.reference import candidate_rows
from kernels.norm.reference import rms_norm
from kernels.rotary.reference import Rotation, rotate
from kernels.topk.reference import positions_of, top_k_mask

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from torch import Tensor

    from engine.models.deepseek_v41.config import DeepseekV41Config


class GlobalRows(NamedTuple):
    """What an owner layer publishes; N = L // ratio rows a sequence."""

    rows: Tensor  # [B, N, d] rotated: keys and values of attention
    keys: Tensor  # [B, N, di] rotated: keys of the indexer, gradient to the indexer only
    ratio: int


class Index(NamedTuple):
    """Index queries of one source layer."""

    queries: Tensor  # [B, L, Hi, di]
    weights: Tensor  # [B, L, Hi]

    def at(self, positions: Tensor) -> Index:
        """The queries at some positions [Q]."""
        return Index(
            self.queries.index_select(1, positions), self.weights.index_select(1, positions)
        )


Selection = tuple["Tensor", "Tensor"]  # rows [..., k] int64 ascending or not, and valid [..., k]


def compress(
    x: Tensor, table: Mapping[str, Tensor], prefix: str, turn: Rotation, config: DeepseekV41Config
) -> GlobalRows:
    """Global rows and index keys of the owner `prefix` from its normed inputs [B, L, D].

    `turn` rotates the rows of all B sequences: [B * N, ...], row j at the position of its first
    token.
    """
    eps = config.rms_norm_eps
    values = x @ table[f"{prefix}compressor.wkv.weight"].T
    gate = table.get(f"{prefix}compressor.wgate.weight")
    if gate is not None:
        pairs = values.float().unflatten(1, (-1, 2))
        share = (x @ gate.T).float().unflatten(1, (-1, 2)).softmax(2)
        values = (share * pairs).sum(2).to(x.dtype)
    latent = rms_norm(values, table[f"{prefix}compressor.norm.weight"], eps).flatten(0, 1)
    key = rms_norm(
        latent.detach() @ table[f"{prefix}indexer.wk.weight"].T,
        table[f"{prefix}indexer.k_norm.weight"],
        eps,
    )
    rows, keys = (rotate(part, turn).unflatten(0, (x.shape[0], -1)) for part in (latent, key))
    return GlobalRows(rows, keys, 1 if gate is None else 2)


def index_of(
    x: Tensor,
    latent: Tensor,
    table: Mapping[str, Tensor],
    prefix: str,
    turn: Rotation,
    config: DeepseekV41Config,
) -> Index:
    """Index queries of a source layer from its input [B, L, D] and query latent, both detached."""
    heads, dim = config.index_n_heads, config.index_head_dim
    queries = latent.detach().flatten(0, 1) @ table[f"{prefix}wq_b.weight"].T
    queries = rotate(queries.unflatten(-1, (heads, dim)), turn)
    weights = x.detach() @ table[f"{prefix}weights_proj.weight"].T
    return Index(queries.unflatten(0, x.shape[:2]), weights.float() * (dim * heads) ** -0.5)


def visible_counts(length: int, ratio: int, device: torch.device) -> Tensor:
    """How many global rows each of L positions sees: [L]."""
    return (torch.arange(length, device=device) + 1) // ratio


def visible(length: int, ratio: int, device: torch.device) -> Tensor:
    """Which global rows each position sees: [L, L // ratio]."""
    rows = torch.arange(length // ratio, device=device)
    return rows < visible_counts(length, ratio, device).unsqueeze(-1)


class Chooser(NamedTuple):
    """How rows are selected."""

    top: Callable[[Tensor, int], Selection]
    index_scores: Callable[[Tensor, Tensor, Tensor], Tensor]
    config: DeepseekV41Config

    def scores(self, index: Index, keys: Tensor, seen: Tensor) -> Tensor:
        """Index scores of all queries, -inf where a row is not visible: [B, L, N] float32."""
        return self.index_scores(*index, keys).masked_fill(~seen, -torch.inf)

    def candidates(self, scores: Tensor, counts: Tensor) -> Tensor:
        """Mask [B, L, N] of the rows among which later sources may select."""
        config = self.config
        return candidate_rows(
            scores,
            counts.expand(scores.shape[0], -1),
            config.candidate_block_size,
            config.candidate_topk_blocks,
        )


def summed_scores(queries: Tensor, weights: Tensor, keys: Tensor) -> Tensor:
    """kernels.indexer's scores with products in the dtype of the queries, and a sum that fuses."""
    heads = queries.shape[2]
    products = queries.flatten(1, 2) @ keys.mT
    products = products.unflatten(1, (-1, heads)).float()
    return (products.relu() * weights.unsqueeze(-1)).sum(2)


def exact_top(scores: Tensor, k: int) -> Selection:
    """The k best rows as the engine orders them: the lowest position first among equals."""
    return positions_of(top_k_mask(scores, k), min(k, scores.shape[-1]))


def fast_top(scores: Tensor, k: int) -> Selection:
    """The k best rows in any order; equals are broken as the device likes."""
    values, rows = scores.topk(min(k, scores.shape[-1]), -1, sorted=False)
    valid = values > -torch.inf
    return torch.where(valid, rows, 0), valid


def attention_shares(queries: Tensor, lse: Tensor, rows: Tensor, seen: Tensor) -> Tensor:
    """What the heads together give to each global row, detached: [B, Q, N].

    queries [B, Q, H, d], lse [B, Q, H] of the whole softmax, rows [B, N, d], seen [Q, N].
    """
    with torch.no_grad():
        flat = queries.flatten(1, 2)
        scores = (flat @ rows.mT).float().unflatten(1, queries.shape[1:3])
        shares = (scores * queries.shape[-1] ** -0.5 - lse.unsqueeze(-1)).exp()
        return shares.masked_fill(~seen.unsqueeze(-2), 0.0).sum(2)


def index_divergence(scores: Tensor, shares: Tensor, seen: Tensor) -> Tensor:
    """Mean KL(attention's distribution || softmax of index scores) over queries with a choice.

    scores and shares [B, Q, N], seen [Q, N].
    """
    choice = seen.sum(-1) > 1
    target = shares / shares.sum(-1, keepdim=True).clamp(min=1e-20)
    guess = scores.masked_fill(~seen, -1e30).log_softmax(-1)
    per_row = (torch.xlogy(target, target) - target * guess).sum(-1)
    return (per_row * choice).sum() / (choice.sum() * scores.shape[0]).clamp(min=1)
