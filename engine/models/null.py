"""A model of no weights, for schedules in simulation: it costs what it is told to.

The token after position p is a hash of the tokens up to p, carried from row to row through the
cache, so a text tells whether the rows before it were the sequence's own.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch

from engine.batch import DraftOutput, ForwardOutput
from engine.cache.groups import PagedGroup, RingGroup, RowFormat
from kernels.cache_ops.reference import paged_rows, ring_rows

if TYPE_CHECKING:
    from torch import Tensor

    from engine.accelerator.roofline import Roofline, StepCost
    from engine.batch import Capture, DraftBatch, ForwardBatch
    from engine.cache.groups import CacheGroup
    from engine.cache.storage import CacheStorage
    from engine.config import EngineConfig
    from engine.models.protocol import ModelFacts
    from engine.resolution import ResolvedConfig

_STATES = 1 << 20  # a float32 holds them exactly
_PER_MILLE = 1000
_SURE = 40.0  # a logit that no temperature in use can upset


@dataclass(frozen=True, kw_only=True)
class NullSource:
    """A `ModelSource` of null models; `meter` hears what their steps take, if they cost."""

    model_facts: ModelFacts
    meter: StepMeter
    chip: Roofline | None = None
    cost: StepCost | None = None
    draft_cost: StepCost | None = None
    acceptance: float = 0.0  # probability that a draft stands if all before it do
    seed: int = 0

    def facts(self, _config: EngineConfig) -> ModelFacts:
        """Those it was given."""
        return self.model_facts

    def load(self, _resolved: ResolvedConfig, _device: str) -> NullModel:
        """There is nothing to load."""
        return NullModel(self)


@dataclass(slots=True)
class StepMeter:
    """Seconds that forwards have cost since someone asked."""

    seconds: float = field(default=0.0)

    def take(self) -> float:
        """What has gathered; gathers anew from here."""
        taken, self.seconds = self.seconds, 0.0
        return taken


class NullModel:
    """The `Model` protocol without weights."""

    can_capture = True
    can_capture_chunks = False  # it reads on the host where sequences begin

    def __init__(self, source: NullSource) -> None:
        self.facts = source.model_facts
        self._source = source

    def cache_groups(self, *, max_backtrack: int) -> tuple[CacheGroup, ...]:
        """One number a token, and those of the newest tokens again, for drafts."""
        exact = RowFormat.FLOAT32
        return (
            PagedGroup(name="state", width=1, tokens_per_row=1, row_format=exact),
            RingGroup(name="newest", width=1, rows=max_backtrack + 2, row_format=exact),
        )

    def forward(
        self, batch: ForwardBatch, caches: CacheStorage, capture: Capture | None = None
    ) -> ForwardOutput:
        """See the protocol."""
        del capture
        starts = _starts(batch)
        rows = [b - a for a, b in zip(batch.query_start[:-1], batch.query_start[1:], strict=True)]
        self._spend(self._source.cost, rows, batch.context_length)
        owner, positions = batch.sequence_index, batch.positions
        added = self._hash(batch.token_ids, positions)
        total = added.cumsum(0)
        within = total - (total - added)[starts][owner]
        state = (self._before(batch, positions[starts], caches)[owner] + within) % _STATES
        per_block = caches.rows_per_block("state")
        paged = paged_rows(batch.block_table[owner], positions[:, None], per_block).squeeze(1)
        caches.write("state", paged, state[:, None].float())
        self._write_ring(batch, caches, state)
        wanted = batch.logit_rows
        chosen = self._next(state[wanted], positions[wanted])
        logits = torch.zeros(len(wanted), self.facts.vocab_size)
        return ForwardOutput(logits=logits.scatter_(1, chosen[:, None], _SURE))

    def draft(self, batch: DraftBatch, caches: CacheStorage) -> DraftOutput:
        """See the protocol."""
        count, ring = len(batch.slots), caches.groups["newest"].rows  # type: ignore[union-attr]
        self._spend(self._source.draft_cost, [batch.draft_length] * count, [0] * count)
        at = ring_rows(batch.slots, batch.anchor_positions - 1, ring)
        state = caches.read("newest", at).squeeze(1).long()
        token, guesses = batch.anchor_ids, []
        for i in range(batch.draft_length):
            positions = batch.anchor_positions + i
            state = (state + self._hash(token, positions)) % _STATES
            luck = self._hash(state, positions + _STATES) % _PER_MILLE
            is_wrong = luck >= round(self._source.acceptance * _PER_MILLE)
            token = (self._next(state, positions) + is_wrong.long()) % self.facts.vocab_size
            guesses.append(token)
        token_ids = torch.stack(guesses, 1)
        none = torch.zeros(*token_ids.shape)
        logits = none.unsqueeze(-1).expand(-1, -1, self.facts.vocab_size)
        return DraftOutput(token_ids=token_ids, logits=logits, confidence=none)

    def _before(self, batch: ForwardBatch, first: Tensor, caches: CacheStorage) -> Tensor:
        """State before the first row of each sequence: [R]."""
        logical = (first - 1).clamp(min=0)[:, None]
        rows = paged_rows(batch.block_table, logical, caches.rows_per_block("state")).squeeze(1)
        return caches.read("state", rows).squeeze(1).long().masked_fill(first == 0, 0)

    def _write_ring(self, batch: ForwardBatch, caches: CacheStorage, state: Tensor) -> None:
        ring = caches.groups["newest"].rows  # type: ignore[union-attr]
        newest = torch.arange(len(state))
        if batch.shape is None:  # else they all are: a ring holds more than a step's drafts
            ends = torch.tensor(batch.query_start[1:])[batch.sequence_index]
            newest = newest[ends - newest <= ring]
        slots = batch.slots[batch.sequence_index[newest]]
        where = ring_rows(slots, batch.positions[newest], ring)
        caches.write("newest", where, state[newest][:, None].float())

    def _next(self, state: Tensor, positions: Tensor) -> Tensor:
        return self._hash(state + _STATES, positions) % self.facts.vocab_size

    def _hash(self, values: Tensor, positions: Tensor) -> Tensor:
        """A number below _STATES for each pair."""
        word = values * 0x2545F4914F6CDD1D + positions * 0x9E3779B97F4A7C1 + self._source.seed
        word = (word ^ (word >> 31)) * 0x7FB5D329728EA185
        return (word ^ (word >> 27)) % _STATES

    def _spend(
        self, cost: StepCost | None, rows: list[int], contexts: list[int] | tuple[int, ...]
    ) -> None:
        chip = self._source.chip
        if chip is not None and cost is not None:
            self._source.meter.seconds += chip.seconds(
                flops=cost.flops(rows, contexts), moved_bytes=cost.moved_bytes(rows, contexts)
            )


def _starts(batch: ForwardBatch) -> Tensor:
    """First row of each sequence: [R]."""
    if batch.shape is None:
        return torch.tensor(batch.query_start[:-1])
    return torch.arange(batch.shape.sequences) * batch.shape.rows
