"""The pieces of a V4.1 layer over whole sequences, differentiable and ready for torch.compile.

The same formulas as the engine's model (held together by a test), laid out for training: no
cache, every token of every sequence at once, all experts computed and weighted. T is the tokens
of a batch, B sequences of L each, flattened; n the streams, D the hidden size, d the head size.
Products run in the dtype of the weights; norms, mixing, routing and softmax in float32.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from kernels.norm.reference import rms_norm
from kernels.rotary.reference import Rotation, rotate

if TYPE_CHECKING:
    from collections.abc import Mapping

    from engine.models.deepseek_v41.config import DeepseekV41Config

_SINKHORN_TRACED = 4  # iterations that the gradient sees


class Mixer(NamedTuple):
    """Hyper-connection parameters of one sublayer, float32."""

    fn: Tensor  # [(2 + n) * n, n * D]
    base: Tensor  # [(2 + n) * n]
    scale: Tensor  # [3]


class AttentionWeights(NamedTuple):
    """Weights of one attention sublayer, by their released names."""

    norm: Tensor
    mixer: Mixer
    wq_a: Tensor
    q_norm: Tensor
    wq_b: Tensor
    wkv: Tensor
    kv_norm: Tensor
    wo_a: Tensor
    wo_b: Tensor
    sink: Tensor


class FeedForwardWeights(NamedTuple):
    """Weights of one mixture-of-experts sublayer; w1, w2, w3 hold all its routed experts."""

    norm: Tensor
    mixer: Mixer
    gate: Tensor
    bias: Tensor
    w1: Tensor  # [E, inner, D]
    w3: Tensor
    w2: Tensor  # [E, D, inner]
    shared_w1: Tensor
    shared_w3: Tensor
    shared_w2: Tensor


class LayerWeights(NamedTuple):
    """One layer, of the target or a drafter stage."""

    attention: AttentionWeights
    ffn: FeedForwardWeights
    experts_per_token: int


class Mixes(NamedTuple):
    """What a sublayer does to the streams."""

    pre: Tensor  # [T, n]
    post: Tensor  # [T, n]
    matrix: Tensor  # [T, n, n]; the first index is the input stream


class Projected(NamedTuple):
    """What attention makes of the tokens before it looks at any other."""

    x: Tensor  # [T, D] normed input
    latent: Tensor  # [T, q_lora] query latent, which the indexer reads too
    queries: Tensor  # [T, H, d]
    rows: Tensor  # [T, d] keys that are also values


def layer_weights(table: Mapping[str, Tensor], prefix: str, experts_per_token: int) -> LayerWeights:
    """Pick the weights of the layer `layers.3.` or `mtp.1.` from `stacks.views`."""
    return LayerWeights(
        _attention_weights(table, prefix), _feed_forward_weights(table, prefix), experts_per_token
    )


def _attention_weights(table: Mapping[str, Tensor], prefix: str) -> AttentionWeights:
    """Pick the attention weights of `layers.3.` or `mtp.1.`."""
    names = ("wq_a.weight", "q_norm.weight", "wq_b.weight", "wkv.weight", "kv_norm.weight",
             "wo_a.weight", "wo_b.weight", "attn_sink")  # fmt: skip
    return AttentionWeights(
        table[f"{prefix}attn_norm.weight"],
        _mixer(table, f"{prefix}hc_attn"),
        *(table[f"{prefix}attn.{name}"] for name in names),
    )


def _feed_forward_weights(table: Mapping[str, Tensor], prefix: str) -> FeedForwardWeights:
    """Pick the mixture-of-experts weights of `layers.3.` or `mtp.1.`."""
    names = ("gate.weight", "gate.bias", "experts.w1", "experts.w3", "experts.w2",
             "shared_experts.w1.weight", "shared_experts.w3.weight",
             "shared_experts.w2.weight")  # fmt: skip
    return FeedForwardWeights(
        table[f"{prefix}ffn_norm.weight"],
        _mixer(table, f"{prefix}hc_ffn"),
        *(table[f"{prefix}ffn.{name}"] for name in names),
    )


def _mixer(table: Mapping[str, Tensor], prefix: str) -> Mixer:
    return Mixer(table[f"{prefix}_fn"], table[f"{prefix}_base"], table[f"{prefix}_scale"])


def mix(streams: Tensor, mixer: Mixer, config: DeepseekV41Config) -> Mixes:
    """Mixing weights from the streams [T, n, D] (kernels.hyper_connection, without in-place)."""
    n = streams.shape[1]
    flat = streams.flatten(1).float()
    norm = (flat.square().mean(-1, keepdim=True) + config.rms_norm_eps).rsqrt()
    pre, post, matrix = ((flat @ mixer.fn.T) * norm).split((n, n, n * n), -1)
    pre_base, post_base, matrix_base = mixer.base.split((n, n, n * n))
    logits = (matrix * mixer.scale[2] + matrix_base).unflatten(-1, (n, n))
    return Mixes(
        pre=(pre * mixer.scale[0] + pre_base).sigmoid() + config.hc_eps,
        post=2 * (post * mixer.scale[1] + post_base).sigmoid(),
        matrix=_sinkhorn(logits, config.hc_sinkhorn_iters, config.hc_eps),
    )


def _sinkhorn(logits: Tensor, iterations: int, eps: float) -> Tensor:
    """As kernels.hyper_connection; the gradient passes through the last iterations only.

    By then row and column factors hardly move, and the graph to compile stays small.
    """
    start = logits.softmax(-1) + eps
    early = max(0, iterations - _SINKHORN_TRACED)
    matrix = start.detach()
    for _ in range(early):
        matrix = matrix / (matrix.sum(-2, keepdim=True) + eps)
        matrix = matrix / (matrix.sum(-1, keepdim=True) + eps)
    matrix = start * (matrix / start.detach())
    for step in range(early, iterations):
        if step > early:
            matrix = matrix / (matrix.sum(-1, keepdim=True) + eps)
        matrix = matrix / (matrix.sum(-2, keepdim=True) + eps)
    return matrix


def collapse(streams: Tensor, pre: Tensor) -> Tensor:
    """Weighted sum of the streams [T, n, D] by pre [T, n]: float32 [T, D]."""
    return (streams.float() * pre.unsqueeze(-1)).sum(1)


def expand(y: Tensor, streams: Tensor, mixes: Mixes) -> Tensor:
    """Streams after a sublayer: out[o] = post[o] * y + sum_i matrix[i, o] * streams[i]."""
    kept = (mixes.matrix.unsqueeze(-1) * streams.float().unsqueeze(2)).sum(1)
    return (kept + mixes.post.unsqueeze(-1) * y.float().unsqueeze(1)).to(streams.dtype)


def project(
    streams: Tensor, pre: Tensor, w: AttentionWeights, turn: Rotation, config: DeepseekV41Config
) -> Projected:
    """Everything of attention up to rotated queries and rows; `turn` has T rows."""
    eps = config.rms_norm_eps
    x = rms_norm(collapse(streams, pre), w.norm, eps).to(w.wq_a.dtype)
    latent = rms_norm(x @ w.wq_a.T, w.q_norm, eps)
    queries = (latent @ w.wq_b.T).unflatten(-1, (-1, config.head_dim))
    rows = rms_norm(x @ w.wkv.T, w.kv_norm, eps)
    return Projected(x, latent, rotate(queries, turn), rotate(rows, turn))


def add_attention(
    attended: Tensor, streams: Tensor, mixes: Mixes, w: AttentionWeights, back: Rotation
) -> Tensor:
    """Un-rotate [T, H, d] by `back`, project through the groups, expand."""
    latent_width, inputs = w.wo_a.shape
    groups = attended.shape[1] * attended.shape[2] // inputs
    flat = rotate(attended, back).flatten(1).unflatten(-1, (groups, inputs))
    parts = w.wo_a.unflatten(0, (groups, latent_width // groups))
    latent = torch.cat([flat[:, g] @ parts[g].T for g in range(groups)], -1)
    return expand(latent @ w.wo_b.T, streams, mixes)


def add_experts(
    streams: Tensor, pre: Tensor, mixes: Mixes, w: LayerWeights, config: DeepseekV41Config
) -> tuple[Tensor, Tensor]:
    """The mixture-of-experts sublayer: the streams, and tokens that chose each expert [E].

    `pre` is the attention sublayer's, `mixes` this one's own.
    """
    x = rms_norm(collapse(streams, pre), w.ffn.norm, config.rms_norm_eps)
    weights = route(x, w.ffn, config, w.experts_per_token)
    y = experts(x.to(w.ffn.w1.dtype), weights, w.ffn, config.swiglu_limit)
    return expand(y, streams, mixes), (weights > 0).float().sum(0)


def route(
    x: Tensor, w: FeedForwardWeights, config: DeepseekV41Config, experts_per_token: int
) -> Tensor:
    """Weight of every expert for every row of x [T, D], 0 where it is not chosen: [T, E]."""
    affinity = F.softplus(x.float() @ w.gate.float().T).sqrt()
    chosen = (affinity.detach() + w.bias).topk(experts_per_token, -1).indices
    picked = torch.zeros_like(affinity).scatter(-1, chosen, 1.0) * affinity
    if config.norm_topk_prob and experts_per_token > 1:
        picked = picked / (picked.sum(-1, keepdim=True) + 1e-20)
    return picked * config.routed_scaling_factor


def experts(x: Tensor, weights: Tensor, w: FeedForwardWeights, limit: float) -> Tensor:
    """All experts as one wide gated layer whose columns carry the routing weights: [T, D]."""
    count, inner = w.w1.shape[:2]
    gate = x @ torch.cat((w.w1.flatten(0, 1), w.shared_w1)).T
    up = x @ torch.cat((w.w3.flatten(0, 1), w.shared_w3)).T
    spread = weights.unsqueeze(-1).expand(-1, count, inner).flatten(1)
    spread = F.pad(spread, (0, w.shared_w1.shape[0]), value=1.0)
    hidden = F.silu(gate.float().clamp(max=limit)) * up.float().clamp(-limit, limit) * spread
    down = torch.cat((w.w2.transpose(1, 2).flatten(0, 1), w.shared_w2.T))
    return hidden.to(x.dtype) @ down


def gated_memory(
    streams: Tensor, memory: Tensor, wkv: Tensor, weight: Tensor, eps: float
) -> Tensor:
    """Add n-gram memory [T, columns * width] to the streams (kernels.engram.gated_add).

    weight [n, D] is the product of the query and key norms' weights.
    """
    n, width = streams.shape[1:]
    stream, table = streams.float(), (memory @ wkv.T).float().unflatten(-1, (n + 1, width))
    key, value = table[:, :n], table[:, n:]
    norm = (stream.square().mean(-1) + eps).rsqrt() * (key.square().mean(-1) + eps).rsqrt()
    fit = (stream * weight * key).sum(-1) * norm * width**-0.5
    gate = (fit.sign() * fit.abs().clamp(min=1e-6).sqrt()).sigmoid()
    return (stream + gate.unsqueeze(-1) * value).to(streams.dtype)
