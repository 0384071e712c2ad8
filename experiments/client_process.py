"""One client process: it sends its share of phases to a target, in the only thread that matters."""

from __future__ import annotations

import contextlib
import gc
import multiprocessing
import os
import signal
import threading
import traceback
from collections.abc import Callable
from dataclasses import dataclass, replace
from multiprocessing.connection import wait
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from experiments.arrival import Share
from experiments.client_cpu import CpuWatch
from experiments.clock import SystemClock
from experiments.errors import TargetError
from experiments.feed import Feed
from experiments.flight import Flight
from experiments.load import LoadGenerator, Phase, PhaseOf, PhaseResult
from experiments.load_tally import SessionTally
from experiments.targets.base import Target
from experiments.workload import WorkItem
from kernels.errors import WorkbenchError

if TYPE_CHECKING:
    from ctypes import Array, c_double
    from multiprocessing.connection import Connection

    Shared = Array[c_double]

T = TypeVar("T")
READY = "ready"

ConnectTo = Callable[[str | None], Target]
"""Makes the target of one client; of another server of the same kind, where one is named."""


@dataclass(frozen=True, kw_only=True)
class Order:
    """What a client shall run."""

    phase_of: PhaseOf
    share: Share
    origin_ns: int
    url: str | None  # of a server in place of the target's own


@dataclass(frozen=True, kw_only=True)
class ClientReport:
    """What came of it."""

    result: PhaseResult
    cpu_percent: tuple[float, ...]  # of each interval since the phase began


def shared_phase(phase_of: PhaseOf, share: Share) -> Phase:
    """The share of a phase: its feed, and its part of every count."""
    phase = phase_of(share)
    return replace(
        phase,
        max_requests=share.slots(phase.max_requests),
        min_completed=share.slots(phase.min_completed),
    )


class Tally(NamedTuple):
    """What went on in a phase so far; what requests brought is counted when they end."""

    taken: float = 0.0
    ended: float = 0.0
    deliveries: float = 0.0
    answered: float = 0.0  # requests that brought anything
    ttft_s: float = 0.0  # of them together


def serve_client(pipe: Connection, connect: ConnectTo, shared: Shared) -> None:
    """Run orders until the pipe is closed. `shared` is the `Tally` of the phase so far.

    An order is answered with `READY`, then comes the instant at which its phase begins on the
    trial's clock, then goes a `ClientReport`. In place of either answer goes the error that
    there was.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # an interrupt is the parent's to handle
    threading.Thread(target=_end_with_parent, daemon=True).start()
    client = _Client(connect, shared)
    with contextlib.suppress(EOFError, ConnectionError):
        while True:
            answer = _tried(client.prepare, pipe.recv())
            pipe.send(answer)
            if answer == READY:
                pipe.send(_tried(client.run, pipe.recv()))


def _end_with_parent() -> None:
    """A parent that was killed closes no pipe that a busy client would notice."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)


def _tried(step: Callable[[T], object], argument: T) -> object:
    try:
        return step(argument)
    except WorkbenchError as error:
        return error
    except Exception:  # noqa: BLE001 the parent raises it, with what is known of its place
        return TargetError(f"a client process failed: {traceback.format_exc()}")


class _Client:
    """What a client process keeps from one order to the next: its connections."""

    def __init__(self, connect: ConnectTo, shared: Shared) -> None:
        self._connect = connect
        self._shared = shared
        self._targets: dict[str | None, Target] = {}

    def prepare(self, order: Order) -> str:
        """Everything that takes time, before the phase begins."""
        if order.url not in self._targets:
            self._targets[order.url] = self._connect(order.url)
        phase = shared_phase(order.phase_of, order.share)
        phase.feed.open_with(phase.max_requests)
        self._order = order
        self._phase = replace(phase, feed=_CountedFeed(phase.feed, self._shared))
        gc.collect()
        gc.freeze()  # what is here stays: a sweep over it would hold up the sending
        return READY

    def run(self, start_s: float) -> ClientReport:
        """The phase that was prepared."""
        order = self._order
        generator = LoadGenerator(self._targets[order.url], SystemClock(), order.origin_ns)
        watch = CpuWatch(start_s, generator.now_s)
        try:
            result = generator.run(replace(self._phase, start_s=start_s))
        finally:
            percent = watch.stop()
        marked = tuple(replace(r, worker=order.share.index) for r in result.requests)
        return ClientReport(result=replace(result, requests=marked), cpu_percent=percent)


class _CountedFeed:
    """A feed that tells another process what went on."""

    def __init__(self, feed: Feed, shared: Shared) -> None:
        self._feed = feed
        self._shared = shared
        self.scheduled = feed.scheduled
        self.queues = feed.queues

    def due_s(self, in_flight: int) -> float | None:
        return self._feed.due_s(in_flight)

    def take(self) -> WorkItem:
        self._shared[0] += 1
        return self._feed.take()

    def open_with(self, most: int) -> None:
        self._feed.open_with(most)

    def look_ahead(self, most: int) -> bool:
        return self._feed.look_ahead(most)

    def ended(self, flight: Flight, ended_s: float) -> None:
        self._feed.ended(flight, ended_s)
        said = [at_s for at_s, piece in flight.pieces if piece.text]
        self._shared[1] += 1
        if said and flight.sent_s is not None:
            self._shared[2] += len(said)
            self._shared[3] += 1
            self._shared[4] += said[0] - flight.sent_s

    def due_before(self, elapsed_s: float) -> int | None:
        return self._feed.due_before(elapsed_s)

    def sessions(self) -> SessionTally | None:
        return self._feed.sessions()
