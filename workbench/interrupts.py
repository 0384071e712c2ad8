"""Ctrl-C while a run is measured."""

from __future__ import annotations

import signal
from collections.abc import Generator
from contextlib import contextmanager
from types import FrameType

from experiments.watch import Stopped, Watch


@contextmanager
def stop_on_interrupt(watch: Watch) -> Generator[None]:
    """SIGINT once asks to stop after the running trial; a second one cancels it."""

    def note(_signal: int, _frame: FrameType | None) -> None:
        watch.ask_stop(Stopped.INTERRUPT)
        signal.signal(signal.SIGINT, signal.default_int_handler)

    before = signal.signal(signal.SIGINT, note)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
