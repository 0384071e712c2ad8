"""What one step runs, and what it found: the words between scheduler and runner."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from engine.tuples import new_tuple

if TYPE_CHECKING:
    from collections.abc import Mapping

    from engine.cache.blocks import Handle
    from engine.choices import AdmissionMode
    from engine.request import TokenLogprob
    from engine.sequence import HostCopy, Sequence


@dataclass(frozen=True, kw_only=True)
class SchedulerLimits:
    """What one replica has room for."""

    max_num_seqs: int
    max_num_batched_tokens: int
    prefill_chunk_tokens: int
    block_tokens: int
    blocks: int
    host_blocks: int  # for the caches of preempted sequences; 0 recomputes them
    max_model_len: int
    draft_length: int
    eos_token_id: int
    admission: AdmissionMode

    @property
    def longest_sequence(self) -> int:
        """Prompt and output together: bounded by the context and by the whole cache."""
        return min(self.max_model_len, self.blocks * self.block_tokens)

    def blocks_for(self, tokens: int) -> int:
        """Blocks that hold the cache rows of `tokens`."""
        return -(-tokens // self.block_tokens)


class ScheduledSequence(NamedTuple):
    """The tokens that one sequence runs: `known` of its own, then `drafts` guesses.

    Fixed when the step is planned: later plans and settlements change the sequence, not this.
    An entry that is ahead continues a step in flight: the device alone knows its newest token,
    and how far before `first` it stands for drafts that were rejected.
    """

    sequence: Sequence
    first: int  # position of the first one, at most
    known: int
    drafts: int
    settled: int  # tokens that had settled when it was planned
    samples: bool  # the step reaches the newest token, so that it yields at least one more
    is_ahead: bool
    slot: Handle
    holding: list[Handle]  # the list of the sequence: it grows or is replaced, but never cut
    block_count: int

    @property
    def blocks(self) -> list[Handle]:
        """Those that the step may touch."""
        return self.holding[: self.block_count]

    @property
    def rows(self) -> int:
        """Rows that it takes of the step."""
        return self.known + self.drafts


@dataclass(frozen=True, slots=True)
class CacheMove:
    """Caches of one sequence, copied between the device and host memory."""

    sequence: Sequence
    blocks: tuple[Handle, ...]
    slot: Handle
    host: HostCopy


SequenceFields: TypeAlias = (
    "tuple[Sequence, int, int, int, int, bool, bool, Handle, list[Handle], int]"
)
"""Those of a `ScheduledSequence`, as a plain tuple, which takes a third of the time to make."""


class SequenceColumns(NamedTuple):
    """The fields of all scheduled sequences of a step, a column each.

    A loop over columns takes a third of the time of one over entries and their fields.
    """

    sequence: tuple[Sequence, ...] = ()
    first: tuple[int, ...] = ()
    known: tuple[int, ...] = ()
    drafts: tuple[int, ...] = ()
    settled: tuple[int, ...] = ()
    samples: tuple[bool, ...] = ()
    is_ahead: tuple[bool, ...] = ()
    slot: tuple[Handle, ...] = ()
    holding: tuple[list[Handle], ...] = ()
    block_count: tuple[int, ...] = ()


@dataclass(frozen=True)
class ScheduledBatch:
    """One step: first what leaves the device, then what comes back, then the rows."""

    number: int
    fields: tuple[SequenceFields, ...]  # of the sequences that it runs
    tokens: int = 0  # rows that the step runs
    swaps_out: tuple[CacheMove, ...] = ()
    swaps_in: tuple[CacheMove, ...] = ()
    decoding: int = 0  # how many sequences, the first ones, run no rows of a prompt

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing for the device to do."""
        return not (self.fields or self.swaps_out)

    @cached_property
    def columns(self) -> SequenceColumns:
        """What it runs, for loops over hundreds."""
        return SequenceColumns(*zip(*self.fields, strict=True))

    @cached_property
    def sequences(self) -> tuple[ScheduledSequence, ...]:
        """What it runs, one by one."""
        return tuple(new_tuple(ScheduledSequence, fields) for fields in self.fields)


@dataclass(kw_only=True)
class StepPlan:
    """A step while it is planned; rows by sequence, in order of placing.

    Those that decode are placed first, and they alone are dealt drafts: to all of them or none.
    """

    number: int
    budget: int  # rows that the step can still take
    known: dict[Sequence, int] = field(default_factory=dict["Sequence", int])
    drafts: dict[Sequence, int] = field(default_factory=dict["Sequence", int])
    decoding: int = 0
    swaps_out: list[CacheMove] = field(default_factory=list["CacheMove"])
    swaps_in: list[CacheMove] = field(default_factory=list["CacheMove"])
    short: Sequence | None = None  # the first in order that found too few blocks

    def lacks_blocks(self, sequence: Sequence) -> None:
        """Note that a sequence must wait for blocks; those after it may take none meanwhile."""
        if self.short is None or sequence.order < self.short.order:
            self.short = sequence

    def may_take_blocks(self, sequence: Sequence) -> bool:
        """Whether no one before it waits for blocks."""
        return self.short is None or sequence.order < self.short.order

    def place(self, sequence: Sequence, known: int) -> None:
        """Have a sequence run its next `known` tokens."""
        self.known[sequence] = known
        self.budget -= known

    def place_newest(self, sequences: list[Sequence]) -> None:
        """Have sequences, the first to be placed, run their newest token."""
        self.known = dict.fromkeys(sequences, 1)
        self.budget -= len(sequences)

    def draft(self, sequence: Sequence) -> None:
        """Have a placed sequence verify one more draft."""
        self.drafts[sequence] += 1
        self.budget -= 1

    def draft_all(self, drafts: dict[Sequence, int]) -> None:
        """Have all that are placed verify so many drafts."""
        self.drafts = drafts
        self.budget -= sum(drafts.values())


NO_LOGPROBS: Mapping[int, TokenLogprob] = MappingProxyType({})


class StepResults(NamedTuple):
    """What the runner found, a column each, with a value for every sequence of the step."""

    token_ids: list[tuple[int, ...]]  # accepted drafts, then the target's own token
    accepted: list[int]
    logprobs: list[tuple[TokenLogprob, ...]]  # one per token id, if asked for
    prompt_logprobs: list[Mapping[int, TokenLogprob]]
    errors: list[str | None]

    @classmethod
    def of_tokens(cls, token_ids: list[tuple[int, ...]], accepted: list[int]) -> StepResults:
        """Of sequences that asked for no more, and did not fail."""
        count = len(token_ids)
        return cls(token_ids, accepted, [()] * count, [NO_LOGPROBS] * count, [None] * count)
