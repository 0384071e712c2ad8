"""What a client asks, what comes back, and the state of a sequence in between."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple, NewType

RequestId = NewType("RequestId", str)

PRIORITY_HEAD_START_S = 10
MOST_PRIORITY = 1000  # and, negated, the least


class FinishReason(StrEnum):
    """Why a sequence ended."""

    STOP = "stop"  # the end-of-sequence token, one of stop_token_ids or of stop_strings
    LENGTH = "length"  # max_tokens or the end of the context
    ABORT = "abort"  # the client gave up
    TIMEOUT = "timeout"  # `Request.timeout_s` ran out
    ERROR = "error"  # the engine failed; `RequestOutput.error` says how


@dataclass(frozen=True, kw_only=True)
class SamplingParams:
    """How the tokens of one request are chosen. Validated by `engine.sampling_checks.validate`.

    temperature below 1e-5 is argmax with the lowest id on ties. `seq_seed` keys the noise of every
    absolute position, so a seeded text does not depend on batch, chunking or drafts; None
    draws a seed once, when the request is added. `logprobs` is how many of the most likely
    tokens to report beside each chosen one (None: no log-probabilities; 0: the chosen only),
    before temperature and top-p/top-k. The token in which a stop string ends is the last one.
    `golden_token_ids` forces the output (teacher forcing).
    `so_args` is DeepInfer's structured-output request: accepted as a name, refused by value
    until grammars land.
    """

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int | None = None
    max_tokens: int = 16
    min_tokens: int = 0
    stop_token_ids: tuple[int, ...] = ()
    stop_strings: tuple[str, ...] = ()
    ignore_eos: bool = False
    seq_seed: int | None = None
    logprobs: int | None = None
    prompt_logprobs: bool = False
    golden_token_ids: tuple[int, ...] | None = None
    so_args: dict[str, str] | None = None


@dataclass(frozen=True, kw_only=True)
class Request:
    """One ask: a prompt of token ids (int, no bool, no numpy) and how to continue it.

    A level of `priority` is worth as much as having arrived PRIORITY_HEAD_START_S earlier, so
    that no request waits for ever behind more urgent ones. `timeout_s` counts from arrival.
    """

    request_id: RequestId
    prompt_token_ids: tuple[int, ...]
    sampling: SamplingParams = field(default_factory=SamplingParams)
    priority: int = 0
    timeout_s: float | None = None


@dataclass(frozen=True, kw_only=True)
class TokenLogprob:
    """Log-probability of one token under the model, and of the most likely ones there."""

    token_id: int
    logprob: float
    top: tuple[tuple[int, float], ...] = ()  # (token id, logprob), best first


class RequestOutput(NamedTuple):
    """What one engine step adds to one request: 0 or more tokens, delivered together.

    Times are `time.perf_counter_ns()` of the host (CLOCK_MONOTONIC: comparable between the
    processes of one host). `proposed` counts the draft tokens that this step verified for this
    request, `accepted` those of them in `token_ids`: what a stop token cuts off is neither
    accepted nor bonus. Tokens a verify step emits = accepted + bonus, and bonus is 0 or 1.
    `first_scheduled_ns` and `cached_tokens` are set from the first output on.
    """

    request_id: RequestId
    token_ids: tuple[int, ...]
    time_ns: int
    finish_reason: FinishReason | None = None
    error: str | None = None
    logprobs: tuple[TokenLogprob, ...] = ()
    prompt_logprobs: tuple[TokenLogprob | None, ...] | None = None
    proposed: int = 0
    accepted: int = 0
    verify_steps: int = 0  # 1 when the step verified a draft, however short
    arrived_ns: int | None = None
    first_scheduled_ns: int | None = None
    preemptions: int = 0
    cached_tokens: int = 0

    @property
    def bonus(self) -> int:
        """The target's own token after the accepted drafts of a verify step, if it was emitted."""
        return len(self.token_ids) - self.accepted if self.verify_steps else 0

    @property
    def finished(self) -> bool:
        """True on the last output of the request."""
        return self.finish_reason is not None
