"""Stored trials as the outcomes that decisions of a sweep rest on."""

from __future__ import annotations

from collections.abc import Mapping

from experiments.outcome import Outcome
from experiments.records import FailureKind, TrialState


def outcome_in(item: Mapping[str, object]) -> Outcome:
    """The outcome of a stored trial, as `outcome_of` gives it for the record."""
    metrics, failure = item.get("metrics"), item.get("failure")
    values = {
        str(name): float(found["value"])
        for name, found in (metrics.items() if isinstance(metrics, Mapping) else ())
        if isinstance(found.get("value"), int | float)
    }
    reason = item.get("reason")
    return Outcome(
        state=TrialState(str(item["state"])),
        values=values,
        reason=None if reason is None else str(reason),
        failure=None if failure is None else FailureKind(str(failure)),
        attempts=int(str(item.get("attempts", 1))),
        duration_s=float(str(item.get("duration_s") or 0.0)),
    )
