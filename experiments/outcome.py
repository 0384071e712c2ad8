"""What later decisions of a sweep need to know of a trial, whether measured now or stored."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from experiments.records import FailureKind, TrialId, TrialRecord, TrialState


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How a trial ended. The same record gives the same outcome before and after storage."""

    state: TrialState
    values: Mapping[str, float]  # its metrics, without those that are missing
    reason: str | None = None
    failure: FailureKind | None = None
    attempts: int = 1
    duration_s: float = 0.0

    @property
    def sound(self) -> bool:
        """Whether its numbers may be used."""
        return self.state is TrialState.OK


Told = Mapping[TrialId, Outcome]
"""What is known of the trials that need not be measured again."""


def outcome_of(record: TrialRecord) -> Outcome:
    """The outcome of a record in hand."""
    found = {name: metric.value for name, metric in record.metrics.items()}
    return Outcome(
        state=record.state,
        values={k: v for k, v in found.items() if v is not None and math.isfinite(v)},
        reason=record.reason,
        failure=record.failure,
        attempts=record.attempts,
        duration_s=record.duration_s,
    )
