"""Work on a stream of its own, beside what its caller launches next.

Where there are few rows, kernels are short and leave most of a device idle: independent ones run
at once. In a captured graph they become branches. Memory stays safe as long as
- what a work reads is held until its caller's stream has waited for it: nothing that the caller
  allocates in the meantime may lie there, so a `Later` holds the work and all that it closes over;
- nobody touches what a work makes before the result was asked for.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from enum import IntEnum
from typing import Generic, TypeVar

import torch

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
MOST_ROWS = 256  # more fill a device by themselves
_here = threading.local()


class Lane(IntEnum):
    """Launches of one lane follow each other, those of two may not.

    What launches leave for the next one, such as counters, is kept for each lane.
    """

    CALLER = 0
    SOON = 1  # chains of short kernels that something waits for: theirs come first
    AHEAD = 2  # what is wanted much later


LANES = len(Lane)


def lane() -> Lane:
    """That of what is launched here and now."""
    return getattr(_here, "lane", Lane.CALLER)


@contextmanager
def _in_lane(one: Lane) -> Generator[None, None, None]:
    before, _here.lane = lane(), one
    try:
        yield
    finally:
        _here.lane = before


class Later(Generic[T_co]):
    """A value that a stream may read once it has asked for the result.

    It holds what the work reads; whoever launched that keeps the `Later` until its own stream has
    waited for the work, by `result` or through a stream that did.
    """

    def __init__(
        self,
        value: T_co,
        work: Callable[[], object] | None = None,
        ended: torch.Event | None = None,
    ) -> None:
        self._value, self._held, self._ended = value, work, ended

    def result(self) -> T_co:
        """Let what is launched here from now on wait for the work; the host does not wait.

        Others than the first to ask must follow the stream that was.
        """
        if self._ended is not None:
            torch.accelerator.current_stream(self._ended.device).wait_event(self._ended)
        self._ended = None
        return self._value


class Beside:
    """One more stream of a model; `device` None: there is none, and work runs where it is."""

    def __init__(self, device: torch.device | None = None, lane: Lane = Lane.SOON) -> None:
        has_streams = device is not None and device.type == "cuda"
        priority = -1 if lane is Lane.SOON else 0
        self._lane = lane
        self._stream = torch.Stream(device, priority=priority) if has_streams else None

    def suits(self, rows: int) -> bool:
        """Whether works of so many rows run beside others."""
        return self._stream is not None and 0 < rows <= MOST_ROWS

    def start(self, work: Callable[[], T], rows: int) -> Later[T]:
        """Start a work of so many rows, after all that its caller has launched so far.

        Works of one `Beside` follow each other: whose result is asked for last covers those
        before it, and somebody must ask for it.
        """
        stream = self._stream
        if stream is None or not self.suits(rows):
            return Later(work())
        stream.wait_stream(torch.accelerator.current_stream(stream.device))
        with stream, _in_lane(self._lane):
            return Later(work(), work, stream.record_event())


def ready(value: T | Later[T]) -> T:
    """A value that may still have been on its way."""
    return value.result() if isinstance(value, Later) else value
