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
    """How a trial ended. OK and INVALID have metrics; FAILED and SKIPPED have a reason."""

    OK = "ok"
    INVALID = "invalid"  # measured, but a gate did not pass
    FAILED = "failed"
    SKIPPED = "skipped"


@dataclass(frozen=True, kw_only=True)
class Chunk:
    """Tokens that reached the client together."""

    time_s: float  # since the trial's clock origin
    tokens: int


@dataclass(frozen=True, kw_only=True)
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


@dataclass(frozen=True, kw_only=True)
class MetricValue:
    """One number with its sample size and, where it can be had, a 95 % interval."""

    value: float | None
    n: int
    low: float | None = None
    high: float | None = None
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
    cpu_percent: float | None = None
    memory_bytes: int | None = None
    device_index: int | None = None
    device_power_w: float | None = None
    device_energy_j: float | None = None
    device_memory_bytes: int | None = None
    device_clock_mhz: float | None = None


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
