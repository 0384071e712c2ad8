"""What a failed trial was, and whether it is tried again on a fresh engine."""

from __future__ import annotations

from experiments.errors import TargetCapacityError, TargetError, TargetRefusedError
from experiments.records import FailureKind

ATTEMPTS = {
    FailureKind.CAPACITY: 1,  # the same load finds no more room the second time
    FailureKind.START_CAPACITY: 1,
    FailureKind.START: 1,  # a start costs minutes and fails for a standing reason
    FailureKind.REFUSED: 1,
    FailureKind.CRASH: 2,  # a dead engine or a lost connection may have been chance
}
"""How often a trial is tried in all, by what ended it."""


def failure_kind(error: Exception, *, starting: bool) -> FailureKind:
    """What a failure means for the trials to come."""
    if isinstance(error, TargetCapacityError):
        return FailureKind.START_CAPACITY if starting else FailureKind.CAPACITY
    if isinstance(error, TargetRefusedError) or not isinstance(error, TargetError):
        return FailureKind.START if starting else FailureKind.REFUSED
    return FailureKind.START if starting else FailureKind.CRASH
