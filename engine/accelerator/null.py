"""A device without hardware: work runs on the host, time is scripted, on a clock that jumps.

The real engine runs on it unchanged, so tests see every order of events that a device which
runs ahead of the host can bring, and simulations see how long a schedule would take.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import psutil
import torch

from engine.accelerator.tickets import run_now
from engine.choices import AcceleratorKind

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from engine.accelerator.interface import GraphRecorder, RecordedGraph, Work
    from engine.accelerator.tickets import DoneTicket

_NS = 1e9


class VirtualClock:
    """Nanoseconds that pass when someone says so; `tick_ns` pass with every look at it."""

    def __init__(self, tick_ns: int = 0) -> None:
        self.now_ns = 0
        self._tick_ns = tick_ns

    def __call__(self) -> int:
        """The time, in the manner of `time.perf_counter_ns`."""
        self.now_ns += self._tick_ns
        return self.now_ns

    def advance_to(self, time_ns: int) -> None:
        """Let time pass until then; nothing if that is over."""
        self.now_ns = max(self.now_ns, time_ns)


class RepeatRecorder:
    """Records work by keeping it: to replay is to do it again."""

    def budget_bytes(self) -> int:
        """More than such graphs can hold."""
        return 1

    def record(self, work: Work) -> _Repeated:
        """Keep it."""
        return _Repeated(work)

    def forget(self, graph: RecordedGraph) -> None:
        """There is nothing to let go of."""


@dataclass(frozen=True, slots=True)
class _Repeated:
    replay: Work
    held_bytes: int = 0


class NullAccelerator:
    """One device that takes `step_seconds()` for each work it is given, one after the other.

    `step_seconds` is asked once a work, after it ran. The host runs a work when it is waited
    for, as late as a device may, unless `is_prompt()` says that a submission finds the device
    done with all before it. Neither changes the times.
    """

    kind = AcceleratorKind.CPU
    device = "cpu"
    runs_ahead = True

    def __init__(
        self,
        clock: VirtualClock,
        step_seconds: Callable[[], float],
        is_prompt: Callable[[], bool] = lambda: False,
    ) -> None:
        self.clock = clock
        self.recorder: GraphRecorder | None = None
        self.busy_s = 0.0
        self.idle_s = 0.0  # between works; before the first one it does not count
        self._step_seconds = step_seconds
        self._is_prompt = is_prompt
        self._queue: deque[_NullTicket] = deque()
        self._free_ns: int | None = None

    def name(self) -> str:
        """What reports call it."""
        return "null"

    def uuid(self) -> str | None:
        """There is no device to identify."""
        return None

    def memory_free_bytes(self) -> int:
        """That of the host."""
        return psutil.virtual_memory().available

    def zeros_on_host(self, like: Tensor) -> Tensor:
        """Plain memory."""
        return torch.zeros_like(like, device="cpu")

    def synchronize(self) -> None:
        """Run all that was submitted."""
        while self._queue:
            self._run_next()

    def submit(self, work: Work) -> _NullTicket:
        """Queue the work."""
        if self._is_prompt():
            self.synchronize()
        ticket = _NullTicket(self, work, self.clock())
        self._queue.append(ticket)
        return ticket

    def finish(self, ticket: _NullTicket) -> None:
        """Run everything up to `ticket`, and let the time of its end come."""
        while ticket.done is None:
            self._run_next()
        self.clock.advance_to(ticket.end_ns)

    def _run_next(self) -> None:
        ticket = self._queue.popleft()
        ticket.done = run_now(ticket.work)
        seconds = self._step_seconds()
        begin_ns = ticket.submitted_ns
        if self._free_ns is not None:
            begin_ns = max(begin_ns, self._free_ns)
            self.idle_s += (begin_ns - self._free_ns) / _NS
        ticket.end_ns = self._free_ns = begin_ns + round(seconds * _NS)
        self.busy_s += seconds


@dataclass(eq=False, slots=True)
class _NullTicket:
    device: NullAccelerator
    work: Work
    submitted_ns: int
    done: DoneTicket | None = field(default=None, init=False)
    end_ns: int = field(default=0, init=False)

    def wait(self) -> tuple[Tensor, ...]:
        """Run it now at the latest."""
        self.device.finish(self)
        assert self.done is not None, "it has run"
        return self.done.wait()
