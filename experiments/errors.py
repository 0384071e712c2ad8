"""What can go wrong when asking a question of an engine.

WorkbenchError
  ExperimentError
    PlanError             the plan: an unknown axis, no point left, a contradiction
    WorkloadError         the workload: an unreadable file, a prompt that does not fit
    TargetError           the engine under test failed (exit code 1)
      TargetCapacityError it had no room: larger loads on it will not fit either
      TargetRefusedError  it refuses what it was asked, and would again
      TargetDiedError     its process ended: nothing can be asked of it any more
    SkipRequestedError    somebody asked to give the trial up; it is recorded as skipped
    MissingPackageError   an optional package that was asked for (exit code 1)
    MissingProgramError   a program that the plan starts, or what it loads (exit code 1)
    TelemetryError        devices that cannot be read: no driver, or words that nobody knows
"""

from __future__ import annotations

from kernels.errors import WorkbenchError


class ExperimentError(WorkbenchError):
    """Anything an experiment refuses or fails at."""


class PlanError(ExperimentError):
    """A plan that cannot be run as written."""


class WorkloadError(ExperimentError):
    """A workload that cannot be read or does not fit the model."""


class TargetError(ExperimentError):
    """The engine under test failed; the trial is recorded as failed."""

    exit_code = 1


class TargetCapacityError(TargetError):
    """The engine under test had no room; a larger load on the same configuration has none."""


class TargetRefusedError(TargetError):
    """The engine under test refuses what it was asked: the trial is not tried again."""


class TargetDiedError(TargetError):
    """The process of the engine under test ended while it was needed."""


class SkipRequestedError(ExperimentError):
    """Somebody asked to give up the trial in flight; the sweep goes on without it."""


class MissingPackageError(ExperimentError):
    """An optional package that a plan or a command asks for is not installed."""

    exit_code = 1


class MissingProgramError(ExperimentError):
    """A program that the plan starts is not on this host."""

    exit_code = 1


class TelemetryError(ExperimentError):
    """Devices that cannot be read; a trial goes on without them and keeps the reason."""

    exit_code = 1
