"""A number with its samples, or the reason why it cannot be had."""

from __future__ import annotations

import math

from experiments.records import MetricValue

NO_SUCCESS = "no request succeeded"
NO_END_INSIDE = "every request that succeeded ended outside the window"


def missing(reason: str, n: int = 0) -> MetricValue:
    """A number that cannot be had."""
    return MetricValue(value=None, n=n, reason=reason)


def finite(value: MetricValue) -> MetricValue:
    """The same, or missing where it is no finite number."""
    if value.value is None or math.isfinite(value.value):
        return value
    return missing(f"came out as {value.value}", value.n)


def ratio(over: float, under: float, n: int, reason: str) -> MetricValue:
    """over / under; missing for `reason` where there is nothing to divide by."""
    return MetricValue(value=over / under, n=n) if under > 0 else missing(reason, n)
