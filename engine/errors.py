"""What can go wrong when serving tokens.

WorkbenchError
  EngineError
    ConfigError           a field of EngineConfig or a DEEPINFER_* variable
    CheckpointError       a checkpoint directory that cannot be loaded as it is
    RequestError          a request that can never be served as asked
      PromptTooLongError  longer than the context, or than the cache can ever hold
    CapacityError         correct input, but no room (exit code 1)
    ReplicaError          a data-parallel replica died or stopped answering (exit code 1)
"""

from __future__ import annotations

from kernels.errors import WorkbenchError


class EngineError(WorkbenchError):
    """Anything the engine refuses or fails at."""


class ConfigError(EngineError):
    """A configuration field whose value is unknown, out of range or contradicts another."""


class CheckpointError(EngineError):
    """A checkpoint that lacks a tensor, has one too many, or one of the wrong shape or type."""


class RequestError(EngineError):
    """A request that can never be served as asked."""


class PromptTooLongError(RequestError):
    """A prompt that leaves no room for one generated token in the context or the cache."""


class CapacityError(EngineError):
    """Correct input that this device has no room for."""

    exit_code = 1


class ReplicaError(EngineError):
    """A data-parallel replica that died or stopped answering."""

    exit_code = 1
