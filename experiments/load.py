"""Puts a load on a target and writes down what comes back, as a client sees it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from engine.errors import RequestError
from engine.request import FinishReason, Request, RequestId, SamplingParams
from experiments.arrival import Share
from experiments.clock import Clock
from experiments.feed import Feed
from experiments.flight import Flight
from experiments.load_tally import LoadTally
from experiments.records import RequestRecord, TelemetrySample
from experiments.running_median import RunningMedian
from experiments.targets.base import Target
from experiments.workload import WorkItem

POLL_S = 0.050
ABORT_WAIT_S = 1.0
LOOK_AHEAD_S = 0.0005  # at a time, of making requests that are not due yet
LEISURE_S = 0.002  # until the next send, for that
CLOCK_STEP_S = 1e-9  # clocks count nanoseconds: an instant this near has come


@dataclass(frozen=True, kw_only=True)
class Phase:
    """One stretch of load: what to send, when, and when to stop sending. Seconds. Run once."""

    name: str  # prefix of the request ids
    feed: Feed
    max_requests: int
    start_s: float | None = None  # on the clock of the generator; None: when it is run
    measured_s: float | None = None  # None: stop at max_requests only
    measured_e2e: float = 0.0  # and at least so many times the median E2E
    min_completed: int = 0  # go on until so many ended, even past measured_s
    limit_s: float | None = None
    drain_s: float = 20.0
    output_cap: int | None = None  # most tokens asked for, whatever the item says
    warm_up: bool = False
    exact_output_length: bool = True
    temperature: float = 0.0


@dataclass(frozen=True, kw_only=True)
class PhaseResult:
    """What a phase left: every request, and the window in which sending went on.

    A request that was due in the window and never left the client's queue is among them, given
    up (ABORT) without an instant of sending.
    """

    requests: tuple[RequestRecord, ...]
    window_s: tuple[float, float]
    tally: LoadTally
    client_cpu: tuple[TelemetrySample, ...] = ()  # of clients that are processes of their own


PhaseOf = Callable[[Share], Phase]
"""Makes a phase with the feed of one share of its load; it can be sent to another process."""


class LoadGenerator:
    """Runs phases against an open target, in one thread. Times count from `origin_ns`."""

    def __init__(self, target: Target, clock: Clock, origin_ns: int) -> None:
        self._target = target
        self._clock = clock
        self._origin_ns = origin_ns

    def now_s(self) -> float:
        """Seconds since the origin."""
        return self._seconds(self._clock.now_ns())

    def _seconds(self, instant_ns: int) -> float:
        return (instant_ns - self._origin_ns) / 1e9

    def run(self, phase: Phase) -> PhaseResult:
        """Send until the phase's stop rule holds, then wait for what is in flight or queued.

        What has not ended `drain_s` later is aborted: acknowledged by the target, it counts as
        cancelled; not even that, as lost (no finish reason). TargetError passes through.
        """
        if phase.start_s is None:
            phase.feed.open_with(phase.max_requests)
        run = _PhaseRun(phase, self._target, self._seconds, self.now_s)
        while not run.over():
            run.send_due()
            run.receive(run.patience_s())
            run.judge()
            run.look_ahead()
        run.abandon()
        return run.result()


class _PhaseRun:
    """The state of one phase."""

    def __init__(
        self,
        phase: Phase,
        target: Target,
        seconds: Callable[[int], float],
        now_s: Callable[[], float],
    ) -> None:
        self._phase = phase
        self._target = target
        self._seconds = seconds
        self._now_s = now_s
        self._start_s = now_s() if phase.start_s is None else phase.start_s
        self._stop_s: float | None = None
        self._freed_s = self._start_s  # when the client's queue was last let go on
        self._flights: list[Flight] = []
        self._live: dict[RequestId, Flight] = {}
        self._e2e_s = RunningMedian()  # of what ended

    def over(self) -> bool:
        """Sending has stopped, and nothing is in flight or queued, or the drain time is up."""
        if self._stop_s is None:
            return False
        if self._now_s() - self._stop_s >= self._phase.drain_s:
            return True
        return not self._live and self._next_s() is None

    def send_due(self) -> None:
        """Send every request whose time has come."""
        while (due_s := self._next_s()) is not None and due_s <= self._now_s() + CLOCK_STEP_S:
            self._send(due_s)

    def patience_s(self) -> float:
        """How long to wait for an output: until the next send, at most POLL_S."""
        due_s = self._next_s()
        if due_s is None:
            return POLL_S
        return min(POLL_S, max(0.0, due_s - self._now_s()))

    def receive(self, timeout_s: float) -> None:
        """Take what the target has; the instant of receipt is the time of every chunk in it."""
        for received in self._target.poll(timeout_s):
            flight = self._live.get(received.output.request_id)
            if flight is None:
                continue
            flight.take(received, self._seconds)
            if received.output.finished:
                self._ended(flight)

    def judge(self) -> None:
        """Stop sending once the phase has measured enough."""
        if self._stop_s is None and self._enough():
            self._stop_s = self._now_s()

    def look_ahead(self) -> None:
        """Make requests that are to follow those in flight, for a moment, if nothing is due."""
        if self._stop_s is not None or self.patience_s() < LEISURE_S:
            return
        begun_s = self._now_s()
        most = min(len(self._live), self._phase.max_requests - len(self._flights))
        while self._phase.feed.look_ahead(most) and self._now_s() - begun_s < LOOK_AHEAD_S:
            pass

    def abandon(self) -> None:
        """Abort what is left, and wait a moment for the target to say so."""
        for request_id in list(self._live):
            self._target.abort(request_id)
        deadline_s = self._now_s() + ABORT_WAIT_S
        while self._live and self._now_s() < deadline_s:
            self.receive(POLL_S)

    def result(self) -> PhaseResult:
        """Records in the order of sending; the run is over, and keeps none of them itself."""
        stop_s = self._stop_s if self._stop_s is not None else self._now_s()
        feed, unsent = self._phase.feed, self._unsent()
        return PhaseResult(
            requests=tuple(self._records(unsent)),
            window_s=(self._start_s, stop_s),
            tally=LoadTally(
                unsent=len(unsent) if feed.scheduled and feed.queues else None,
                sessions=feed.sessions(),
            ),
        )

    def _records(self, unsent: list[Flight]) -> Iterator[RequestRecord]:
        """Each flight is let go when its record is made: both of all would not fit together."""
        flights, self._flights = [*self._flights, *unsent], []
        flights.reverse()
        while flights:
            yield flights.pop().record()

    def _enough(self) -> bool:
        phase, elapsed_s = self._phase, self._now_s() - self._start_s
        if phase.limit_s is not None and elapsed_s >= phase.limit_s:
            return True
        if self._nothing_to_send():
            return True
        ended = len(self._flights) - len(self._live)
        return (
            phase.measured_s is not None
            and elapsed_s >= max(phase.measured_s, phase.measured_e2e * self._median_e2e_s())
            and ended >= phase.min_completed
        )

    def _median_e2e_s(self) -> float:
        """Of what ended so far; 0 before anything has."""
        return self._e2e_s.value() or 0.0

    def _nothing_to_send(self) -> bool:
        """True when a slot is free (or the schedule is over) and no request is left for it."""
        used_up = len(self._flights) >= self._phase.max_requests
        due_s = self._due_s()
        return (used_up and due_s is not None) or (due_s is None and not self._live)

    def _due_s(self) -> float | None:
        due_s = self._phase.feed.due_s(len(self._live))
        return None if due_s is None else self._start_s + due_s

    def _next_s(self) -> float | None:
        """The next instant of sending. After the stop: of what was due before it, and is late."""
        if len(self._flights) >= self._phase.max_requests:
            return None
        due_s = self._due_s()
        if due_s is None or self._stop_s is None:
            return due_s
        return due_s if self._phase.feed.scheduled and due_s < self._stop_s else None

    def _send(self, due_s: float) -> None:
        scheduled = self._phase.feed.scheduled
        item = self._phase.feed.take()
        request = self._request(item)
        now_s = self._now_s()
        flight = Flight(
            item=item,
            request=request,
            intended_s=due_s if scheduled else now_s,
            dispatched_s=self._dispatched_s(due_s) if scheduled else now_s,
            sent_s=now_s,
            scheduled=scheduled,
            warm_up=self._phase.warm_up,
        )
        self._flights.append(flight)
        self._live[request.request_id] = flight
        try:
            self._target.submit(request)
        except RequestError as error:
            flight.end(FinishReason.ERROR, str(error), self._now_s())
            self._ended(flight)
        else:
            flight.replica = self._target.replica_of(request.request_id)

    def _dispatched_s(self, due_s: float) -> float:
        """When the request could leave the client's queue: on time, or when a slot fell free."""
        return max(due_s, self._freed_s) if self._phase.feed.queues else due_s

    def _ended(self, flight: Flight) -> None:
        now_s = self._now_s()
        if self._due_s() is None:
            self._freed_s = now_s
        del self._live[flight.request.request_id]
        self._phase.feed.ended(flight, now_s - self._start_s)
        if flight.error is None and flight.ended_s is not None and flight.sent_s is not None:
            self._e2e_s.add(flight.ended_s - flight.sent_s)

    def _unsent(self) -> list[Flight]:
        """What was due while sending went on, and waits in the client's queue to this day."""
        found: list[Flight] = []
        feed, stop_s = self._phase.feed, self._stop_s
        while feed.scheduled and len(self._flights) + len(found) < self._phase.max_requests:
            due_s = feed.due_s(0)
            if stop_s is None or due_s is None or self._start_s + due_s >= stop_s:
                break
            item = feed.take()
            flight = Flight(
                item=item,
                request=self._request(item),
                intended_s=self._start_s + due_s,
                dispatched_s=None,
                sent_s=None,
                warm_up=self._phase.warm_up,
            )
            flight.end(FinishReason.ABORT, None, self._now_s())
            found.append(flight)
        return found

    def _request(self, item: WorkItem) -> Request:
        phase = self._phase
        wanted = item.output_tokens
        return Request(
            request_id=RequestId(f"{phase.name}-{item.index}"),
            prompt_token_ids=item.prompt_token_ids,
            sampling=SamplingParams(
                temperature=phase.temperature,
                max_tokens=wanted if phase.output_cap is None else min(wanted, phase.output_cap),
                ignore_eos=phase.exact_output_length,
                seq_seed=item.seed,
                so_args=item.so_args,
            ),
        )
