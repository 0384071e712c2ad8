"""When requests are sent: as slots fall free (closed), in rounds, or at fixed instants (open)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from experiments.errors import WorkloadError
from experiments.identity import generator
from experiments.load_specs import (
    ROUND_LOADS,
    ClosedLoad,
    GammaLoad,
    Load,
    PoissonLoad,
    RampLoad,
    SessionsLoad,
    TraceLoad,
)
from experiments.workload import Workload


class Arrival(Protocol):
    """The schedule of one phase."""

    scheduled: bool
    """True where `due_s` is a promise of its own, so that lateness counts."""
    queues: bool
    """True where a request whose instant has come may have to wait until another one ends."""

    def due_s(self, index: int, in_flight: int) -> float | None:
        """When the `index`-th request shall be sent; None: not before another one ends.

        Seconds since the phase began. An instant in the past means: at once, and late.
        """
        ...

    def due_before(self, elapsed_s: float) -> int | None:
        """How many requests the schedule wanted sent by then; None where it promises nothing."""
        ...


@dataclass(frozen=True, kw_only=True)
class Share:
    """The part of a load that one of several client processes sends: requests `index`,
    `index + of`, `index + 2 of`, ...; of a number of slots as many as its turn gives it.

    The shares of a load together are the load, request by request and instant by instant.
    """

    index: int = 0
    of: int = 1

    def slots(self, whole: int) -> int:
        """Of so many; the shares sum to the whole."""
        return whole // self.of + (self.index < whole % self.of)

    def nth(self, index: int) -> int:
        """The place in the whole load of the `index`-th of this share."""
        return self.index + index * self.of


WHOLE = Share()


class ClosedArrival:
    """`batch_size` in flight: due at once while a slot is free."""

    scheduled = False
    queues = True

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


class RoundArrival:
    """`batch_size` at once, and again when none is in flight any more."""

    scheduled = False
    queues = True

    def __init__(self, batch_size: int) -> None:
        self._batch_size = batch_size

    def due_s(self, index: int, in_flight: int) -> float | None:
        """At once inside a round; a new round waits until the old one is over."""
        return 0.0 if index % self._batch_size or not in_flight else None

    def due_before(self, elapsed_s: float) -> int | None:
        """There is no schedule."""
        del elapsed_s
        return None


class TimedArrival:
    """Absolute instants drawn beforehand, so that lateness of one does not move the next.

    With `max_concurrency` an instant that has come waits until a request ends.
    """

    scheduled = True

    def __init__(self, times_s: np.ndarray, max_concurrency: int | None = None) -> None:
        self._times_s = times_s
        self._most = math.inf if max_concurrency is None else max_concurrency
        self.queues = max_concurrency is not None

    def due_s(self, index: int, in_flight: int) -> float | None:
        """Instant `index`; None once the schedule is over, or while the client's queue is held."""
        if index >= len(self._times_s) or in_flight >= self._most:
            return None
        return float(self._times_s[index])

    def due_before(self, elapsed_s: float) -> int | None:
        """Of the instants drawn, those up to then."""
        return int(np.searchsorted(self._times_s, elapsed_s, side="right"))


@dataclass(frozen=True, kw_only=True)
class Horizon:
    """How far a schedule is drawn."""

    requests: int  # the most that may be sent
    measured_s: float = 0.0  # a random rate is met exactly in every stretch of this length


def arrival(
    load: Load, workload: Workload, *, horizon: Horizon, salt: str, share: Share = WHOLE
) -> Arrival:
    """The schedule of a load without sessions, or of one share of it."""
    assert not isinstance(load, SessionsLoad), "turns are scheduled by what was answered"
    if isinstance(load, ClosedLoad):
        return ClosedArrival(share.slots(load.batch_size))
    if isinstance(load, ROUND_LOADS):
        assert share.of == 1, "only one process can tell that a round is over"
        return RoundArrival(load.slots)
    times_s = schedule(load, workload, horizon=horizon, salt=salt)[share.index :: share.of]
    most = load.max_concurrency
    return TimedArrival(times_s, None if most is None else share.slots(most))


def schedule(
    load: PoissonLoad | TraceLoad, workload: Workload, *, horizon: Horizon, salt: str
) -> np.ndarray:
    """[requests] ascending instants of an open loop, in seconds since it began."""
    if isinstance(load, TraceLoad):
        return _trace_times(load, workload, horizon.requests)
    if isinstance(load, RampLoad):
        return _ramp_times(load, poisson_times(1.0, horizon, salt, "ramp"))
    if isinstance(load, GammaLoad):
        return gamma_times(load.rate, load.shape, horizon, salt, "gamma")
    if load.kind == "constant":
        return np.arange(horizon.requests) / load.rate
    return poisson_times(load.rate, horizon, salt, "arrival")


def poisson_times(rate: float, horizon: Horizon, *key: str) -> np.ndarray:
    """Instants of a Poisson process."""
    return gamma_times(rate, 1.0, horizon, *key)


def gamma_times(rate: float, shape: float, horizon: Horizon, *key: str) -> np.ndarray:
    """Instants whose gaps are gamma distributed, `round(rate * measured_s)` in every window.

    Gaps are drawn in blocks of so many and stretched to the block's length: for gamma gaps that
    is the distribution given the sum, so neither the shape nor chance changes the load offered.
    A block starts at a random place of its circle of gaps; with shape 1 it is exactly a Poisson
    process given its count.
    """
    size = max(1, round(rate * horizon.measured_s)) if horizon.measured_s else horizon.requests
    size = min(size, horizon.requests)
    blocks = -(-horizon.requests // size)
    stream = generator(*key)
    gaps = stream.standard_gamma(shape, size=(blocks, size))
    sums = np.maximum(gaps.sum(axis=1, keepdims=True), np.finfo(float).tiny)
    places = np.cumsum(gaps / sums, axis=1) + stream.random(size=(blocks, 1))
    inside = np.sort(places % 1.0, axis=1)  # [blocks, size] of the block's length
    times = (inside + np.arange(blocks)[:, None]) * (size / rate)
    return times.ravel()[: horizon.requests]


def _ramp_times(load: RampLoad, unit: np.ndarray) -> np.ndarray:
    """Instants at which the rate's integral reaches those of a process of rate 1.

    r0 t + (r1 - r0) t^2 / 2D = u up to D, the length of the ramp; r1 per second after it.
    """
    growth = (load.rate - load.rate_from) / load.ramp_s
    whole = (load.rate_from + load.rate) / 2 * load.ramp_s
    climbing = np.minimum(unit, whole)
    root = np.sqrt(np.maximum(load.rate_from**2 + 2 * growth * climbing, np.finfo(float).tiny))
    times = 2 * climbing / (load.rate_from + root)  # the stable root, also where growth is 0
    return times + np.maximum(unit - whole, 0.0) / load.rate


def _trace_times(load: TraceLoad, workload: Workload, count: int) -> np.ndarray:
    """Up to the first row without an instant.

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
