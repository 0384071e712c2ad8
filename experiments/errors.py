"""What can go wrong when asking a question of an engine.

WorkbenchError
  ExperimentError
    PlanError             the plan: an unknown axis, no point left, a contradiction
    WorkloadError         the workload: an unreadable file, a prompt that does not fit
    TargetError           the engine under test failed (exit code 1)
      TargetCapacityError it had no room: larger loads on it will not fit either
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


class TelemetryError(ExperimentError):
    """Devices that cannot be read; a trial goes on without them and keeps the reason."""

    exit_code = 1
