"""What makes a trial valid: conditions with their values, so that a page can say why not."""

from __future__ import annotations

from dataclasses import dataclass

from experiments.gate_limits import GateLimits
from experiments.measurement import Measurement
from experiments.records import Gate, MetricValue, RequestRecord

LITTLE_NEEDS_TURNS = 5
"""Completions a slot from which Little's law is judged: below, the edges are the window."""


@dataclass(frozen=True, kw_only=True)
class Conditions:
    """What the gates of one trial are held against."""

    limits: GateLimits
    needed_requests: int  # completed ones that a point rests on at least
    batch_size: int | None  # None: open loop
    shares_prefixes: bool  # the workload repeats prefixes on purpose


def evaluate(
    measurement: Measurement, metrics: dict[str, MetricValue], conditions: Conditions
) -> tuple[Gate, ...]:
    """Every gate that is on, in the order in which a failure is named."""
    limits = conditions.limits
    gates = (
        _accounting(measurement),
        _at_most("error_rate", metrics["error_rate"], limits.error_rate, "requests failed"),
        _enough(metrics, conditions.needed_requests),
        _output_length(measurement, limits.output_length_mismatch),
        None
        if conditions.shares_prefixes
        else _at_most(
            "cache_hit",
            metrics["cache_hit_rate"],
            limits.cache_hit_rate,
            "prompt tokens came from the prefix cache",
        ),
        _littles_law(metrics, conditions),
        _steady(measurement, limits.half_drift),
    )
    return tuple(gate for gate in gates if gate is not None)


def first_failure(gates: tuple[Gate, ...]) -> str | None:
    """The sentence of the first gate that did not pass."""
    return next((f"{gate.name}: {gate.message}" for gate in gates if not gate.passed), None)


def lost(request: RequestRecord) -> bool:
    """Sent and never heard of again: no end, no error, no cancellation."""
    return request.finish_reason is None and request.error is None


def _accounting(measurement: Measurement) -> Gate:
    count = sum(map(lost, measurement.issued))
    return Gate(
        name="accounting",
        passed=count == 0,
        value=float(count),
        limit=0.0,
        message=f"{count} of {len(measurement.issued)} requests never ended",
    )


def _at_most(name: str, metric: MetricValue, limit: float | None, what: str) -> Gate | None:
    if limit is None:
        return None
    value = metric.value
    if value is None:
        return _not_judged(name, None, limit, str(metric.reason))
    return Gate(
        name=name,
        passed=value <= limit,
        value=value,
        limit=limit,
        message=f"{value:.1%} of {what} (limit {limit:.1%})",
    )


def _not_judged(name: str, value: float | None, limit: float, reason: str) -> Gate:
    return Gate(
        name=name,
        passed=True,
        judged=False,
        value=value,
        limit=limit,
        message=f"not judged: {reason}",
    )


def _enough(metrics: dict[str, MetricValue], needed: int) -> Gate:
    completed = metrics["completed_requests"].value or 0.0
    few = completed < needed
    remedy = "; raise protocol.limit_s, measured_s or max_requests" if few else ""
    return Gate(
        name="enough_requests",
        passed=not few,
        value=completed,
        limit=float(needed),
        message=f"{completed:.0f} requests completed, {needed} needed{remedy}",
    )


def _output_length(measurement: Measurement, limit: float | None) -> Gate | None:
    promised = [r for r in measurement.succeeded if r.exact_output_length]
    if limit is None or not promised:
        return None
    unlike = sum(r.output_tokens != r.requested_output_tokens for r in promised)
    return Gate(
        name="output_length",
        passed=unlike / len(promised) <= limit,
        value=unlike / len(promised),
        limit=limit,
        message=f"{unlike} of {len(promised)} outputs have another length than asked for",
    )


def _littles_law(metrics: dict[str, MetricValue], conditions: Conditions) -> Gate | None:
    """Requests that straddle the edges blur the ratio by about one of each slot's, which adds."""
    tolerance, ratio = conditions.limits.littles_law, metrics["littles_law"].value
    if tolerance is None:
        return None
    needed = LITTLE_NEEDS_TURNS * (conditions.batch_size or 1)
    completed = metrics["completed_requests"].value or 0.0
    if ratio is None or completed < needed:
        few = f"{completed:.0f} requests completed, {needed} needed"
        return _not_judged("littles_law", ratio, tolerance, few)
    limit = tolerance + (metrics["concurrency_mean"].value or 0.0) / completed
    return Gate(
        name="littles_law",
        passed=abs(ratio - 1) <= limit,
        value=ratio,
        limit=limit,
        message=f"rate x E2E / concurrency is {ratio:.3f}, not 1 +- {limit:.2f}",
    )


def _steady(measurement: Measurement, limit: float | None) -> Gate | None:
    """Throughput of the second half of the window against the first."""
    if limit is None:
        return None
    start, end = measurement.window_s
    middle = (start + end) / 2
    chunks = [c for r in measurement.issued for c in r.chunks if measurement.inside(c.time_s)]
    first = sum(c.tokens for c in chunks if c.time_s <= middle)
    second = sum(c.tokens for c in chunks if c.time_s > middle)
    if not first + second:
        return None
    drift = abs(second - first) / ((first + second) / 2)
    return Gate(
        name="steady_state",
        passed=drift <= limit,
        value=drift,
        limit=limit,
        message=f"the halves of the window differ by {drift:.0%} in output tokens",
    )
