"""When requests are sent: as slots fall free (closed), or at instants fixed beforehand (open)."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from experiments.errors import WorkloadError
from experiments.identity import generator
from experiments.load_specs import ClosedLoad, Load, RateLoad, TraceLoad
from experiments.workload import Workload


class Arrival(Protocol):
    """The schedule of one phase."""

    scheduled: bool
    """True where `due_s` is a promise of its own, so that lateness counts."""

    def due_s(self, index: int, in_flight: int) -> float | None:
        """When request `index` shall be sent; None: not before another one ends.

        Seconds since the phase began. An instant in the past means: at once, and late.
        """
        ...

    def due_before(self, elapsed_s: float) -> int | None:
        """How many requests the schedule wanted sent by then; None where it promises nothing."""
        ...


class ClosedArrival:
    """`batch_size` in flight: due at once while a slot is free."""

    scheduled = False

    def __init__(self, batch_size: int) -> None:
        self._batch_size = batch_size

    def due_s(self, index: int, in_flight: int) -> float | None:
        """At once while a slot is free."""
        del index
        return 0.0 if in_flight < self._batch_size else None

    def due_before(self, elapsed_s: float) -> int | None:
        """There is no schedule."""
        del elapsed_s
        return None


class TimedArrival:
    """Absolute instants drawn beforehand, so that lateness of one does not move the next."""

    scheduled = True

    def __init__(self, times_s: np.ndarray) -> None:
        self._times_s = times_s

    def due_s(self, index: int, in_flight: int) -> float | None:
        """Instant `index`; None once the schedule is over."""
        del in_flight
        return float(self._times_s[index]) if index < len(self._times_s) else None

    def due_before(self, elapsed_s: float) -> int | None:
        """Of the instants drawn, those up to then."""
        return int(np.searchsorted(self._times_s, elapsed_s, side="right"))


def arrival(load: Load, workload: Workload, *, count: int, salt: str) -> Arrival:
    """The schedule of a load; `count` is the most requests it may send."""
    if isinstance(load, ClosedLoad):
        return ClosedArrival(load.batch_size)
    if isinstance(load, TraceLoad):
        return TimedArrival(_trace_times(load, workload, count))
    return TimedArrival(_rate_times(load, count, salt))


def _rate_times(load: RateLoad, count: int, salt: str) -> np.ndarray:
    if load.kind == "constant":
        return np.arange(count) / load.rate
    return np.cumsum(generator(salt, "arrival").exponential(1 / load.rate, size=count))


def _trace_times(load: TraceLoad, workload: Workload, count: int) -> np.ndarray:
    """Up to the first row without an instant: a later turn has none of its own.

    WorkloadError where there is none at all, or where they run backwards.
    """
    times: list[float] = []
    for index in range(count):
        at = workload.arrival_s(index)
        if at is None:
            break
        times.append(at / load.time_scale)
    if not times:
        raise WorkloadError(
            "has no arrival times", where="load: trace", remedy="Use a trace workload, or closed."
        )
    if sorted(times) != times:
        raise WorkloadError(
            "its arrival times run backwards", where="load: trace", remedy="Give one file in order."
        )
    return np.array(times)
