"""How a plan says that requests are sent: in flight, at a rate, as a trace did, in rounds.

`slots` of a load is how many requests it keeps in flight at most; None: as many as come.
"""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from experiments.border import Border

MOST_SLOTS = 100_000
Slots = Annotated[int, Field(ge=1, le=MOST_SLOTS)]
Rate = Annotated[float, Field(ge=1e-6, le=1e6)]  # requests a second


class _OpenLoad(Border):
    """Sent at absolute instants fixed beforehand, whatever the engine does.

    `max_concurrency` None sends every request at its instant. A number makes those above it wait
    in the client's queue: latencies from schedule count that wait, those from sending do not.
    """

    max_concurrency: Slots | None = None

    @property
    def slots(self) -> int | None:
        """An open loop has none of its own."""
        return None


class ClosedLoad(Border):
    """A fixed number of requests in flight: each one that ends is replaced at once."""

    kind: Literal["closed"] = "closed"
    batch_size: Slots = 1

    @property
    def slots(self) -> int:
        """The requests kept in flight."""
        return self.batch_size


class RateLoad(_OpenLoad):
    """`rate` requests a second: evenly apart, or as a Poisson process draws them."""

    kind: Literal["poisson", "constant"]
    rate: Rate


class GammaLoad(_OpenLoad):
    """Gaps of a gamma distribution: `shape` 1 is Poisson, below it bursts, above it evens out.

    The rate is the same whatever the shape, and is kept in every window of `measured_s`.
    """

    kind: Literal["gamma"]
    rate: Rate
    shape: float = Field(default=1.0, ge=1e-3, le=1e6)


class RampLoad(_OpenLoad):
    """A Poisson process whose rate grows evenly from `rate_from` to `rate` over `ramp_s`."""

    kind: Literal["ramp"]
    rate: Rate
    rate_from: float = Field(default=0.0, ge=0, le=1e6)
    ramp_s: float = Field(ge=1e-3, le=1e6)


class TraceLoad(_OpenLoad):
    """Requests sent when the trace says; `time_scale` 2 plays it twice as fast.

    A row with a session and no instant of its own is a later turn: it repeats what was said
    before it and is sent `delay` after the turn before ended.
    """

    kind: Literal["trace"]
    time_scale: float = Field(default=1.0, ge=1e-6, le=1e6)


class SessionsLoad(Border):
    """Conversations: each turn says again all that was said before, the answers as they came.

    `concurrency` conversations at once, each replaced when it is over; or new ones at `rate` a
    second, as a Poisson process draws them. A turn is due `think_s` after the answer before it,
    or after a pause drawn from an exponential distribution with that mean. None leaves turns
    and pauses to the sessions of a trace.
    """

    kind: Literal["sessions"]
    concurrency: Slots | None = None
    rate: Rate | None = None
    turns: int | None = Field(default=None, ge=1, le=10_000)
    think_s: float | None = Field(default=None, ge=0, le=1e6)
    think: Literal["constant", "exponential"] = "constant"

    @model_validator(mode="after")
    def _one_pace(self) -> Self:
        if (self.concurrency is None) == (self.rate is None):
            raise ValueError("needs exactly one of concurrency and rate")
        return self

    @property
    def slots(self) -> int | None:
        """A conversation has one request in flight, or none while its user thinks."""
        return self.concurrency


class BatchLoad(Border):
    """`batch_size` requests at once; the next round when all have ended.

    What is measured of a round is its full-batch window: from the first token of the last
    request to have one, to the end of the first request to end. In it every request decodes and
    none waits, so throughput is that of a full batch. Rounds are pooled.
    """

    kind: Literal["batch"]
    batch_size: Slots = 1

    @property
    def slots(self) -> int:
        """The requests of a round."""
        return self.batch_size


class DecodeBatchLoad(Border):
    """Decoding at a fixed batch: `batch` on prompts and outputs of one length each.

    `decode_step_s` is the mean gap between two chunks of a request inside the full-batch
    windows: the time of a step, where a step gives every request one chunk. Context grows from
    `prompt_tokens` to `prompt_tokens + output_tokens` while it is measured.
    """

    kind: Literal["decode_batch"]
    batch_size: Slots = 1
    prompt_tokens: int = Field(default=64, ge=1)
    output_tokens: int = Field(default=64, ge=3)

    @property
    def slots(self) -> int:
        """The requests of a round."""
        return self.batch_size


class PrefillStepLoad(Border):
    """A prefill of `token_budget` tokens: as many whole prompts of `prompt_tokens` as fill it.

    A round sends them at once and asks one token of each; the next begins when all have ended.
    `prefill_tok_s` is prompt tokens over the time from the first sending to the last first
    token. All prompts fit one step of the engine, or the plan is refused; whether the engine
    takes them in one step is its own choice. No prompt begins like another, so nothing is cached.
    """

    kind: Literal["prefill_step"]
    token_budget: int = Field(ge=1)
    prompt_tokens: int = Field(ge=1)

    @model_validator(mode="after")
    def _holds_one(self) -> Self:
        if self.prompt_tokens > self.token_budget:
            raise ValueError(
                f"token_budget {self.token_budget} holds no prompt of {self.prompt_tokens} tokens"
            )
        if self.slots > MOST_SLOTS:
            raise ValueError(f"token_budget asks for {self.slots} prompts, more than {MOST_SLOTS}")
        return self

    @property
    def slots(self) -> int:
        """Prompts of a round."""
        return self.token_budget // self.prompt_tokens


ROUND_LOADS = (BatchLoad, DecodeBatchLoad, PrefillStepLoad)
"""Loads whose requests are sent in rounds."""
PoissonLoad = RateLoad | GammaLoad | RampLoad

Load = Annotated[
    ClosedLoad
    | RateLoad
    | GammaLoad
    | RampLoad
    | TraceLoad
    | SessionsLoad
    | BatchLoad
    | DecodeBatchLoad
    | PrefillStepLoad,
    Field(discriminator="kind"),
]
