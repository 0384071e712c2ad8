"""The attention sublayer: own window rows and selected global rows in one softmax."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from engine.models.deepseek_v41.caches import cached_rows, global_name, window_name
from engine.models.deepseek_v41.compression import Compressor
from engine.models.deepseek_v41.config import IndexMode
from engine.models.deepseek_v41.parameters import AttentionParameters, attention_parameters
from engine.models.deepseek_v41.selection import Indexer, read_shared
from engine.models.deepseek_v41.selection_rows import publish_rows, start_weights
from kernels.attention.reference import ChosenRows, KeyRows, OwnRows, attend
from kernels.cache_ops.reference import CachedRows
from kernels.rotary.reference import Rotation

if TYPE_CHECKING:
    from engine.cache.storage import CacheStorage
    from engine.models.deepseek_v41.config import DeepseekV41Config, LayerPlan
    from engine.models.deepseek_v41.parameters import Weights
    from engine.models.deepseek_v41.step import Half, Selection, Step
    from engine.models.deepseek_v41.tiles import Tile


class Projected(NamedTuple):
    """What one row of a layer's input becomes."""

    queries: Tensor  # [rows, heads, dim] before their rotation
    kv: Tensor  # [rows, dim] the key before its norm and rotation
    latent: Tensor  # [rows, q_lora] normed


def project(x: Tensor, parameters: AttentionParameters) -> Projected:
    """Queries and raw keys of x [rows, width]."""
    latent, kv = project_down(x, parameters)
    return Projected(queries=queries_of(latent, parameters), kv=kv, latent=latent)


def project_down(x: Tensor, parameters: AttentionParameters) -> tuple[Tensor, Tensor]:
    """The normed query latent [rows, q_lora] and the raw key [rows, dim] of x [rows, width]."""
    down = parameters.ops.linear(x, parameters.down)
    latent, kv = down.split((down.shape[-1] - parameters.head_dim, parameters.head_dim), -1)
    return parameters.ops.rms_norm(latent, parameters.q_norm, parameters.eps), kv


def queries_of(latent: Tensor, parameters: AttentionParameters) -> Tensor:
    """Queries [rows, heads, dim] before their rotation."""
    return parameters.ops.linear(latent, parameters.wq_b).unflatten(-1, (-1, parameters.head_dim))


def keys_of(kv: Tensor, parameters: AttentionParameters, turn: Rotation) -> Tensor:
    """Normed and rotated keys [rows, dim]."""
    ops = parameters.ops
    return ops.rotate(ops.rms_norm(kv, parameters.kv_norm, parameters.eps), turn)


def keep_keys(
    kv: Tensor, parameters: AttentionParameters, ring: tuple[CacheStorage, str], half: Half,
    turn: Rotation,
) -> None:  # fmt: skip
    """Norm, rotate and keep the newest raw keys of each sequence in a ring group; kv [rows, dim]
    of the half.
    """
    newest, places = half.ring_write(*ring)
    if newest is not None:
        kv, turn = kv[newest], turn.rows(newest)
    parameters.ops.insert_rows(cached_rows(*ring), places, kv, parameters.key_norm, turn)


def output(attended: Tensor, parameters: AttentionParameters) -> Tensor:
    """Project [rows, heads, dim], turned back at the query: [rows, width]."""
    ops = parameters.ops
    grouped = attended.flatten(1).unflatten(1, (parameters.wo_a.shape[0], -1))
    return ops.linear(ops.grouped_linear(grouped, parameters.wo_a).flatten(1), parameters.wo_b)


@dataclass(frozen=True, kw_only=True)
class Attention:
    """Attention of one backbone layer and its part in compressing and indexing."""

    plan: LayerPlan
    parameters: AttentionParameters
    compressor: Compressor | None
    indexer: Indexer | None

    @classmethod
    def read(
        cls, weights: Weights, config: DeepseekV41Config, layer: int, *, released_caches: bool
    ) -> Attention:
        """Parameters under `layers.N.attn.`."""
        plan = config.layers[layer]
        is_owner = plan.mode is IndexMode.FULL
        has_index = plan.mode in (IndexMode.FULL, IndexMode.REINDEX)
        return cls(
            plan=plan,
            parameters=attention_parameters(weights, config),
            compressor=Compressor.read(weights, config, layer) if is_owner else None,
            indexer=Indexer.read(weights, config, layer, released_caches=released_caches)
            if has_index
            else None,
        )

    def run(self, x: Tensor, step: Step) -> Tensor:
        """Attend for the rows of the running half: x [rows, width] normed, same shape back.

        The layer's global rows of this step must be written already.
        """
        half, name = step.half, window_name(self.plan.layer)
        turn = half.turn(self.plan.ratio)
        if half.rows.sizes.reads_caches:
            return output(self._where_they_lie(x, turn, step), self.parameters)
        queries, kv, latent = project(x, self.parameters)
        if self.indexer is not None:
            self.indexer.publish(x, latent, turn, step)
        ops, queries = self.parameters.ops, self.parameters.ops.rotate(queries, turn)
        fresh = keys_of(kv, self.parameters, turn)
        old = step.caches.read(name, half.rows.old_rows)
        keys = torch.cat((old, step.caches.rounded(name, fresh)))
        attended = torch.cat(
            [
                self._tile(number, tile, queries, keys, step).flatten(0, 1)
                for number, tile in enumerate(half.rows.tiles)
            ]
        )
        half.write_ring(step.caches, name, fresh)
        if half.rows.order is not None:
            attended = attended[half.rows.order]
        return output(ops.rotate(attended, turn.inverse), self.parameters)

    def _where_they_lie(self, x: Tensor, turn: Rotation, step: Step) -> Tensor:
        """Attend to cache rows where they lie, and to the keys of the step.

        Global rows are chosen beside the product that makes the queries.
        """
        parameters, indexer, index, chosen = self.parameters, self.indexer, None, None
        counted = None if indexer is None else start_weights(indexer, x, step)
        latent, kv = project_down(x, parameters)
        if indexer is not None:
            publish = partial(publish_rows, indexer, counted, latent, turn, step)
            step.start_beside(publish, len(x))
        own_rows = self._in_place if step.half.rows.in_place else self._beside_old_rows
        own = own_rows(kv, turn, step)
        queries = queries_of(latent, parameters)
        step.join()
        if self.plan.ratio:
            index = step.published_rows.index
        if index is not None:
            chosen = ChosenRows(cache=cached_rows(step.caches, self._global), index=index)
        scale = parameters.head_dim**-0.5
        return parameters.ops.attend_turned(queries, own, chosen, parameters.sink, scale, turn)

    def _in_place(self, kv: Tensor, turn: Rotation, step: Step) -> OwnRows:
        """The window in its ring, the keys of the step written into it."""
        parameters, rows, name = self.parameters, step.half.rows, window_name(self.plan.layer)
        cache = cached_rows(step.caches, name)
        keep = partial(keep_keys, kv, parameters, (step.caches, name), step.half, turn)
        if self.indexer is None:
            step.start_beside(keep, len(kv))
        else:
            keep()
        return OwnRows(
            cache=cache,
            ring=rows.sizes.ring_rows,
            length=rows.sizes.window,
            slots=rows.slots,
            positions=rows.positions,
            floors=rows.floors,
        )

    def _beside_old_rows(self, kv: Tensor, turn: Rotation, step: Step) -> OwnRows:
        """The window in a copy: the keys of the step after those before it, by sequence.

        For steps of more rows than the ring has room for, which is written afterwards. The copy
        is one ring that never wraps, and a position is a place in it.
        """
        rows, name = step.half.rows, window_name(self.plan.layer)
        fresh, beside = keys_of(kv, self.parameters, turn), rows.beside
        packing = cached_rows(step.caches, name).packing
        if packing is not None:
            fresh = self.parameters.ops.quantise_dequantise(fresh, packing)
        keys = fresh.new_empty(len(beside.old) + len(fresh), fresh.shape[-1])
        keys[beside.old] = step.caches.read(name, rows.old_rows)
        keys[beside.fresh] = fresh
        keep_keys(kv, self.parameters, (step.caches, name), step.half, turn)
        return OwnRows(
            cache=CachedRows(tensor=keys, width=keys.shape[-1]),
            ring=len(keys),
            length=rows.sizes.window,
            slots=torch.zeros_like(beside.fresh),
            positions=beside.fresh,
            floors=beside.floors,
        )

    def _tile(self, number: int, tile: Tile, queries: Tensor, keys: Tensor, step: Step) -> Tensor:
        """Attended queries of one tile: [B, Q, heads, dim]."""
        chosen = queries[tile.rows]
        selection = step.published.selections[number] if self.plan.ratio else None
        sink, scale = self.parameters.sink, self.parameters.head_dim**-0.5
        if selection is None or not selection.per_query:
            parts = [KeyRows(keys[tile.window_rows], tile.window_visible)]
            if selection is not None:
                parts.append(self._shared_rows(tile, selection, step))
            return attend(chosen, parts, sink, scale)
        parts = [
            KeyRows(keys[tile.own_window_rows], tile.own_window_visible),
            KeyRows(step.caches.read(self._global, selection.rows), selection.visible),
        ]
        single = chosen.flatten(0, 1).unsqueeze(1)
        return attend(single, parts, sink, scale).view_as(chosen)

    @property
    def _global(self) -> str:
        assert self.plan.kv_owner is not None
        return global_name(self.plan.kv_owner)

    def _shared_rows(self, tile: Tile, selection: Selection, step: Step) -> KeyRows:
        context = selection.visible.shape[-1]
        rows = read_shared(tile, self._global, self.plan.ratio, context, step)
        return KeyRows(rows, selection.visible)
