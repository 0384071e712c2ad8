"""The gate on energy: two ways to measure it must agree."""

from __future__ import annotations

from collections.abc import Mapping

from experiments.gate_limits import GateLimits
from experiments.records import Gate, MetricValue


def energy_agreement(metrics: Mapping[str, MetricValue], limits: GateLimits) -> Gate | None:
    """Joules by the counters against joules by the integral of power; None: switched off.

    Not judged where either is missing, as on a host without a counter, nor where the step of the
    counters and the jumps of the power leave too much open in so short a window.
    """
    limit, found = limits.energy_agreement, metrics.get("energy_agreement")
    if limit is None:
        return None
    if found is None or found.value is None:
        why = found.reason if found is not None else "no energy was measured"
        return _gate(None, limit, f"not judged: {why}", judged=False)
    said = f"integral of power / energy counters is {found.value:.3f}, not 1 +- {limit:.2f}"
    if abs(found.value - 1) <= limit:
        return _gate(found.value, limit, said)
    if _could_be(1.0, found, limit):
        return _gate(
            found.value, limit, f"not judged: {said}, but the window is short", judged=False
        )
    return _gate(found.value, limit, said, passed=False)


def _could_be(wanted: float, found: MetricValue, limit: float) -> bool:
    """True when the bounds of the ratio reach into what is allowed."""
    if found.low is None or found.high is None:
        return False
    return found.low <= wanted + limit and found.high >= wanted - limit


def _gate(
    value: float | None, limit: float, message: str, *, passed: bool = True, judged: bool = True
) -> Gate:
    return Gate(
        name="energy_agreement",
        passed=passed,
        judged=judged,
        value=value,
        limit=limit,
        message=message,
    )
