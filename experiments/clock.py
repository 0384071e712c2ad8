"""Time as an argument: monotonic for measuring, wall time only to date a record."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    """What an experiment may ask about time."""

    def now_ns(self) -> int:
        """Monotonic nanoseconds, comparable between the processes of one host."""
        ...

    def sleep(self, seconds: float) -> None:
        """Let that much time pass."""
        ...

    def utc(self) -> datetime:
        """Wall time with its zone; never subtracted from another."""
        ...


class SystemClock:
    """The time of this host."""

    def now_ns(self) -> int:
        """`time.perf_counter_ns()`, the clock that the engine stamps its outputs with."""
        return time.perf_counter_ns()

    def sleep(self, seconds: float) -> None:
        """Sleep; a negative duration is none."""
        time.sleep(max(0.0, seconds))

    def utc(self) -> datetime:
        """Now, in UTC."""
        return datetime.now(UTC)


class VirtualClock:
    """A clock that moves only when told to: simulated targets and tests run on it."""

    def __init__(self, start_ns: int = 0) -> None:
        self._now_ns = start_ns

    def now_ns(self) -> int:
        """The instant reached so far."""
        return self._now_ns

    def sleep(self, seconds: float) -> None:
        """Move on; a negative duration is none."""
        self._now_ns += max(0, round(seconds * 1e9))

    def utc(self) -> datetime:
        """The epoch plus the virtual time, so that records of a simulation are reproducible."""
        return datetime.fromtimestamp(self._now_ns / 1e9, tz=UTC)
