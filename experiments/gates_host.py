"""Gates on the devices and the host beside the load. Samples of the window alone count."""

from __future__ import annotations

from collections import Counter

import numpy as np

from experiments.gate_parts import Evidence, not_judged, verdict
from experiments.records import Gate, TelemetrySample
from experiments.throttling import harmful

NOT_TOLD = "no device told"


def throttling(evidence: Evidence) -> Gate | None:
    """Samples in which a device was held back by heat or supply."""
    limit = evidence.limits.throttled
    told = [s for s in _inside(evidence) if s.throttle_reasons is not None]
    if limit is None:
        return None
    if not told:
        return not_judged("throttling", None, limit, NOT_TOLD)
    reasons = Counter(name for s in told for name in harmful(s.throttle_reasons or ()))
    held = sum(bool(harmful(s.throttle_reasons or ())) for s in told)
    named = f": {', '.join(name for name, _ in reasons.most_common())}" if reasons else ""
    return verdict(
        "throttling",
        passed=held / len(told) <= limit,
        value=held / len(told),
        limit=limit,
        message=f"a device was held back in {held} of {len(told)} samples{named}",
    )


def foreign_processes(evidence: Evidence) -> Gate | None:
    """Most processes of others seen on a device at once."""
    limit = evidence.limits.foreign_processes
    told = [s.foreign_processes for s in _inside(evidence) if s.foreign_processes is not None]
    if limit is None:
        return None
    if not told:
        return not_judged("foreign_processes", None, float(limit), NOT_TOLD)
    most = max(told)
    return verdict(
        "foreign_processes",
        passed=most <= limit,
        value=float(most),
        limit=float(limit),
        message=f"{most} processes of others were on a device",
    )


def clocks(evidence: Evidence) -> Gate | None:
    """How far a device's clock moved: its 5 % to 95 % range as a share of its median."""
    limit = evidence.limits.clock_spread
    if limit is None:
        return None
    spreads = {index: _spread(clock) for index, clock in _clocks(evidence).items()}
    if not spreads:
        return not_judged("clocks", None, limit, NOT_TOLD)
    index, worst = max(spreads.items(), key=lambda item: item[1])
    return verdict(
        "clocks",
        passed=worst <= limit,
        value=worst,
        limit=limit,
        message=f"the clock of device {index} moved by {worst:.1%} of its median",
    )


def environment(evidence: Evidence) -> Gate | None:
    """Packages, driver, limits and settings are those with which the run began."""
    limit, changes = evidence.limits.environment_changes, evidence.changes
    if limit is None or changes is None:
        return None
    said = "; ".join(changes) if changes else "nothing that is watched changed"
    return verdict(
        "environment",
        passed=len(changes) <= limit,
        value=float(len(changes)),
        limit=float(limit),
        message=said,
    )


def _clocks(evidence: Evidence) -> dict[int, list[float]]:
    found: dict[int, list[float]] = {}
    for sample in _inside(evidence):
        if sample.device_index is not None and sample.device_clock_mhz is not None:
            found.setdefault(sample.device_index, []).append(sample.device_clock_mhz)
    return {index: clock for index, clock in found.items() if max(clock) > 0}


def _spread(clock: list[float]) -> float:
    low, middle, high = np.quantile(clock, [0.05, 0.5, 0.95])
    return float((high - low) / middle) if middle > 0 else 1.0


def _inside(evidence: Evidence) -> list[TelemetrySample]:
    measurement = evidence.measurement
    return [s for s in measurement.telemetry if measurement.inside(s.time_s)]
