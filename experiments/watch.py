"""What a sweep is doing now: written by the thread that measures, read by any other.

Nothing is called back. Who wants to know looks (`snapshot`); who wants to stop it leaves word
(`ask_stop`, `ask_skip`), which the sweep reads between trials and at every poll of the engine.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from experiments.records import AxisValue, TelemetrySample, TrialId

KEPT_EVENTS = 50
KEPT_SECONDS = 600


class Stopped(StrEnum):
    """Why a sweep ended."""

    FINISHED = "finished"  # nothing is left to measure
    BUDGET = "budget"  # no further trial fits into the time that was given
    REQUEST = "request"  # somebody asked from outside
    INTERRUPT = "interrupt"  # SIGINT
    ERROR = "error"  # the runner failed; what was stored stays


class Activity(StrEnum):
    """What is being done for the current trial."""

    STARTING = "starting the engine"
    SERVING = "under load"


@dataclass(frozen=True, kw_only=True)
class Second:
    """What came in during one second of the current trial, warm-up included."""

    second: int  # since the trial began; seconds in which nothing came are left out
    output_tokens: int = 0
    ended_requests: int = 0
    in_flight: int = 0  # at the last event of the second
    first_tokens: int = 0  # requests whose first token came
    ttft_s: float | None = None  # their mean; None where no first token came


@dataclass(frozen=True, kw_only=True)
class CurrentTrial:
    """The trial in flight."""

    trial_id: TrialId
    axes: Mapping[str, AxisValue]
    repeat: int
    attempt: int  # 1, or more after a retry
    started_utc: str
    activity: Activity
    forecast_s: float | None  # how long it is expected to take, an engine start included
    seconds: tuple[Second, ...] = ()
    devices: tuple[TelemetrySample, ...] = ()  # the newest sample of each device, and the host's


@dataclass(frozen=True, kw_only=True)
class Event:
    """Something that happened to the sweep, in words."""

    time_utc: str
    words: str
    trial_id: TrialId | None = None


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """The state of a sweep at one instant."""

    current: CurrentTrial | None = None
    stopped: Stopped | None = None  # None: it goes on
    time_left_s: float | None = None  # forecast of all that may still be measured; None: unknown
    events: tuple[Event, ...] = ()  # the newest, oldest first


@dataclass
class Watch:
    """The board that a sweep writes and others read. Every method is safe from any thread."""

    _now: Snapshot = field(default_factory=Snapshot)
    _events: deque[Event] = field(default_factory=lambda: deque(maxlen=KEPT_EVENTS))
    _seconds: deque[Second] = field(default_factory=lambda: deque(maxlen=KEPT_SECONDS))
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _stop: Stopped | None = None
    _skip: set[TrialId] = field(default_factory=set[TrialId])

    def snapshot(self, devices: tuple[TelemetrySample, ...] = ()) -> Snapshot:
        """What is going on, as one consistent whole; `devices` go with the current trial."""
        with self._lock:
            current = self._now.current
            if current is not None:
                current = replace(current, seconds=tuple(self._seconds), devices=devices)
            return replace(self._now, current=current, events=tuple(self._events))

    def ask_stop(self, why: Stopped) -> None:
        """Have the sweep end after the trial in flight."""
        with self._lock:
            self._stop = self._stop or why

    def ask_skip(self, trial_id: TrialId) -> None:
        """Have that trial given up, or not begun; it is recorded as skipped."""
        with self._lock:
            self._skip.add(trial_id)

    @property
    def stop_asked(self) -> Stopped | None:
        """Why the sweep is asked to end; None: it is not."""
        return self._stop

    def skip_asked(self, trial_id: TrialId) -> bool:
        """Whether the trial is to be given up."""
        return trial_id in self._skip

    def begins(self, current: CurrentTrial) -> None:
        """A trial, or another attempt at it, begins."""
        with self._lock:
            self._seconds.clear()
            self._now = replace(self._now, current=current)

    def serves(self) -> None:
        """The engine of the current trial is up."""
        with self._lock:
            if self._now.current is not None:
                current = replace(self._now.current, activity=Activity.SERVING)
                self._now = replace(self._now, current=current)

    def counts(self, second: Second) -> None:
        """What came in during a second; a later call for the same second replaces it."""
        with self._lock:
            if self._seconds and self._seconds[-1].second == second.second:
                self._seconds.pop()
            self._seconds.append(second)

    def ends(self, event: Event) -> None:
        """The current trial is over."""
        with self._lock:
            self._now = replace(self._now, current=None)
            self._events.append(event)

    def expects(self, time_left_s: float) -> None:
        """A new forecast for everything that is left."""
        with self._lock:
            self._now = replace(self._now, time_left_s=time_left_s)

    def tells(self, event: Event) -> None:
        """Something else that happened."""
        with self._lock:
            self._events.append(event)

    def stops(self, why: Stopped) -> None:
        """The sweep is over; the first reason stays."""
        with self._lock:
            self._now = replace(self._now, current=None, stopped=self._now.stopped or why)
