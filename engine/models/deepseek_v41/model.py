"""DeepSeek-V4.1, text: forward over a step's rows, and drafting."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from engine.batch import Capture, DraftBatch, DraftOutput, ForwardBatch, ForwardOutput
from engine.models.deepseek_v41.attention import Attention
from engine.models.deepseek_v41.caches import cache_groups, context_name, window_name
from engine.models.deepseek_v41.dspark import Drafter, Shared
from engine.models.deepseek_v41.engram import Engram, TokenMap, read_engrams
from engine.models.deepseek_v41.facts import facts_of
from engine.models.deepseek_v41.layers import Block, Stream
from engine.models.deepseek_v41.layout import LayoutSizes
from engine.models.deepseek_v41.parameters import Weights
from engine.models.deepseek_v41.rope import Rope
from engine.models.deepseek_v41.selection import dense_rows
from engine.models.deepseek_v41.spans import TileCost
from engine.models.deepseek_v41.step import Lanes, Step
from kernels.beside import Beside, Lane, Later
from kernels.matmul.weights import Weight
from kernels.ops import REFERENCE, Ops

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from engine.cache.groups import CacheGroup
    from engine.cache.storage import CacheStorage
    from engine.models.deepseek_v41.config import DeepseekV41Config


@dataclass(frozen=True, kw_only=True)
class _Layer:
    block: Block
    attention: Attention


class DeepseekV41Model:
    """The Model protocol for the text half of a V4.1 release.

    `weights` are plain or packed, under their released names without `.scale`, all on one
    device; they are copied where layers fuse them, so the caller may let go of the mapping.
    `dtype` is that of activations and plain matrices; norms, mHC, routing, softmax and logits
    run in at least float32, and a float64 model is float64 throughout. `released_caches`
    declares the packed row formats, and rounds what attention sees accordingly.
    """

    def __init__(
        self,
        config: DeepseekV41Config,
        weights: Mapping[str, Weight],
        *,
        dtype: torch.dtype,
        released_caches: bool,
        engram_token_map: Sequence[int],
        ops: Ops = REFERENCE,
    ) -> None:
        self.facts = facts_of(config)
        self._config = config
        self._released = released_caches
        self._ops = ops
        self.can_capture = self.can_capture_chunks = ops.reads_caches
        found = Weights(tensors=weights, dtype=dtype, ops=ops)
        self._embedding = found["embed.weight"]
        device = self._embedding.device
        self._lanes = Lanes(soon=Beside(device), ahead=Beside(device, Lane.AHEAD))
        found = replace(found, beside=self._lanes.soon)
        self._norm = found.wide("norm.weight")
        self._head = found["head.weight"]
        self._rope = Rope.build(config, dtype, device, ops)
        self._token_map = TokenMap.build(engram_token_map, config, device)
        self._engrams = read_engrams(found, config)
        self._layers = tuple(
            _read_layer(found, config, layer, released_caches)
            for layer in range(config.num_hidden_layers)
        )
        shared = Shared(embedding=self._embedding, head=self._head, rope=self._rope)
        has_drafter = config.num_nextn_predict_layers > 0
        self._drafter = Drafter(found, config, shared) if has_drafter else None

    def cache_groups(self, *, max_backtrack: int) -> tuple[CacheGroup, ...]:
        """Window and context rings, global and index pages, compressor tails."""
        return cache_groups(self._config, max_backtrack=max_backtrack, released=self._released)

    @torch.no_grad()
    def forward(
        self, batch: ForwardBatch, caches: CacheStorage, capture: Capture | None = None
    ) -> ForwardOutput:
        """See the protocol. Layers that ran no row leave nothing in `capture`."""
        stream = Stream.start(self._embedding, batch.token_ids, self._config.hc_mult)
        step = Step(batch, caches, self._rope, self._sizes(caches), self._lanes)
        memories = self._remember(step)
        prepared = step.start_ahead(partial(self._prepare, step), len(batch.token_ids))
        taps: list[Later[Tensor]] = []
        for layer in self._layers:
            plan = layer.attention.plan
            if plan.layer in self._engrams:
                streams = self._engrams[plan.layer].add(stream.streams, memories[plan.layer]())
                stream = stream._replace(streams=streams, ahead=None)
            x = layer.block.attention_input(stream)
            if layer.attention.compressor is not None:
                write = partial(layer.attention.compressor.write, x, step, prepared)
                step.start_beside(write, len(x))
            if plan.layer == self._config.decoder_layer:
                stream, x = _narrow(stream, x, step)
            if len(x) == 0:
                step.finish()
                return ForwardOutput(logits=self._logits(stream))
            if plan.draft_tap:
                taps.append(step.start_ahead(stream.mean, len(x)))
                self._start_context(taps, step, capture)
            attend = partial(layer.attention.run, step=step)
            stream = layer.block.run(stream, x, attend, batch.live, self._after(plan.layer))
            _record(capture, plan.layer, stream)
        if batch.shape is None or batch.shape.chunks:
            stream = stream.rows(_logit_rows(batch))
        logits = self._logits(stream)
        step.finish()
        return ForwardOutput(logits=logits)

    @torch.no_grad()
    def draft(self, batch: DraftBatch, caches: CacheStorage) -> DraftOutput:
        """See the protocol. `draft_length` is at most the block size of the release."""
        assert self._drafter is not None, "this checkpoint has no draft stages"
        return self._drafter.draft(batch, caches)

    def _remember(self, step: Step) -> dict[int, Callable[[], Tensor]]:
        """What each Engram adds, which depends on tokens alone.

        Of few rows it is made beside the first layers, of many when it is asked for.
        """
        batch, rows = step.batch, len(step.batch.token_ids)

        def make(engram: Engram) -> Tensor:
            return engram.remember(self._token_map.ngrams(batch.token_ids, batch.lookback_ids))

        works = {layer: partial(make, engram) for layer, engram in self._engrams.items()}
        if not self._lanes.ahead.suits(rows):
            return works
        return {layer: step.start_ahead(work, rows).result for layer, work in works.items()}

    def _prepare(self, step: Step) -> None:
        for layer in self._layers:
            if layer.attention.compressor is not None:
                layer.attention.compressor.prepare(step)
            if layer.attention.indexer is not None and step.encoder.rows.sizes.reads_caches:
                step.encoder.visible_counts(layer.attention.indexer.ratio)

    def _after(self, layer: int) -> Block | None:
        """The next layer, where it reads the streams as `layer` leaves them."""
        following = layer + 1
        if following == len(self._layers) or following in self._engrams:
            return None
        return self._layers[following].block

    def _sizes(self, caches: CacheStorage) -> LayoutSizes:
        config = self._config
        cost = TileCost(
            window=config.sliding_window,
            heads=config.num_attention_heads,
            index_heads=config.index_n_heads,
            dense_rows=dense_rows(config),
            gathered=(config.sliding_window + config.index_topk) * config.head_dim,
        )
        ring = caches.groups[window_name(0)].rows  # type: ignore[union-attr]
        return LayoutSizes(
            window=config.sliding_window,
            ring_rows=ring,
            cost=cost,
            reads_caches=self._ops.reads_caches,
        )

    def _start_context(
        self, taps: list[Later[Tensor]], step: Step, capture: Capture | None
    ) -> None:
        """Keep what drafts will see once the last tap is there, beside the layers after it."""
        drafter = self._drafter
        if drafter is None or len(taps) < len(self._config.dspark_target_layer_ids):
            return
        half = step.half
        half.ring_write(step.caches, context_name(0))  # a table that layers share: made here

        def write() -> None:
            joined = torch.cat([tap.result() for tap in taps], -1)
            if capture is not None:
                capture.values["taps"] = joined
            drafter.write_context(joined, half, step.caches)

        step.start_ahead(write, len(half.rows.positions))

    def _logits(self, stream: Stream) -> Tensor:
        eps = self._config.rms_norm_eps
        hidden = self._ops.collapse_norm(stream.streams, stream.pre, self._norm, eps)
        return self._ops.wide_linear(hidden, self._head)


def _read_layer(
    weights: Weights, config: DeepseekV41Config, layer: int, released_caches: bool
) -> _Layer:
    inner = weights.under(f"layers.{layer}.")
    block = Block.read(
        inner,
        config,
        experts=config.n_routed_experts,
        per_token=config.num_experts_per_tok,
    )
    attention = Attention.read(inner.under("attn."), config, layer, released_caches=released_caches)
    return _Layer(block=block, attention=attention)


def _narrow(stream: Stream, x: Tensor, step: Step) -> tuple[Stream, Tensor]:
    """Enter the decoder half: only its rows go on."""
    step.enter_decoder()
    kept = step.batch.decoder_rows
    return (stream, x) if kept is None else (stream.rows(kept), x[kept])


def _logit_rows(batch: ForwardBatch) -> Tensor:
    """The rows whose logits are wanted, counted among the rows of the decoder half."""
    if batch.decoder_rows is None:
        return batch.logit_rows
    return torch.searchsorted(batch.decoder_rows, batch.logit_rows)


def _record(capture: Capture | None, layer: int, stream: Stream) -> None:
    if capture is not None:
        capture.values[f"stream_mean.{layer}"] = stream.mean()
        capture.values[f"premix.{layer}"] = stream.pre
