"""What a phase of load sends next, and when: the joint of workload, arrival and what came back."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Protocol

import numpy as np

from experiments.arrival import (
    WHOLE,
    Arrival,
    ClosedArrival,
    Horizon,
    Share,
    TimedArrival,
    arrival,
    poisson_times,
)
from experiments.errors import WorkloadError
from experiments.flight import Flight
from experiments.load_specs import Load, SessionsLoad, TraceLoad
from experiments.load_tally import SessionTally
from experiments.sessions import Conversations, SessionFeed
from experiments.workload import WorkItem, Workload

MOST_AHEAD = 1024  # requests that are made and not sent


class Feed(Protocol):
    """The requests of one phase, in the order in which they are sent. Used for one phase only.

    Seconds count from the beginning of the phase.
    """

    scheduled: bool
    """True where `due_s` is a promise of its own, so that lateness counts."""
    queues: bool
    """True where a request whose instant has come may have to wait until another one ends."""

    def due_s(self, in_flight: int) -> float | None:
        """When the next request shall be sent; None: not before another one ends, or never.

        An instant in the past means: at once, and late.
        """
        ...

    def take(self) -> WorkItem:
        """That request, which is sent now. Only after `due_s` gave an instant."""
        ...

    def open_with(self, most: int) -> None:
        """Make what is due as the phase begins, at most so many; before the phase."""
        ...

    def look_ahead(self, most: int) -> bool:
        """Make one of the next `most` requests before it is taken; False where none is to make."""
        ...

    def ended(self, flight: Flight, ended_s: float) -> None:
        """A request that was taken is over, whatever came of it."""
        ...

    def due_before(self, elapsed_s: float) -> int | None:
        """How many requests the schedule wanted sent by then; None where it promises nothing."""
        ...

    def sessions(self) -> SessionTally | None:
        """How conversations went so far; None where there are none."""
        ...


class ItemFeed:
    """Requests that know nothing of each other: `item(i)` at the instant of `arrival`."""

    def __init__(
        self, item: Callable[[int], WorkItem], arrival: Arrival, share: Share = WHOLE
    ) -> None:
        self._item = item
        self._arrival = arrival
        self._share = share
        self._taken = 0
        self._made: deque[WorkItem] = deque()  # the next ones
        self.scheduled = arrival.scheduled
        self.queues = arrival.queues

    def due_s(self, in_flight: int) -> float | None:
        """As the arrival says."""
        return self._arrival.due_s(self._taken, in_flight)

    def take(self) -> WorkItem:
        """The next of this share."""
        item = self._made.popleft() if self._made else self._next()
        self._taken += 1
        return item

    def open_with(self, most: int) -> None:
        """What would be sent if nothing ended."""
        while self._is_first(len(self._made)) and self.look_ahead(most):
            pass

    def look_ahead(self, most: int) -> bool:
        """A prompt takes as long to make as some tokens take to come: better before it is due."""
        if len(self._made) >= min(most, MOST_AHEAD):
            return False
        self._made.append(self._next())
        return True

    def _is_first(self, index: int) -> bool:
        due_s = self._arrival.due_s(index, index)
        return due_s is not None and due_s <= 0

    def _next(self) -> WorkItem:
        return self._item(self._share.nth(self._taken + len(self._made)))

    def ended(self, flight: Flight, ended_s: float) -> None:
        """Nothing follows from it."""

    def due_before(self, elapsed_s: float) -> int | None:
        """As the arrival says."""
        return self._arrival.due_before(elapsed_s)

    def sessions(self) -> SessionTally | None:
        """There are none."""
        return None


def feed_of(
    load: Load, workload: Workload, *, horizon: Horizon, salt: str, share: Share = WHOLE
) -> Feed:
    """The requests of a load, or of one share of it; prompts are made when they are taken."""
    if is_conversational(load, workload):
        assert isinstance(load, SessionsLoad | TraceLoad)
        said = Conversations(load=load, workload=workload, salt=salt)
        return SessionFeed(said, _starts(load, workload, horizon, salt, share), share)
    schedule = arrival(load, workload, horizon=horizon, salt=salt, share=share)
    return ItemFeed(lambda index: workload.item(index, salt), schedule, share)


def is_conversational(load: Load, workload: Workload) -> bool:
    """True where answers decide what is sent next, and when."""
    return isinstance(load, SessionsLoad) or (isinstance(load, TraceLoad) and workload.has_sessions)


def _starts(
    load: SessionsLoad | TraceLoad, workload: Workload, horizon: Horizon, salt: str, share: Share
) -> Arrival:
    """When conversations begin."""
    if isinstance(load, TraceLoad):
        times = first_turns(workload, horizon.requests) / load.time_scale
        most = load.max_concurrency
        return TimedArrival(
            times[share.index :: share.of], None if most is None else share.slots(most)
        )
    if load.rate is not None:
        times = poisson_times(load.rate, horizon, salt, "sessions")
        return TimedArrival(times[share.index :: share.of])
    assert load.concurrency is not None, "a load of sessions has one pace"
    return ClosedArrival(share.slots(load.concurrency))


def first_turns(workload: Workload, count: int) -> np.ndarray:
    """[sessions] instants of the first turns, of one lap over the trace; WorkloadError: none."""
    times: list[float] = []
    for session in range(count):
        at = workload.arrival_s(workload.session(session)[0])
        if at is None:
            break
        times.append(at)
    if not times or sorted(times) != times:
        raise WorkloadError(
            "its first turns have no instants, or they run backwards",
            where="load: trace",
            remedy="Give one file in order, with a timestamp for the first turn of each session.",
        )
    return np.array(times)
