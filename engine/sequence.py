"""The state of one request inside the engine."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from engine.cache.blocks import Handle
    from engine.request import Request, TokenLogprob


class SequenceState(StrEnum):
    """Where a sequence is. A preempted one waits again."""

    WAITING = "waiting"
    RUNNING = "running"
    FINISHED = "finished"


@dataclass(eq=False, kw_only=True)
class Sequence:
    """One token stream. The scheduler alone changes it; the runner reads it.

    `tokens` is the prompt and every token delivered so far. Cache rows of positions
    0..computed-1 are valid; a decoding sequence has computed = len(tokens) - 1.
    """

    request: Request
    seed: int
    tokens: list[int]
    last_length: int  # the length at which it ends for want of room
    decoder_start: int  # first position that runs the decoder half, fixed by the prompt
    arrived_ns: int
    state: SequenceState = SequenceState.WAITING
    computed: int = 0
    slot: Handle | None = None
    blocks: list[Handle] = field(default_factory=list["Handle"])
    first_scheduled_ns: int | None = None
    preemptions: int = 0
    prompt_logprobs: dict[int, TokenLogprob] = field(default_factory=dict[int, "TokenLogprob"])

    @property
    def prompt_tokens(self) -> int:
        """Length of the original prompt."""
        return len(self.request.prompt_token_ids)

    @property
    def output_tokens(self) -> int:
        """Tokens delivered so far."""
        return len(self.tokens) - self.prompt_tokens

    @property
    def is_decoding(self) -> bool:
        """Has delivered a token, and only its newest token is not in the caches."""
        return self.computed == len(self.tokens) - 1 and self.output_tokens > 0

    @property
    def can_draft(self) -> int:
        """Most drafts worth verifying: one token of every step is the target's own."""
        return self.last_length - len(self.tokens) - 1
