"""What a trial leaves behind: plain facts, made by `experiments`, stored by `workbench`.

A missing number is None with its reason beside it, never 0.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import NewType

TrialId = NewType("TrialId", str)
AxisValue = str | int | float | bool | None


class TrialState(StrEnum):
    """How a trial ended. OK and INVALID have metrics; the others have a reason."""

    OK = "ok"
    INVALID = "invalid"  # measured, but a gate did not pass
    FAILED = "failed"
    SKIPPED = "skipped"
    CANCELLED = "cancelled"  # given up while it ran; a resume measures it again


class FailureKind(StrEnum):
    """What ended a trial that has no metrics: what may be tried again, and what is known by it."""

    CAPACITY = "capacity"  # no room for this load: none for a larger one either
    START_CAPACITY = "start_capacity"  # no room for the engine itself, whatever the load
    START = "start"  # the engine did not start
    CRASH = "crash"  # the engine died, hung up or was lost
    REFUSED = "refused"  # it will refuse the same again


class ChunkKind(StrEnum):
    """What the tokens of a chunk are."""

    CONTENT = "content"
    REASONING = "reasoning"
    TOOL = "tool"


class TokenSource(StrEnum):
    """Where the token counts of a request's chunks come from, best first."""

    ENGINE = "engine"  # token ids from the engine itself
    USAGE = "usage"  # growth of the usage that each chunk carries
    TOKEN_IDS = "token_ids"
    LOGPROBS = "logprobs"
    RETOKENISED = "retokenised"  # the joined text so far, tokenised by the client
    ASSUMED = "assumed"  # one a chunk: nothing better was known


class EvalVerdict(StrEnum):
    """What became of one answer to an eval. Only the first three are in an accuracy."""

    CORRECT = "correct"
    WRONG = "wrong"
    NO_ANSWER = "no_answer"  # the output holds none that could be extracted
    UNJUDGED = "unjudged"  # nobody could, or may, judge it
    UNANSWERED = "unanswered"  # the request failed


@dataclass(frozen=True, kw_only=True, slots=True)
class Chunk:
    """Tokens that reached the client together."""

    time_s: float  # since the trial's clock origin
    tokens: int
    kind: ChunkKind = ChunkKind.CONTENT


@dataclass(frozen=True, kw_only=True, slots=True)
class RequestRecord:
    """One request as the client saw it. Seconds since the trial's clock origin (monotonic)."""

    request_id: str
    index: int  # position in the workload
    intended_s: float  # when the schedule wanted it sent; = sent_s in a closed loop
    dispatched_s: float | None  # left the client's queue
    sent_s: float | None
    chunks: tuple[Chunk, ...]  # token-bearing only
    ended_s: float | None  # the last token-bearing chunk
    finish_reason: str | None
    error: str | None  # None = success
    prompt_tokens: int
    output_tokens: int
    requested_output_tokens: int
    exact_output_length: bool = False
    """The length contract: True when output_tokens must equal requested_output_tokens."""
    cached_tokens: int = 0
    proposed_tokens: int = 0
    accepted_tokens: int = 0
    verify_steps: int = 0
    emitted_tokens: int = 0  # that verify steps delivered: accepted ones and their bonus
    accepted_by_position: tuple[int, ...] = ()  # how often draft position i was accepted
    proposed_by_position: tuple[int, ...] = ()
    reached_by_position: tuple[int, ...] = ()  # proposed, and every one before it accepted
    preemptions: int = 0
    replica: int | None = None
    warm_up: bool = False  # not part of any metric
    text_hash: str | None = None  # of the output ids, to compare arms
    prompt_hash: str | None = None  # of the prompt ids: equal prompts, equal hash
    output_token_ids: tuple[int, ...] | None = None  # None: not kept, or the target gives none
    output_text: str | None = None  # of a text stream that an eval asked for; never stored
    headers_s: float | None = None  # the first byte of an HTTP answer
    closed_s: float | None = None  # the stream was over; None where it is the last chunk
    token_source: TokenSource = TokenSource.ENGINE
    error_kind: str | None = None  # class of the error: "timeout", "http_500", "capacity", ...
    server_prompt_tokens: int | None = None  # as the server counted; None: it did not say
    server_output_tokens: int | None = None
    retokenised_tokens: int | None = None  # the output text under the client's tokenizer
    session: int | None = None  # a conversation; its turns follow each other
    turn: int | None = None
    worker: int = 0  # the client process that sent it
    resent: bool | None = None
    """Written twice, since its first connection was closed before any answer; None: not HTTP."""


@dataclass(frozen=True, kw_only=True)
class MetricValue:
    """One number with its sample size and, where it can be had, a 95 % interval."""

    value: float | None
    n: int | None  # samples; None: a number of another tool that does not tell how many
    low: float | None = None
    high: float | None = None
    reason: str | None = None  # why value is None, or why several repeats give no interval
    basis: str | None = None  # how another tool came by it; None: as the catalogue defines it


@dataclass(frozen=True, kw_only=True)
class ForeignNumber:
    """One cell of another tool's result file, as that tool calls it."""

    key: str
    value: float | str | None
    unit: str  # of the value here, which may be converted; "": not told
    meaning: str  # what the tool computes
    metric: str | None = None  # of the catalogue, that took it; None: there is none like it
    reason: str | None = None  # why value is None


@dataclass(frozen=True, kw_only=True)
class Gate:
    """One condition that a valid trial meets.

    Where the trial holds too little to say, `judged` is False: it neither failed nor passed,
    and `passed` is True only so that the trial is not refused for it.
    """

    name: str
    passed: bool
    value: float | None
    limit: float | None
    message: str
    judged: bool = True


@dataclass(frozen=True, kw_only=True)
class Point:
    """One cell of a sweep: the engine configuration and the load put on it."""

    axes: dict[str, AxisValue]  # what the plan varies, by axis name
    engine: dict[str, AxisValue]  # the configuration in force: no `auto` is left in it
    workload: dict[str, AxisValue]  # the whole workload, axes included
    checkpoint: str | None = None  # content identity of the model; None: not known


@dataclass(frozen=True, kw_only=True)
class TelemetrySample:
    """One reading of host and devices. None = this host cannot tell."""

    time_s: float
    cpu_percent: float | None = None  # of all processors
    own_cpu_percent: float | None = None  # of it, by this process and those it started
    memory_bytes: int | None = None
    device_index: int | None = None
    device_power_w: float | None = None  # as near to the instant as the device tells
    device_power_average_w: float | None = None  # over the device's own last moment, about 1 s
    device_energy_j: float | None = None  # a counter; only its growth means anything
    device_memory_bytes: int | None = None
    device_clock_mhz: float | None = None  # of the cores that compute
    device_memory_clock_mhz: float | None = None
    device_temperature_c: float | None = None
    device_utilisation_percent: float | None = None
    device_power_limit_w: float | None = None
    throttle_reasons: tuple[str, ...] | None = None  # in force at the instant; () = none
    foreign_processes: int | None = None  # on the device, and not of this experiment
    client_cpu_percent: float | None = None  # of one core: what generating the load cost
    host_energy_j: float | None = None  # a counter of the processor packages
    telemetry_reason: str | None = None  # why this row lacks power or energy


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """What the load generator does by itself: the same load on a server that answers at once."""

    requests: int
    achieved_request_s: float
    overhead_p50_s: float  # E2E of a request that costs nothing
    overhead_p99_s: float
    lag_p99_s: float | None  # sent - intended; None in a closed loop
    client_cpu_percent: float | None
    processes: int = 1
    due_requests: int | None = None  # that the schedule wanted sent; None: it has none, or is held
    sent_requests: int | None = None  # in the same time


@dataclass(frozen=True, kw_only=True)
class EvalAnswer:
    """One output of an eval, and how it was judged."""

    question_id: str
    sample: int  # of that question, from 0
    request_id: str
    kind: str  # of experiments.evals.questions.AnswerKind
    expected: str
    output_text: str | None  # without thoughts; None: there is none
    extracted: str | None
    rule: str | None  # by which the answer was found
    verdict: EvalVerdict  # the one that counts
    reason: str | None  # of it, where there is something to say
    judge: str  # whose verdict counts: "rules", or "llm:" and the model
    output_tokens: int
    truncated: bool  # it ended at the most tokens allowed
    rule_verdict: EvalVerdict | None = None  # of each judge; None: it gave none
    llm_verdict: EvalVerdict | None = None


@dataclass(frozen=True, kw_only=True)
class TrialRecord:
    """One point measured once: the unit of storage and of resume."""

    trial_id: TrialId  # content hash of the point, the repeat and the plan's protocol
    point: Point
    repeat: int
    state: TrialState
    reason: str | None  # why it is not OK
    started_utc: str  # ISO 8601
    duration_s: float
    window_s: tuple[float, float] | None  # measurement window on the trial's clock
    metrics: dict[str, MetricValue] = field(default_factory=dict[str, MetricValue])
    gates: tuple[Gate, ...] = ()
    requests: tuple[RequestRecord, ...] = ()
    telemetry: tuple[TelemetrySample, ...] = ()
    labels: tuple[str, ...] = ()  # "indicative", "random weights: acceptance is meaningless", ...
    engine_log: str = ""
    calibration: Calibration | None = None  # None: not asked for, or no client of its own
    idle_power_w: float | None = None  # of all devices, the engine up and nothing in flight
    attempts: int = 1  # how often it was tried; more than 1 after a retry
    outputs: tuple[str, ...] = ()
    """Fingerprints of greedy outputs, `<asked>-<came>-<output tokens>`, the first two in hex: two
    trials that share the first part asked the same, and must share the rest where their engines
    must agree."""
    failure: FailureKind | None = None  # of a FAILED trial that measured nothing
    evals: tuple[EvalAnswer, ...] = ()  # () where no question was asked
    foreign: tuple[ForeignNumber, ...] = ()  # of an imported result, all that its file tells
