"""A number with its samples, or the reason why it cannot be had."""

from __future__ import annotations

import math
from dataclasses import replace

from experiments.records import MetricValue

NO_SUCCESS = "no request succeeded"
NO_END_INSIDE = "every request that succeeded ended outside the window"


def missing(reason: str, n: int | None = 0) -> MetricValue:
    """A number that cannot be had."""
    return MetricValue(value=None, n=n, reason=reason)


def finite(value: MetricValue) -> MetricValue:
    """The same, or missing where it is no finite number; bounds that are none are left out."""
    if value.value is not None and not math.isfinite(value.value):
        return missing(f"came out as {value.value}", value.n)
    if all(bound is None or math.isfinite(bound) for bound in (value.low, value.high)):
        return value
    return replace(value, low=None, high=None)


def ratio(over: float, under: float, n: int | None, reason: str) -> MetricValue:
    """over / under; missing for `reason` where there is nothing to divide by."""
    return MetricValue(value=over / under, n=n) if under > 0 else missing(reason, n)
