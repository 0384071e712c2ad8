"""Forward of a Llama, Qwen3 or Qwen3-MoE model over a step's rows."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import torch

from engine.batch import Capture, DraftBatch, DraftOutput, ForwardBatch, ForwardOutput
from engine.cache.groups import PagedGroup, RowFormat
from engine.models.causal_lm.layers import (
    Attention,
    FeedForward,
    joined_layer,
    read_attention,
    read_feed_forward,
)
from engine.models.causal_lm.rope import scaled_frequencies
from kernels.decoder.reference import Layers
from kernels.fused_linear.reference import Norm
from kernels.ops import REFERENCE, Ops
from kernels.paged_attention.reference import Context
from kernels.precision import at_least_float32

if TYPE_CHECKING:
    from engine.cache.groups import CacheGroup
    from engine.cache.storage import CacheStorage
    from engine.models.causal_lm.config import CausalConfig
    from engine.models.causal_lm.weights import Weights


@dataclass(frozen=True, kw_only=True)
class _Layer:
    attention: Attention
    feed_forward: FeedForward


class CausalModel:
    """The Model protocol for transformers of one residual stream, without drafts.

    `weights` are read once, so their files may close. `dtype` is that of activations and
    matrices; norms, rotations, softmax, routing and sums run in at least float32.
    """

    def __init__(
        self, config: CausalConfig, weights: Weights, *, dtype: torch.dtype, ops: Ops = REFERENCE
    ) -> None:
        self.facts = config.facts
        self._config, self._ops = config, ops
        self._embedding = weights.read("model.embed_tokens.weight")
        self._layers = tuple(
            _Layer(
                attention=read_attention(weights, config, layer, ops),
                feed_forward=read_feed_forward(weights, config, layer, ops),
            )
            for layer in range(config.num_hidden_layers)
        )
        self._groups = tuple(group_name(layer) for layer in range(len(self._layers)))
        self._joined = _joined(self._layers, ops)
        gain = weights.read_wide("model.norm.weight")
        self._norm = Norm(weight=gain, eps=config.rms_norm_eps)
        is_tied = config.tie_word_embeddings
        head = self._embedding if is_tied else weights.read("lm_head.weight")
        self._head = ops.laid_out(head)
        has_experts = any(config.has_experts(n) for n in range(config.num_hidden_layers))
        # The definition counts the rows of each expert on the host.
        self.can_capture = not has_experts or ops.run_experts is not REFERENCE.run_experts
        self.can_capture_chunks = self.can_capture
        turns = scaled_frequencies(config.head_dim, config.rope)
        self._frequencies = turns.to(self._embedding.device, at_least_float32(dtype))

    def cache_groups(self, *, max_backtrack: int) -> tuple[CacheGroup, ...]:
        """Keys and values of each layer by pages, laid out as `kernels.paged_attention` says."""
        del max_backtrack
        width = 2 * self._config.num_key_value_heads * self._config.head_dim
        return tuple(
            PagedGroup(
                name=group_name(layer), width=width, tokens_per_row=1, row_format=RowFormat.PLAIN
            )
            for layer in range(self._config.num_hidden_layers)
        )

    @torch.no_grad()
    def forward(
        self, batch: ForwardBatch, caches: CacheStorage, capture: Capture | None = None
    ) -> ForwardOutput:
        """See the protocol. `capture` gets the residual after each layer as `hidden.N`."""
        context = _context(batch, caches)
        turn = self._ops.rotation(batch.positions, self._frequencies)
        x = self._embedding[batch.token_ids]
        each = [caches.tensors[name] for name in self._groups]
        if self._joined is not None and capture is None:
            x = self._ops.run_layers(x, self._joined, turn, each, context)
        else:
            for number, (layer, cache) in enumerate(zip(self._layers, each, strict=True)):
                x = layer.attention.run(x, turn, cache, context)
                x = layer.feed_forward.run(x, batch.live)
                if capture is not None:
                    capture.values[f"hidden.{number}"] = x.clone()
        wanted = x[batch.logit_rows]
        return ForwardOutput(logits=self._ops.norm_logits(wanted, self._norm, self._head))

    def draft(self, batch: DraftBatch, caches: CacheStorage) -> DraftOutput:
        """These models have no drafter, and say so in their facts."""
        raise AssertionError("a model without a draft block was asked for drafts")


def group_name(layer: int) -> str:
    """The cache group of a layer."""
    return f"keys_values.{layer}"


def _joined(layers: tuple[_Layer, ...], ops: Ops) -> Layers | None:
    """All layers for one operation; None where nothing runs them at once."""
    each = [joined_layer(layer.attention, layer.feed_forward) for layer in layers]
    found = tuple(layer for layer in each if layer is not None)
    if ops.run_layers is REFERENCE.run_layers or len(found) < len(layers):
        return None
    return Layers(found)


def _context(batch: ForwardBatch, caches: CacheStorage) -> Context:
    starts, shape = batch.query_start, batch.shape
    rows = [b - a for a, b in pairwise(starts)]
    lengths = tuple(a + b for a, b in zip(batch.context_length, rows, strict=True))
    return Context(
        table=batch.block_table,
        block_tokens=caches.block_tokens,
        owner=batch.sequence_index,
        positions=batch.positions,
        starts=starts,
        lengths=lengths if shape is None else (shape.context,) * len(lengths),
        shared_from=shape.sequences if shape is not None and shape.chunks else None,
    )
