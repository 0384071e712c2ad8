"""The target model over whole sequences, with gradients: logits, taps, index loss, loads.

Equal to the engine's model on the same weights (held by a test); what differs is the shape of
the work. Lengths must be multiples of the window.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import torch

from engine.models.deepseek_v41.config import IndexMode
from experiments.training import attention, layers, selection
from experiments.training.attention import Dense, GatherRows, Selected
from experiments.training.memory import NgramMemory, recall
from kernels.formats import FP4_GROUP16, FP4_GROUP32, FP8_GROUP32, quantise_dequantise
from kernels.indexer.reference import index_scores
from kernels.norm.reference import rms_norm
from kernels.rotary.reference import Rotation, Yarn, frequencies, rotation

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from torch import Tensor

    from engine.models.deepseek_v41.config import DeepseekV41Config, LayerPlan
    from experiments.training.layers import Projected


@dataclass(frozen=True, kw_only=True)
class Operations:
    """The heavy functions, plain or compiled."""

    mix: Callable[..., layers.Mixes] = layers.mix
    project: Callable[..., Projected] = layers.project
    add_attention: Callable[..., Tensor] = layers.add_attention
    add_experts: Callable[..., tuple[Tensor, Tensor]] = layers.add_experts
    gated_memory: Callable[..., Tensor] = layers.gated_memory
    window_only: Callable[..., attention.Attended] = attention.window_only
    dense: Callable[..., attention.Attended] = attention.dense
    sparse: Callable[..., attention.Attended] = attention.sparse
    top: Callable[[Tensor, int], selection.Selection] = selection.exact_top
    index_scores: Callable[..., Tensor] = index_scores

    @classmethod
    def compiled(cls) -> Operations:
        """Fused by torch.compile, shapes fixed; selections break ties as they like."""
        names = ("mix", "project", "add_attention", "add_experts", "gated_memory",
                 "window_only", "dense", "sparse")  # fmt: skip
        fused = {name: torch.compile(getattr(cls, name), dynamic=False) for name in names}
        scores = torch.compile(selection.summed_scores, dynamic=False)
        return cls(**fused, top=selection.fast_top, index_scores=scores)


class Batch(NamedTuple):
    """B sequences of L tokens, all from position 0."""

    tokens: Tensor  # [B, L] int64
    floor: Tensor | None = None  # [B]: decoder_start of each sequence; 0 or None: no truncation
    rounded: Tensor | None = None  # [B] 0 or 1: whether caches are rounded to released formats


class Passed(NamedTuple):
    """What a pass over a batch gives."""

    hidden: Tensor  # [T, D] normed, ready for the head
    taps: Tensor  # [T, taps * D]
    index_loss: Tensor | None  # mean over the index sources
    loads: Tensor  # [layers, E] tokens that chose each expert


class Target:
    """The backbone. Holds no weights: each call gets the views of the current ones."""

    def __init__(
        self,
        config: DeepseekV41Config,
        token_map: Sequence[int],
        operations: Operations,
        device: torch.device,
    ) -> None:
        self.config = config
        self.operations = operations
        self.memory = NgramMemory(config, token_map, device)
        self.device = device
        self._turns: dict[tuple[int, int], Turns] = {}

    def run(
        self,
        table: Mapping[str, Tensor],
        batch: Batch,
        *,
        sparse: bool,
        sampled: Tensor | None = None,
    ) -> Passed:
        """Run a batch; `sparse` turns selection on.

        `sampled` [Q] are the positions whose queries give the index loss; None: no such loss.
        """
        run = _Run(self, table, batch, sparse, sampled)
        for plan in self.config.layers:
            run.layer(plan)
        return run.passed()

    def turns(self, shape: tuple[int, int]) -> Turns:
        """Rotations of B sequences of L positions, made once a shape."""
        if shape not in self._turns:
            self._turns[shape] = _turns(self.config, shape, self.device)
        return self._turns[shape]


def _turns(config: DeepseekV41Config, batch: tuple[int, int], device: torch.device) -> Turns:
    count, length = batch
    positions = torch.arange(length, device=device).repeat(count)
    yarn = Yarn(
        factor=config.rope_factor,
        beta_fast=config.rope_beta_fast,
        beta_slow=config.rope_beta_slow,
        original_positions=config.rope_original_positions,
    )
    width = config.qk_rope_head_dim
    plain = frequencies(width, config.rope_theta).float().to(device)
    bent = frequencies(width, config.compress_rope_theta, yarn).float().to(device)
    return Turns(rotation(positions, plain), rotation(positions, bent))


class Turns(NamedTuple):
    """Rotations of every token of a batch, flattened."""

    window: Rotation  # layers without global rows
    reach: Rotation  # layers with them


@dataclass
class _Source:
    """The newest index source: its selection and, for the index loss, its layers' shares."""

    index: selection.Index
    owner: selection.GlobalRows
    selected: Selected | None
    shares: list[Tensor] = field(default_factory=list)


class _Run:
    """One pass: the streams and what layers publish to later ones."""

    def __init__(
        self,
        target: Target,
        table: Mapping[str, Tensor],
        batch: Batch,
        sparse: bool,
        sampled: Tensor | None,
    ) -> None:
        self.target, self.table, self.batch = target, table, batch
        self.config, self.do = target.config, target.operations
        self.sparse, self.sampled = sparse, sampled
        self.shape = (batch.tokens.shape[0], batch.tokens.shape[1])
        self.turns = target.turns(self.shape)
        embedded = GatherRows.apply(table["embed.weight"], batch.tokens.flatten()).float()
        self.streams = embedded.unsqueeze(1).repeat(1, self.config.hc_mult, 1)
        self.pre = torch.zeros_like(self.streams[..., 0])
        self.pre[:, 0] = 1.0
        self.memory_rows = target.memory.rows(batch.tokens)
        self.chooser = selection.Chooser(self.do.top, self.do.index_scores, self.config)
        self.candidates: Tensor | None = None
        self.owner: selection.GlobalRows | None = None
        self.source: _Source | None = None
        self.taps: list[Tensor] = []
        self.loads: list[Tensor] = []
        self.index_losses: list[Tensor] = []

    def layer(self, plan: LayerPlan) -> None:
        if plan.engram is not None:
            memory = recall(self.table, plan.layer, self.memory_rows[plan.layer])
            self.streams = self.do.gated_memory(self.streams, *memory, self.config.rms_norm_eps)
        if plan.draft_tap:
            self.taps.append(self.streams.mean(1))
        weights = layers.layer_weights(
            self.table, f"layers.{plan.layer}.", self.config.num_experts_per_tok
        )
        turn = self.turns.reach if plan.ratio else self.turns.window
        before, ffn = weights.attention, weights.ffn
        mixes = self.do.mix(self.streams, before.mixer, self.config)
        projected = self.do.project(self.streams, self.pre, before, turn, self.config)
        attended = self._attend(plan, projected, before.sink, turn).flatten(0, 1)
        self.streams = self.do.add_attention(attended, self.streams, mixes, before, turn.inverse)
        after = self.do.mix(self.streams, ffn.mixer, self.config)
        self.streams, load = self.do.add_experts(
            self.streams, mixes.pre, after, weights, self.config
        )
        self.pre = after.pre
        self.loads.append(load)

    def passed(self) -> Passed:
        self._close_source()
        hidden = rms_norm(
            layers.collapse(self.streams, self.pre),
            self.table["norm.weight"],
            self.config.rms_norm_eps,
        )
        losses = self.index_losses
        return Passed(
            hidden=hidden,
            taps=torch.cat(self.taps, -1),
            index_loss=torch.stack(losses).mean() if losses else None,
            loads=torch.stack(self.loads),
        )

    def _attend(
        self, plan: LayerPlan, projected: Projected, sink: Tensor, turn: Rotation
    ) -> Tensor:
        queries = projected.queries.unflatten(0, self.shape)
        rows = self._rounded(projected.rows.unflatten(0, self.shape), FP8_GROUP32)
        floor = self.batch.floor if plan.layer >= self.config.decoder_layer else None
        if not plan.ratio:
            return self.do.window_only(queries, rows, sink, floor, self.config.sliding_window).out
        if plan.mode is not IndexMode.REUSE:
            self._open_source(plan, projected, turn)
        source = self.source
        assert source is not None
        if source.selected is None:
            seen = Dense(
                source.owner.rows, self._visible(source.owner.ratio), self.config.sliding_window
            )
            attended = self.do.dense(queries, rows, sink, floor, seen)
        else:
            attended = self.do.sparse(queries, rows, sink, floor, source.selected)
        if self.sampled is not None:
            source.shares.append(self._shares(queries, attended.lse, source.owner))
        return attended.out

    def _open_source(self, plan: LayerPlan, projected: Projected, turn: Rotation) -> None:
        self._close_source()
        prefix = f"layers.{plan.layer}.attn."
        x = projected.x.unflatten(0, self.shape)
        if plan.mode is IndexMode.FULL:
            every = torch.arange(0, x.shape[0] * x.shape[1], plan.ratio, device=x.device)
            owner = selection.compress(x, self.table, prefix, turn.rows(every), self.config)
            self.owner = owner._replace(
                rows=self._rounded(owner.rows, FP4_GROUP16),
                keys=self._rounded(owner.keys, FP4_GROUP32),
            )
        assert self.owner is not None
        latent = projected.latent.unflatten(0, self.shape)
        index = selection.index_of(x, latent, self.table, f"{prefix}indexer.", turn, self.config)
        index = index._replace(queries=self._rounded(index.queries, FP4_GROUP32))
        selected = self._select(plan, index, self.owner) if self.sparse else None
        self.source = _Source(index=index, owner=self.owner, selected=selected)

    def _select(
        self, plan: LayerPlan, index: selection.Index, owner: selection.GlobalRows
    ) -> Selected:
        with torch.no_grad():
            scores = self.chooser.scores(index, owner.keys, self._visible(owner.ratio))
            if plan.is_candidate_source:
                counts = selection.visible_counts(self.shape[1], owner.ratio, scores.device)
                self.candidates = self.chooser.candidates(scores, counts)
            elif plan.mode is IndexMode.REINDEX:
                assert self.candidates is not None
                scores = scores.masked_fill(~self.candidates, -torch.inf)
            chosen, valid = self.chooser.top(scores, self.config.index_topk)
            starts = torch.arange(self.shape[0], device=chosen.device) * owner.rows.shape[1]
            chosen = (chosen + starts.view(-1, 1, 1)).flatten(0, 1)
        gathered = GatherRows.apply(owner.rows.flatten(0, 1), chosen)
        return Selected(gathered, valid.flatten(0, 1), self.config.sliding_window)

    def _close_source(self) -> None:
        source, sampled = self.source, self.sampled
        self.source = None
        if source is None or sampled is None:
            return
        index = source.index.at(sampled)
        seen = self._visible(source.owner.ratio)[sampled]
        scores = self.chooser.scores(index, source.owner.keys, seen)
        shares = torch.stack(source.shares).sum(0)
        self.index_losses.append(selection.index_divergence(scores, shares, seen))

    def _shares(self, queries: Tensor, lse: Tensor, owner: selection.GlobalRows) -> Tensor:
        some = self.sampled
        assert some is not None
        seen = self._visible(owner.ratio)[some]
        return selection.attention_shares(queries[:, some], lse[:, some], owner.rows, seen)

    def _visible(self, ratio: int) -> Tensor:
        return selection.visible(self.shape[1], ratio, self.batch.tokens.device)

    def _rounded(self, rows: Tensor, fmt: str) -> Tensor:
        """Rows as their cache gives them back, for the sequences that ask for it."""
        asked = self.batch.rounded
        if asked is None:
            return rows
        change = quantise_dequantise(rows.detach(), fmt) - rows.detach()
        return rows + change * asked.view(-1, *(1,) * (rows.dim() - 1)).to(rows.dtype)
