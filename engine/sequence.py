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
    from engine.request import Request, TokenLogprob
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


@dataclass(eq=False, kw_only=True, slots=True)
class Sequence:
    """One token stream. The scheduler alone changes it; the runner reads it.

    `tokens` is the prompt and every token that has settled. Steps in flight add to it: at
    least one token each that samples, at most `unsettled` together. `computed` counts cache
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
    stops: frozenset[int] | None = None  # token ids that end it, once somebody asked
    state: SequenceState = SequenceState.WAITING
    computed: int = 0
    unsettled: int = 0
    steps_in_flight: int = 0
    sampling_steps_in_flight: int = 0
    last_step: int | None = None  # the newest step it takes part in
    slot: Handle | None = None
    blocks: list[Handle] = field(default_factory=list["Handle"])
    host_copy: HostCopy | None = None
    first_scheduled_ns: int | None = None
    preemptions: int = 0
    prompt_logprobs: dict[int, TokenLogprob] = field(default_factory=dict[int, "TokenLogprob"])
    prompt_tokens: int = field(init=False)  # length of the original prompt

    def __post_init__(self) -> None:
        self.prompt_tokens = len(self.request.prompt_token_ids)

    @property
    def output_tokens(self) -> int:
        """Tokens delivered so far."""
        return len(self.tokens) - self.prompt_tokens

    @property
    def most_tokens(self) -> int:
        """Its length once the steps in flight have settled, if every draft stands."""
        return len(self.tokens) + self.unsettled

    @property
    def is_decoding(self) -> bool:
        """Has chosen a token, and only its newest token is not in the caches."""
        newest = len(self.tokens) + self.unsettled - 1
        return self.computed == newest >= self.prompt_tokens

    @property
    def will_end(self) -> bool:
        """Whether the steps in flight fill it, whatever they find."""
        return len(self.tokens) + self.sampling_steps_in_flight >= self.last_length

    @property
    def can_draft(self) -> int:
        """Most drafts worth verifying: one token of every step is the target's own."""
        return self.last_length - len(self.tokens) - self.unsettled - 1

    def stopping_ids(self, eos_token_id: int) -> frozenset[int]:
        """Token ids that end this sequence."""
        if self.stops is None:
            sampling = self.request.sampling
            eos = () if sampling.ignore_eos else (eos_token_id,)
            self.stops = frozenset((*sampling.stop_token_ids, *eos))
        return self.stops

    def until_stop(
        self, token_ids: tuple[int, ...], eos_token_id: int
    ) -> tuple[tuple[int, ...], FinishReason | None]:
        """The new tokens up to one that stops the sequence, and why it ends with them, if so."""
        stops = self.stops if self.stops is not None else self.stopping_ids(eos_token_id)
        if stops or self.stop_strings is not None:
            free = max(0, self.request.sampling.min_tokens - self.output_tokens)
            for index, token_id in enumerate(token_ids):
                ends_text = self.stop_strings is not None and self.stop_strings.ends_with(token_id)
                if index >= free and (token_id in stops or ends_text):
                    return token_ids[: index + 1], FinishReason.STOP
        is_full = len(self.tokens) + len(token_ids) >= self.last_length
        return token_ids, FinishReason.LENGTH if is_full else None

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
