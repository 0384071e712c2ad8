"""From a plan to tensors: what each step costs the host, so plain lists and few tensors."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import torch

from engine.batch import DraftBatch, ForwardBatch
from engine.choices import ReplayMode

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from engine.sequence import Sequence as TokenSequence
    from engine.step import ScheduledSequence


@dataclass(frozen=True, slots=True)
class LogitSpan:
    """Logit rows of one scheduled sequence: first those of its prompt, then those that choose."""

    start: int
    prompt_rows: int  # row i holds the logits after position `first + i`
    choice_rows: int

    @property
    def choice_start(self) -> int:
        """First row that chooses a token."""
        return self.start + self.prompt_rows


@dataclass(slots=True)
class _Rows:
    """The flat rows of a step while they are gathered."""

    token_ids: list[int] = field(default_factory=list)
    positions: list[int] = field(default_factory=list)
    sequence_index: list[int] = field(default_factory=list)
    lookback: list[list[int]] = field(default_factory=list)
    decoder: list[int] = field(default_factory=list)
    logit: list[int] = field(default_factory=list)
    starts: list[int] = field(default_factory=lambda: [0])
    spans: list[LogitSpan] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class StepTensors:
    """A step ready to run, and where to find each sequence's logits."""

    batch: ForwardBatch
    spans: tuple[LogitSpan, ...]
    decoder_rows: int  # rows that run the decoder half


class StepBuilder:
    """Builds the tensors of steps for one model on one device."""

    def __init__(self, *, ngram: int, replay_mode: ReplayMode, device: str) -> None:
        self._columns = ngram - 1
        self._is_compact = replay_mode is ReplayMode.COMPACT
        self._device = device

    def forward(
        self, entries: Sequence[ScheduledSequence], drafts: Sequence[Sequence[int]]
    ) -> StepTensors:
        """Tensors of a step; `drafts[i]` are the guesses that entry i verifies."""
        rows = _Rows(lookback=[[] for _ in range(self._columns)])
        for index, (entry, guesses) in enumerate(zip(entries, drafts, strict=True)):
            self._append(rows, index, entry, guesses)
        total = len(rows.token_ids)
        is_whole = len(rows.decoder) == total
        batch = ForwardBatch(
            token_ids=self._tensor(rows.token_ids),
            positions=self._tensor(rows.positions),
            sequence_index=self._tensor(rows.sequence_index),
            query_start=tuple(rows.starts),
            context_length=tuple(entry.first for entry in entries),
            lookback_ids=self._tensor(rows.lookback).view(self._columns, total).T.contiguous(),
            slots=self._slots([entry.sequence for entry in entries]),
            block_table=self._block_table([entry.sequence for entry in entries]),
            decoder_start=tuple(entry.sequence.decoder_start for entry in entries),
            decoder_rows=None if is_whole else self._tensor(rows.decoder),
            logit_rows=self._tensor(rows.logit),
        )
        return StepTensors(batch, tuple(rows.spans), len(rows.decoder))

    def draft(self, sequences: Sequence[TokenSequence], draft_length: int) -> DraftBatch:
        """Tensors for guessing what follows the newest token of each sequence."""
        return DraftBatch(
            anchor_ids=self._tensor([s.tokens[-1] for s in sequences]),
            anchor_positions=self._tensor([len(s.tokens) - 1 for s in sequences]),
            slots=self._slots(sequences),
            decoder_start=self._tensor([s.decoder_start for s in sequences]),
            draft_length=draft_length,
        )

    def _append(
        self, rows: _Rows, index: int, entry: ScheduledSequence, guesses: Sequence[int]
    ) -> None:
        first, count = entry.first, entry.known + len(guesses)
        start = rows.starts[-1]
        shown = _with_lookback(entry, guesses, self._columns)
        rows.token_ids += shown[self._columns :]
        for column, values in enumerate(rows.lookback, 1):
            values += shown[self._columns - column : self._columns - column + count]
        rows.positions += range(first, first + count)
        rows.sequence_index += [index] * count
        skipped = entry.sequence.decoder_start - first if self._is_compact else 0
        rows.decoder += range(start + min(max(skipped, 0), count), start + count)
        rows.starts.append(start + count)
        rows.spans.append(_append_logit_rows(rows.logit, start, entry, count))

    def _block_table(self, sequences: Sequence[TokenSequence]) -> Tensor:
        width = max(len(s.blocks) for s in sequences)
        table = [[b.id for b in s.blocks] + [0] * (width - len(s.blocks)) for s in sequences]
        return self._tensor(table)

    def _slots(self, sequences: Sequence[TokenSequence]) -> Tensor:
        slots = [s.slot for s in sequences]
        return self._tensor([slot.id for slot in slots if slot is not None])

    def _tensor(self, values: object) -> Tensor:
        return torch.from_numpy(np.array(values, dtype=np.int64)).to(self._device)


def _with_lookback(entry: ScheduledSequence, guesses: Sequence[int], columns: int) -> list[int]:
    """Tokens of the rows, preceded by the `columns` tokens before them; -1 before the start."""
    before = entry.first - columns
    tokens = entry.sequence.tokens[max(before, 0) : entry.first + entry.known]
    return [-1] * max(-before, 0) + tokens + list(guesses)


def _append_logit_rows(
    logit: list[int], start: int, entry: ScheduledSequence, count: int
) -> LogitSpan:
    sequence = entry.sequence
    begin = len(logit)
    prompt_rows = 0
    if sequence.request.sampling.prompt_logprobs:
        prompt_rows = max(0, min(entry.known, sequence.prompt_tokens - 1 - entry.first))
        logit += range(start, start + prompt_rows)
    choice_rows = 0
    if entry.samples:
        choice_rows = count - entry.known + 1
        logit += range(start + entry.known - 1, start + count)
    return LogitSpan(begin, prompt_rows, choice_rows)
