"""DSpark: three small layers that guess a block of tokens from what the target saw."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from engine.batch import DraftBatch, DraftOutput
from engine.models.deepseek_v41.attention import keep_keys, keys_of, output, project
from engine.models.deepseek_v41.caches import cached_rows, context_name
from engine.models.deepseek_v41.layers import Block, Stream
from engine.models.deepseek_v41.parameters import (
    AttentionParameters,
    Weights,
    attention_parameters,
)
from kernels.attention.reference import ChosenRows, KeyRows, OwnRows, attend
from kernels.cache_ops.reference import CachedRows, ring_rows
from kernels.matmul.reference import linear
from kernels.precision import at_least_float32
from kernels.rotary.reference import Rotation
from kernels.topk.reference import first_argmax

if TYPE_CHECKING:
    from collections.abc import Callable

    from engine.cache.storage import CacheStorage
    from engine.models.deepseek_v41.config import DeepseekV41Config
    from engine.models.deepseek_v41.rope import Rope
    from engine.models.deepseek_v41.step import Half


@dataclass(frozen=True, kw_only=True)
class Shared:
    """What the drafter borrows from its target."""

    embedding: Tensor  # [vocab, width]
    head: Tensor  # [vocab, width]
    rope: Rope


@dataclass(frozen=True, kw_only=True)
class Stage:
    """One draft layer."""

    number: int
    block: Block
    attention: AttentionParameters

    def write_context(self, context: Tensor, half: Half, caches: CacheStorage) -> None:
        """Keys of target positions from their projected taps [rows, width]."""
        attention, name, turn = self.attention, context_name(self.number), half.plain
        kv = attention.ops.linear(context, attention.wkv)
        if half.rows.sizes.reads_caches:
            keep_keys(kv, attention, (caches, name), half, turn)
        else:
            half.write_ring(caches, name, keys_of(kv, attention, turn))


class Drafter:
    """The stages and their heads. Argmax drafting: a guess feeds the Markov head of the next."""

    def __init__(self, weights: Weights, config: DeepseekV41Config, shared: Shared) -> None:
        self._config = config
        self._shared = shared
        self._rms_norm, self._linear = weights.ops.rms_norm, weights.ops.linear
        self._wide_linear = weights.ops.wide_linear
        self._reads_caches = weights.ops.reads_caches
        stages = config.num_nextn_predict_layers
        first, last = weights.under("mtp.0."), weights.under(f"mtp.{stages - 1}.")
        self._main_proj = first.matrix("main_proj.weight")
        self._main_norm = first.wide("main_norm.weight")
        self._norm = last.wide("norm.weight")
        self._markov_embed = last.wide("markov_head.embed.weight")
        self._markov_head = last.wide("markov_head.head.weight")
        self._confidence = last.wide("confidence_head.proj.weight")  # [1, width + rank]
        self._stages = tuple(_read_stage(weights, config, i) for i in range(stages))

    def write_context(self, taps: Tensor, half: Half, caches: CacheStorage) -> None:
        """Context rows of every stage from the taps [rows, targets * width] of the half."""
        context = self._rms_norm(
            self._linear(taps, self._main_proj), self._main_norm, self._config.rms_norm_eps
        )
        for stage in self._stages:
            stage.write_context(context, half, caches)

    def draft(self, batch: DraftBatch, caches: CacheStorage) -> DraftOutput:
        """Run the block for each sequence and guess `draft_length` tokens."""
        count, size = len(batch.anchor_ids), self._config.dspark_block_size
        ids = batch.anchor_ids.new_full((count, size), self._config.dspark_noise_token_id)
        ids[:, 0] = batch.anchor_ids
        offsets = torch.arange(size, device=ids.device)
        positions = (batch.anchor_positions[:, None] + offsets).flatten()
        turn = self._shared.rope.at(positions, ratio=0)
        stream = Stream.start(self._shared.embedding, ids.flatten(), self._config.hc_mult)
        run = self._attention(batch, turn, caches)
        live = None if batch.live is None else _for_each_row(batch.live, size)
        for stage in self._stages:
            x = stage.block.attention_input(stream)
            stream = stage.block.run(stream, x, partial(run, stage), live)
        hidden = stream.collapsed().view(count, size, -1)[:, : batch.draft_length]
        return self._guess(hidden, batch.anchor_ids)

    def _attention(
        self, batch: DraftBatch, turn: Rotation, caches: CacheStorage
    ) -> Callable[[Stage, Tensor], Tensor]:
        """How a stage attends for its normed input [rows, width]."""
        if not self._reads_caches:
            where, visible = self._context(batch, caches)
            return _BlockAttention(turn, where, visible, caches).run
        size, window = self._config.dspark_block_size, self._config.sliding_window
        return _InPlace(batch, size, window, turn, caches).run

    def _context(self, batch: DraftBatch, caches: CacheStorage) -> tuple[Tensor, Tensor]:
        """Ring rows of the newest window of context and which exist: [R, window]."""
        window = self._config.sliding_window
        back = torch.arange(-window, 0, device=batch.slots.device)
        positions = batch.anchor_positions[:, None] + back
        ring = caches.groups[context_name(0)].rows  # type: ignore[union-attr]
        visible = positions >= batch.decoder_start[:, None].clamp(min=0)
        return ring_rows(batch.slots[:, None], positions, ring), visible

    def _guess(self, hidden: Tensor, anchors: Tensor) -> DraftOutput:
        """Serial heads over hidden [R, length, width] (before the norm)."""
        wide = at_least_float32(hidden.dtype)
        normed = self._rms_norm(hidden, self._norm, self._config.rms_norm_eps)
        base = self._wide_linear(normed, self._shared.head)  # [R, length, vocab]
        token, ids, logits, confidence = anchors, [], [], []
        for i in range(hidden.shape[1]):
            markov = self._markov_embed[token]
            logits.append(base[:, i] + linear(markov, self._markov_head))
            seen = torch.cat((hidden[:, i].to(wide), markov), -1)
            confidence.append(linear(seen, self._confidence).squeeze(-1))
            token = first_argmax(logits[-1])
            ids.append(token)
        return DraftOutput(
            token_ids=torch.stack(ids, 1),
            logits=torch.stack(logits, 1),
            confidence=torch.stack(confidence, 1),
        )


@dataclass(frozen=True)
class _BlockAttention:
    """A block sees the context and all of itself: no causal mask inside."""

    turn: Rotation
    context_rows: Tensor  # [R, window]
    context_visible: Tensor  # [R, window]
    caches: CacheStorage

    def run(self, stage: Stage, x: Tensor) -> Tensor:
        parameters, name = stage.attention, context_name(stage.number)
        sequences = len(self.context_rows)
        queries, kv, _ = project(x, parameters)
        queries = parameters.ops.rotate(queries, self.turn)
        keys = keys_of(kv, parameters, self.turn)
        queries = queries.unflatten(0, (sequences, -1))  # [R, block, heads, dim]
        block = self.caches.rounded(name, keys).unflatten(0, (sequences, -1))
        size = block.shape[1]
        parts = (
            KeyRows(
                self.caches.read(name, self.context_rows),
                self.context_visible.unsqueeze(1).expand(-1, size, -1),
            ),
            KeyRows(block, self.context_visible.new_ones(sequences, size, size)),
        )
        attended = attend(queries, parts, parameters.sink, parameters.head_dim**-0.5)
        attended = parameters.ops.rotate(attended.flatten(0, 1), self.turn.inverse)
        return output(attended, parameters)


class _InPlace:
    """The same over cache rows where they lie; the block itself is packed as they are."""

    def __init__(
        self, batch: DraftBatch, size: int, window: int, turn: Rotation, caches: CacheStorage
    ) -> None:
        self._turn, self._caches, self._window = turn, caches, window
        self._slots = _for_each_row(batch.slots, size)
        self._newest = _for_each_row(batch.anchor_positions - 1, size)
        self._floors = _for_each_row(batch.decoder_start, size)
        self._rows = torch.arange(len(self._slots), device=self._slots.device)
        first = self._rows // size * size
        self._block = first.unsqueeze(1) + torch.arange(size, device=first.device)

    def run(self, stage: Stage, x: Tensor) -> Tensor:
        parameters, name = stage.attention, context_name(stage.number)
        cache, ops = cached_rows(self._caches, name), parameters.ops
        queries, kv, _ = project(x, parameters)
        held = cache.tensor.new_empty(len(x), cache.tensor.shape[1])
        block = CachedRows(tensor=held, width=cache.width, packing=cache.packing)
        ops.insert_rows(block, self._rows, kv, parameters.key_norm, self._turn)
        own = OwnRows(
            cache=cache,
            ring=self._caches.groups[name].rows,  # type: ignore[union-attr]
            length=self._window,
            slots=self._slots,
            positions=self._newest,
            floors=self._floors,
        )
        chosen = ChosenRows(cache=block, index=self._block)
        scale = parameters.head_dim**-0.5
        attended = ops.attend_turned(queries, own, chosen, parameters.sink, scale, self._turn)
        return output(attended, parameters)


def _for_each_row(values: Tensor, size: int) -> Tensor:
    """Values [R] of sequences for each of their rows: [R * size], laid out in memory."""
    return values.unsqueeze(1).expand(-1, size).flatten().contiguous()  # of one it is a view


def _read_stage(weights: Weights, config: DeepseekV41Config, number: int) -> Stage:
    inner = weights.under(f"mtp.{number}.")
    block = Block.read(
        inner,
        config,
        experts=config.dspark_n_routed_experts,
        per_token=config.dspark_num_experts_per_tok,
    )
    attention = attention_parameters(inner.under("attn."), config)
    return Stage(number=number, block=block, attention=attention)
