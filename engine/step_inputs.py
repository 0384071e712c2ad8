"""From a plan to plain numbers: what each step costs the host, so few and flat arrays.

A step's tokens lie in one row of tokens: for each sequence the `ngram - 1` before its rows,
then those of its rows. What only the device knows has its place left open there.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch

from engine.choices import ReplayMode
from engine.sampling import SampledRows, collect_rules
from engine.staging import StagingRing
from engine.tuples import new_tuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray
    from torch import Tensor

    from engine.request_table import RequestTable
    from engine.step import ScheduledSequence

    Ints = NDArray[np.int64]

_UNKNOWN = -1  # a token that the device fills in, or one before the start of a sequence


class LogitSpan(NamedTuple):
    """Logit rows of one scheduled sequence: first those of its prompt, then those that choose."""

    start: int
    prompt_rows: int  # row i holds the logits after position `first + i`
    choice_rows: int
    choice_start: int  # its first row among those that choose
    logprob_start: int  # its first row among those whose log-probabilities are wanted


@dataclass(frozen=True, kw_only=True, slots=True)
class StepInputs:
    """A step on its way to the device. Tensors are overwritten two uploads later."""

    entries: tuple[ScheduledSequence, ...]
    spans: tuple[LogitSpan, ...]
    ints: dict[str, Tensor]
    rules: dict[str, Tensor]  # those of `engine.sampling.collect_rules`
    query_start: tuple[int, ...]
    has_prompt_rows: bool  # some logit rows choose nothing
    longest_draft: int
    widest_table: int
    top_logprobs: int
    decoder_rows: int


class StepInputsBuilder:
    """Builds the inputs of the steps of one model on one device, in the order of their launch."""

    def __init__(
        self, *, ngram: int, replay_mode: ReplayMode, eos_token_id: int, device: str
    ) -> None:
        self.columns = ngram - 1  # tokens before its rows that each sequence brings
        self._is_compact = replay_mode is ReplayMode.COMPACT
        self._eos_token_id = eos_token_id
        self._ints = StagingRing(device, torch.int64)
        self._floats = StagingRing(device, torch.float64)

    def build(self, entries: tuple[ScheduledSequence, ...], table: RequestTable) -> StepInputs:
        """Lay out the rows of a step and upload its numbers; `table` says what it lacks."""
        rows = _Rows.of(entries, self.columns)
        logits = _LogitRows.of(entries, rows)
        rules = collect_rules(logits.groups, self._eos_token_id)
        kept = self._decoder_rows(entries, rows)
        values: dict[str, Ints | list[int]] = {
            **rows.values(self.columns),
            **logits.values(),
            **_verification(entries, rows, logits),
            **table.news(entries),
            "decoder_rows": [] if len(kept) == len(rows.owner) else kept,
        }
        ints = self._ints.upload({**values, **rules.ints})
        return StepInputs(
            entries=entries,
            spans=tuple(logits.spans),
            ints=ints,
            rules={name: ints[name] for name in rules.ints} | self._floats.upload(rules.floats),
            query_start=tuple(rows.start.tolist()),
            has_prompt_rows=len(logits.rows) > len(logits.choices),
            longest_draft=int(rows.drafts.max()),
            widest_table=max(entry.block_count for entry in entries),
            top_logprobs=logits.top,
            decoder_rows=len(kept),
        )

    def _decoder_rows(self, entries: Sequence[ScheduledSequence], rows: _Rows) -> Ints:
        if not self._is_compact:
            return np.arange(len(rows.owner))
        starts = np.array([entry.sequence.decoder_start for entry in entries])
        return np.flatnonzero(rows.first[rows.owner] + rows.offset >= starts[rows.owner])


@dataclass(frozen=True, slots=True)
class _Rows:
    """The rows of a step: R sequences, T rows."""

    entries: Sequence[ScheduledSequence]
    first: Ints  # [R]
    known: Ints  # [R]
    drafts: Ints  # [R]
    start: Ints  # [R + 1] first row of each
    owner: Ints  # [T]
    offset: Ints  # [T] within its sequence
    newest_at: Ints  # [R] where the newest known token lies in the row of tokens

    @classmethod
    def of(cls, entries: Sequence[ScheduledSequence], columns: int) -> _Rows:
        known = np.array([entry.known for entry in entries])
        drafts = np.array([entry.drafts for entry in entries])
        start = np.concatenate(([0], np.cumsum(known + drafts)))
        owner = np.repeat(np.arange(len(entries)), known + drafts)
        return cls(
            entries=entries,
            first=np.array([entry.first for entry in entries]),
            known=known,
            drafts=drafts,
            start=start,
            owner=owner,
            offset=np.arange(start[-1]) - start[owner],
            newest_at=start[:-1] + known - 1 + (np.arange(len(entries)) + 1) * columns,
        )

    def values(self, columns: int) -> dict[str, Ints | list[int]]:
        ahead = [i for i, entry in enumerate(self.entries) if entry.is_ahead]
        drafting = np.flatnonzero(self.drafts)
        each = np.arange(len(self.owner))
        guesses = np.flatnonzero(self.offset >= self.known[self.owner])
        turn = np.cumsum(self.drafts > 0) - 1  # which of the drafting ones
        number = self.offset[guesses] - self.known[self.owner[guesses]]
        longest = int(self.drafts.max())
        return {
            "tokens": [t for entry in self.entries for t in tokens_of(entry, columns)],
            "token_at": each + (self.owner + 1) * columns,
            "owner": self.owner,
            "offset": self.offset,
            "first": self.first,
            "known": self.known,
            "slots": [entry.slot.id for entry in self.entries],
            "decoder_start": [entry.sequence.decoder_start for entry in self.entries],
            "newest_at": self.newest_at,
            "ahead": ahead,
            "drafting": drafting,
            "guess_at": guesses + (self.owner[guesses] + 1) * columns,
            "guess_from": turn[self.owner[guesses]] * longest + number,
        }


def tokens_of(entry: ScheduledSequence, columns: int) -> list[int]:
    """Tokens of the rows, preceded by the `columns` before them."""
    guesses = [_UNKNOWN] * entry.drafts
    if entry.is_ahead:
        return [_UNKNOWN] * (columns + entry.known) + guesses
    before = entry.first - columns
    tokens = entry.sequence.tokens[max(before, 0) : entry.first + entry.known]
    return [_UNKNOWN] * max(-before, 0) + tokens + guesses


@dataclass(slots=True)
class _LogitRows:
    """Rows whose logits are wanted, in order, while they are gathered."""

    rows: list[int] = field(default_factory=list)
    choices: list[int] = field(default_factory=list)  # those of `rows` that choose
    spans: list[LogitSpan] = field(default_factory=list)
    groups: list[SampledRows] = field(default_factory=list)
    logprob_rows: list[int] = field(default_factory=list)
    logprob_choices: list[int] = field(default_factory=list)  # whose token it is, else _UNKNOWN
    logprob_tokens: list[int] = field(default_factory=list)
    top: int = 0

    @classmethod
    def of(cls, entries: Sequence[ScheduledSequence], rows: _Rows) -> _LogitRows:
        found = cls()
        for entry, start in zip(entries, rows.start.tolist(), strict=False):
            found._append(entry, start)
        return found

    def values(self) -> dict[str, Ints | list[int]]:
        return {
            "logit_rows": self.rows,
            "choices": self.choices,
            "logprob_rows": self.logprob_rows,
            "logprob_choices": self.logprob_choices,
            "logprob_tokens": self.logprob_tokens,
        }

    def _append(self, entry: ScheduledSequence, start: int) -> None:
        sequence, sampling = entry.sequence, entry.sequence.request.sampling
        prompt_rows = 0
        if sampling.prompt_logprobs:
            prompt_rows = max(0, min(entry.known, sequence.prompt_tokens - 1 - entry.first))
        choice_rows = entry.drafts + 1 if entry.samples else 0
        begin = len(self.rows)
        places = (begin, prompt_rows, choice_rows, len(self.choices), len(self.logprob_rows))
        span = new_tuple(LogitSpan, places)
        self.spans.append(span)
        if prompt_rows:
            self.rows += range(start, start + prompt_rows)
        if choice_rows:
            newest, first_choice = start + entry.known - 1, begin + prompt_rows
            self.rows += range(newest, newest + choice_rows)
            self.choices += range(first_choice, first_choice + choice_rows)
            self.groups.append(_sampled(entry, choice_rows))
        if prompt_rows or (sampling.logprobs is not None and choice_rows):
            self._append_logprobs(entry, span)

    def _append_logprobs(self, entry: ScheduledSequence, span: LogitSpan) -> None:
        sampling = entry.sequence.request.sampling
        first = entry.first + 1
        self.logprob_rows += range(span.start, span.start + span.prompt_rows)
        self.logprob_tokens += entry.sequence.tokens[first : first + span.prompt_rows]
        self.logprob_choices += [_UNKNOWN] * span.prompt_rows
        if sampling.logprobs is not None:
            chosen = span.start + span.prompt_rows
            self.logprob_rows += range(chosen, chosen + span.choice_rows)
            self.logprob_tokens += [_UNKNOWN] * span.choice_rows
            self.logprob_choices += range(span.choice_start, span.choice_start + span.choice_rows)
        self.top = max(self.top, sampling.logprobs or 0)


def _sampled(entry: ScheduledSequence, choice_rows: int) -> SampledRows:
    sequence, prompt_tokens = entry.sequence, entry.sequence.prompt_tokens
    least_output = entry.settled - prompt_tokens
    most_output = entry.first + entry.known - prompt_tokens
    params, seed = sequence.request.sampling, sequence.seed
    return new_tuple(
        SampledRows, (params, seed, choice_rows, prompt_tokens, least_output, most_output)
    )


def _verification(
    entries: Sequence[ScheduledSequence], rows: _Rows, logits: _LogitRows
) -> dict[str, Ints | list[int]]:
    """For the sequences that sample, [S, D] or [S, D + 1]: choices, and guesses to hold them to.

    Those with less than D drafts repeat their last token.
    """
    samplers = np.array([i for i, entry in enumerate(entries) if entry.samples], dtype=np.int64)
    drafts = rows.drafts[samplers]
    starts = np.array([logits.spans[i].choice_start for i in samplers], dtype=np.int64)
    column = np.arange(int(rows.drafts.max()) + 1)
    last = np.minimum(column, drafts[:, None])
    guess = np.minimum(column[:-1], drafts[:, None] - 1) + 1
    return {
        "samplers": samplers,
        "choice_of": starts[:, None] + last,
        "guess_of": rows.newest_at[samplers][:, None] + guess,
        "is_guess": (column[:-1] < drafts[:, None]).astype(np.int64),
    }
