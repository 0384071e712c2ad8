"""The state of one request inside the engine."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

from engine.errors import PromptTooLongError
from engine.request import FinishReason, RequestOutput

if TYPE_CHECKING:
    from concurrent.futures import Future

    from engine.cache.blocks import Handle
    from engine.request import Request, RequestId, TokenLogprob
    from engine.stop_strings import StopStrings


class SequenceState(StrEnum):
    """Where a sequence is. A preempted one waits again."""

    PREPARING = "preparing"  # something must be ready first: an image, a grammar
    WAITING = "waiting"
    RUNNING = "running"
    FINISHED = "finished"


@dataclass(frozen=True, slots=True)
class HostCopy:
    """Where the caches of a sequence lie in host memory."""

    blocks: tuple[Handle, ...]
    slot: Handle
    step: int  # the one that writes it


@dataclass(eq=False, kw_only=True, slots=True)
class Sequence:
    """One token stream. The scheduler alone changes it; the runner reads it.

    `tokens` is the prompt and every token that has settled. Steps in flight add to it: its
    length will be `least_tokens` if none of their drafts stands, `most_tokens` if all do, so a
    step that settles changes these only by what became of its drafts. `computed` counts cache
    rows as if every draft in flight stood; a decoding sequence has computed = most_tokens - 1.
    """

    request: Request
    seed: int
    tokens: list[int]
    last_length: int  # the length at which it ends for want of room
    decoder_start: int  # first position that runs the decoder half, fixed by the prompt
    arrived_ns: int
    order: tuple[int, int] = (0, 0)  # smaller is served first
    deadline_ns: int | None = None
    preparing: Future[object] | None = None
    stop_strings: StopStrings | None = None
    state: SequenceState = SequenceState.WAITING
    computed: int = 0
    last_step: int | None = None  # the newest step that runs rows of it
    slot: Handle | None = None
    blocks: list[Handle] = field(default_factory=list["Handle"])
    host_copy: HostCopy | None = None
    first_scheduled_ns: int | None = None
    preemptions: int = 0
    prompt_logprobs: dict[int, TokenLogprob] = field(default_factory=dict[int, "TokenLogprob"])
    stops: frozenset[int] = frozenset()  # token ids that end it
    request_id: RequestId = field(init=False)
    prompt_tokens: int = field(init=False)  # length of the original prompt
    least_tokens: int = field(init=False)
    most_tokens: int = field(init=False)

    def __post_init__(self) -> None:
        self.request_id = self.request.request_id
        self.prompt_tokens = len(self.request.prompt_token_ids)
        self.least_tokens = self.most_tokens = len(self.tokens)

    @property
    def output_tokens(self) -> int:
        """Tokens delivered so far."""
        return len(self.tokens) - self.prompt_tokens

    @property
    def is_decoding(self) -> bool:
        """Has chosen a token, and only its newest token is not in the caches."""
        return self.computed == self.most_tokens - 1 >= self.prompt_tokens

    @property
    def will_end(self) -> bool:
        """Whether the steps in flight fill it, whatever they find."""
        return self.least_tokens >= self.last_length

    @property
    def can_draft(self) -> int:
        """Most drafts worth verifying: one token of every step is the target's own."""
        return self.last_length - self.most_tokens - 1

    def until_stop(self, token_ids: tuple[int, ...]) -> tuple[tuple[int, ...], FinishReason | None]:
        """The new tokens up to one that stops the sequence, and why it ends with them, if so."""
        free = max(0, self.request.sampling.min_tokens - self.output_tokens)
        for index, token_id in enumerate(token_ids):
            ends_text = self.stop_strings is not None and self.stop_strings.ends_with(token_id)
            if index >= free and (token_id in self.stops or ends_text):
                return token_ids[: index + 1], FinishReason.STOP
        return token_ids, None

    def last_output(self, time_ns: int, reason: FinishReason, error: str | None) -> RequestOutput:
        """What its client hears last when it ends without a token."""
        return RequestOutput(
            request_id=self.request.request_id,
            token_ids=(),
            time_ns=time_ns,
            finish_reason=reason,
            error=error,
            arrived_ns=self.arrived_ns,
            first_scheduled_ns=self.first_scheduled_ns,
            preemptions=self.preemptions,
        )

    def whole_prompt_logprobs(self) -> tuple[TokenLogprob | None, ...] | None:
        """One entry for each prompt token, None for the first; None if not asked for."""
        if not self.request.sampling.prompt_logprobs:
            return None
        found = self.prompt_logprobs
        return (None, *(found[position] for position in range(1, self.prompt_tokens)))


def those_decoding(running: list[Sequence]) -> list[Sequence]:
    """Those that are decoding, and will not end by what is in flight already."""
    return [
        s
        for s in running
        if s.computed == s.most_tokens - 1 >= s.prompt_tokens and s.least_tokens < s.last_length
    ]


def check_prompt_fits(prompt_tokens: int, longest_sequence: int, *, where: str) -> None:
    """PromptTooLongError unless the prompt leaves room for one generated token."""
    if prompt_tokens >= longest_sequence:
        raise PromptTooLongError(
            f"the prompt has {prompt_tokens} tokens, the context holds {longest_sequence} with "
            "its output.",
            where=where,
            remedy=f"Shorten it to at most {longest_sequence - 1} tokens, or raise max_model_len "
            "or cache_tokens.",
        )
