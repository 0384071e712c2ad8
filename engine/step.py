"""What one step runs, and what it found: the words between scheduler and runner."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from engine.request import TokenLogprob
    from engine.sequence import Sequence


@dataclass(frozen=True, kw_only=True)
class SchedulerLimits:
    """What one replica has room for."""

    max_num_seqs: int
    max_num_batched_tokens: int
    block_tokens: int
    blocks: int
    max_model_len: int
    draft_length: int
    eos_token_id: int

    @property
    def longest_sequence(self) -> int:
        """Prompt and output together: bounded by the context and by the whole cache."""
        return min(self.max_model_len, self.blocks * self.block_tokens)


@dataclass(frozen=True, slots=True)
class ScheduledSequence:
    """The tokens that one sequence runs: `known` of its own, then `drafts` guesses."""

    sequence: Sequence
    first: int  # position of the first one
    known: int
    drafts: int

    @property
    def samples(self) -> bool:
        """Whether the step reaches the newest token, so that it yields at least one more."""
        return self.first + self.known == len(self.sequence.tokens)


@dataclass(frozen=True, slots=True)
class ScheduledBatch:
    """One step. Empty only when nothing is unfinished."""

    sequences: tuple[ScheduledSequence, ...]

    @property
    def tokens(self) -> int:
        """Rows that the step runs."""
        return sum(s.known + s.drafts for s in self.sequences)


@dataclass(kw_only=True)
class StepPlan:
    """A step while it is planned; rows by sequence, in order of placing."""

    budget: int  # rows that the step can still take
    known: dict[Sequence, int] = field(default_factory=dict["Sequence", int])
    drafts: dict[Sequence, int] = field(default_factory=dict["Sequence", int])
    is_short_of_blocks: bool = False

    def place(self, sequence: Sequence, known: int) -> None:
        """Have a sequence run its next `known` tokens."""
        self.known[sequence] = known
        self.drafts[sequence] = 0
        self.budget -= known

    def draft(self, sequence: Sequence) -> None:
        """Have a placed sequence verify one more draft."""
        self.drafts[sequence] += 1
        self.budget -= 1

    def batch(self) -> ScheduledBatch:
        """The plan, finished."""
        return ScheduledBatch(
            tuple(
                ScheduledSequence(sequence, sequence.computed, known, self.drafts[sequence])
                for sequence, known in self.known.items()
            )
        )


@dataclass(frozen=True, slots=True)
class SequenceResult:
    """What the runner found for one scheduled sequence."""

    token_ids: tuple[int, ...] = ()  # accepted drafts, then the target's own token
    accepted: int = 0
    logprobs: tuple[TokenLogprob, ...] = ()  # one per token id, if asked for
    prompt_logprobs: dict[int, TokenLogprob] = field(default_factory=dict[int, "TokenLogprob"])
    error: str | None = None
