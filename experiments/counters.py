"""Counters of an engine around a phase: how much each grew, or why that is not known."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from experiments.errors import TargetDiedError, TargetError
from experiments.targets.base import Target


@dataclass(frozen=True, kw_only=True)
class Counters:
    """Values by name; empty with the reason where they could not be read."""

    values: dict[str, float]
    reason: str | None = None

    @classmethod
    def of(cls, target: Target, *, remote: bool) -> Self:
        """As they stand now. That a remote server does not tell them ends no measurement.

        An engine of ours that cannot tell them has failed: TargetError; so has a server that
        we started and that ended.
        """
        try:
            return cls(values=target.stats())
        except TargetError as error:
            if not remote or isinstance(error, TargetDiedError):
                raise
            return cls(values={}, reason=f"the server's counters could not be read: {error}")

    def until(self, later: Counters) -> Counters:
        """What they grew by; with the reason where either side was not read."""
        reason = self.reason or later.reason
        if reason is not None:
            return Counters(values={}, reason=reason)
        grown = {name: value - self.values.get(name, 0.0) for name, value in later.values.items()}
        return Counters(values=grown)
