"""What a gate is held against, and the few shapes that a verdict has."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from experiments.gate_limits import GateLimits
from experiments.measurement import Measurement
from experiments.protocol import Protocol
from experiments.records import AxisValue, Calibration, Gate, MetricValue, RequestRecord


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """Everything that the gates of one trial may look at."""

    measurement: Measurement
    metrics: Mapping[str, MetricValue]
    limits: GateLimits
    protocol: Protocol
    renders_chat: bool = False  # a server lays prompts into its own chat form, and counts that too
    batch_size: int | None = None  # requests in flight at most; None: open loop
    workload: Mapping[str, AxisValue] = field(default_factory=dict[str, AxisValue])
    """As in Point.workload: the workload's fields and facts, and those of the load."""
    warm_up: tuple[RequestRecord, ...] = ()
    warm_up_rounds: tuple[float, ...] = ()  # output tokens a second of each round
    calibration: Calibration | None = None
    changes: tuple[str, ...] | None = None
    """What changed around the run since it began, in words; None: nobody watched."""

    def number(self, metric: str) -> float | None:
        """The value of a metric, or None."""
        found = self.metrics.get(metric)
        return None if found is None else found.value


def verdict(name: str, *, passed: bool, value: float | None, limit: float, message: str) -> Gate:
    """A gate that was judged."""
    return Gate(name=name, passed=passed, value=value, limit=limit, message=message)


def not_judged(name: str, value: float | None, limit: float, reason: str) -> Gate:
    """A gate on which the trial cannot say; it neither failed nor passed."""
    return Gate(
        name=name,
        passed=True,
        judged=False,
        value=value,
        limit=limit,
        message=f"not judged: {reason}",
    )


def at_most(name: str, metric: MetricValue | None, limit: float | None, what: str) -> Gate | None:
    """A share that may reach `limit`; None where the gate is off."""
    if limit is None:
        return None
    if metric is None or metric.value is None:
        why = metric.reason if metric is not None else "it was not measured"
        return not_judged(name, None, limit, str(why))
    value = metric.value
    return verdict(
        name,
        passed=value <= limit,
        value=value,
        limit=limit,
        message=f"{value:.1%} of {what} (limit {limit:.1%})",
    )
