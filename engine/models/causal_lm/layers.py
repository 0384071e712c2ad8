"""One layer of attention and feed-forward, with the weights that it holds merged."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import torch
from torch import Tensor

from kernels.decoder.reference import Layer
from kernels.fused_linear.reference import Norm
from kernels.grouped_matmul.reference import Experts
from kernels.paged_attention.reference import Heads
from kernels.routing.reference import Router

if TYPE_CHECKING:
    from engine.models.causal_lm.config import CausalConfig
    from engine.models.causal_lm.weights import Weights
    from kernels.ops import Ops
    from kernels.paged_attention.reference import Context
    from kernels.rotary.reference import Rotation


class FeedForward(Protocol):
    """The second half of a layer."""

    def run(self, x: Tensor, live: Tensor | None) -> Tensor:
        """The residual x [rows, hidden], which may be overwritten, and what the half adds.

        Rows that are not `live` [rows] are padding; None: all are.
        """
        ...


@dataclass(frozen=True, kw_only=True)
class Attention:
    """Queries, keys and values by one product; heads norm, rotate, store and attend in one op."""

    norm: Norm
    qkv: Tensor  # [(queries + 2 * keys) * dim, hidden]
    qkv_bias: Tensor | None
    out: Tensor  # [hidden, queries * dim]
    out_bias: Tensor | None
    heads: Heads
    ops: Ops

    def run(self, x: Tensor, turn: Rotation, cache: Tensor, context: Context) -> Tensor:
        """The residual x [rows, hidden], which may be overwritten, and what it attends to."""
        qkv = self.ops.norm_linear(x, self.norm, self.qkv)
        if self.qkv_bias is not None:
            qkv = qkv + self.qkv_bias
        seen = self.ops.attend_fresh(qkv, self.heads, turn, cache, context)
        x = self.ops.add_linear(x, seen, self.out)
        return x if self.out_bias is None else x + self.out_bias


@dataclass(frozen=True, kw_only=True)
class DenseFeedForward:
    """One gated expert for every row."""

    norm: Norm
    gate_up: Tensor  # [2 * inner, hidden]
    down: Tensor  # [hidden, inner]
    ops: Ops

    def run(self, x: Tensor, live: Tensor | None) -> Tensor:
        """See the protocol."""
        del live
        return self.ops.add_linear(x, self.ops.norm_swiglu(x, self.norm, self.gate_up), self.down)


@dataclass(frozen=True, kw_only=True)
class SparseFeedForward:
    """A few of many gated experts for each row."""

    norm: Norm
    router: Router
    experts: Experts
    ops: Ops

    def run(self, x: Tensor, live: Tensor | None) -> Tensor:
        """See the protocol."""
        normed = self.ops.rms_norm(x, self.norm.weight, self.norm.eps)
        chosen, weights = self.ops.route_by_softmax(normed, self.router, live)
        return self.ops.run_experts(normed, self.experts, chosen, weights, x)


def joined_layer(attention: Attention, feed_forward: FeedForward) -> Layer | None:
    """Both halves for one operation; None of a layer with experts or biases."""
    has_bias = attention.qkv_bias is not None or attention.out_bias is not None
    if has_bias or not isinstance(feed_forward, DenseFeedForward):
        return None
    return Layer(
        norm=attention.norm,
        qkv=attention.qkv,
        heads=attention.heads,
        out=attention.out,
        inner_norm=feed_forward.norm,
        gate_up=feed_forward.gate_up,
        down=feed_forward.down,
    )


def read_attention(weights: Weights, config: CausalConfig, layer: int, ops: Ops) -> Attention:
    """Read `self_attn` and the norm before it."""
    at = f"model.layers.{layer}.self_attn."
    dim, has_bias = config.head_dim, config.attention_bias
    names = ("q_proj", "k_proj", "v_proj")

    def joined(kind: str) -> Tensor:
        q, k, v = (weights.read(f"{at}{name}.{kind}") for name in names)
        return torch.cat((_paired(q, dim), _paired(k, dim), v))

    return Attention(
        norm=_norm(weights, config, f"model.layers.{layer}.input_layernorm"),
        qkv=ops.laid_out(joined("weight")),
        qkv_bias=joined("bias") if has_bias else None,
        out=ops.laid_out(weights.read(f"{at}o_proj.weight")),
        out_bias=weights.read(f"{at}o_proj.bias") if has_bias else None,
        heads=Heads(
            queries=config.num_attention_heads,
            keys=config.num_key_value_heads,
            dim=dim,
            scale=dim**-0.5 * config.rope.score_factor,
            query_norm=_head_norm(weights, config, f"{at}q_norm"),
            key_norm=_head_norm(weights, config, f"{at}k_norm"),
        ),
        ops=ops,
    )


def read_feed_forward(weights: Weights, config: CausalConfig, layer: int, ops: Ops) -> FeedForward:
    """Read `mlp` and the norm before it."""
    at = f"model.layers.{layer}.mlp."
    norm = _norm(weights, config, f"model.layers.{layer}.post_attention_layernorm")
    if not config.has_experts(layer):
        return DenseFeedForward(
            norm=norm,
            gate_up=ops.laid_out(_gate_up(weights, at)),
            down=ops.laid_out(weights.read(f"{at}down_proj.weight")),
            ops=ops,
        )
    assert config.num_experts is not None
    assert config.num_experts_per_tok is not None
    each = [f"{at}experts.{expert}." for expert in range(config.num_experts)]
    gate = weights.read_wide(f"{at}gate.weight")
    return SparseFeedForward(
        norm=norm,
        router=Router(
            weight=gate,
            bias=gate.new_zeros(len(gate)),
            experts_per_token=config.num_experts_per_tok,
            normalise=config.norm_topk_prob,
            scale=1.0,
        ),
        experts=Experts(
            gate_up=torch.stack([_gate_up(weights, expert) for expert in each]),
            down=torch.stack([weights.read(f"{expert}down_proj.weight") for expert in each]),
            limit=math.inf,
        ),
        ops=ops,
    )


def _norm(weights: Weights, config: CausalConfig, name: str) -> Norm:
    return Norm(weight=weights.read_wide(f"{name}.weight"), eps=config.rms_norm_eps)


def _head_norm(weights: Weights, config: CausalConfig, name: str) -> Norm | None:
    if not config.has_head_norms:
        return None
    gain = weights.read_wide(f"{name}.weight")
    return Norm(weight=_paired(gain, config.head_dim), eps=config.rms_norm_eps)


def _gate_up(weights: Weights, prefix: str) -> Tensor:
    return torch.cat([weights.read(f"{prefix}{name}.weight") for name in ("gate_proj", "up_proj")])


def _paired(outputs: Tensor, dim: int) -> Tensor:
    """Rows in the order in which our rotation pairs them.

    Hugging Face turns values i and i + dim / 2 of a head together, `kernels.rotary` neighbours.
    Queries and keys change alike, so no score does.
    """
    halves = outputs.unflatten(0, (-1, 2, dim // 2))
    return halves.transpose(1, 2).flatten(0, 2).contiguous()
