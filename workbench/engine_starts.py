"""Says that an engine is being started, and when it is ready, where that takes a while."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping

from experiments.records import AxisValue
from experiments.watch import Activity, Watch
from workbench.words import duration_words, point_words

SHORT_S = 1.0  # a start that takes no longer is not told
INTERVAL_S = 0.25


class EngineStarts:
    """A thread that looks at the board of a sweep; a context manager.

    `say` gets one line when an engine has been starting for `SHORT_S`, and one when it serves.
    A start that fails is told by its trial. `look` is what the thread does at each turn.
    """

    def __init__(
        self, watch: Watch, say: Callable[[str], None], now_s: Callable[[], float] = time.monotonic
    ) -> None:
        self._watch = watch
        self._say = say
        self._now_s = now_s
        self._start: tuple[str, int] | None = None  # trial and attempt that an engine starts for
        self._since_s = 0.0
        self._told = False
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch_on, name="engine-starts", daemon=True)

    def __enter__(self) -> EngineStarts:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def look(self) -> None:
        """Say what is new."""
        current = self._watch.snapshot().current
        trial = None if current is None else (current.trial_id, current.attempt)
        starting = current is not None and current.activity is Activity.STARTING
        if self._told and trial == self._start and not starting:
            self._say(f"the engine is ready after {duration_words(self._waited_s())}")
        if not starting or trial != self._start:
            self._start, self._told = (trial if starting else None), False
            self._since_s = self._now_s()
        if current is not None and starting and not self._told and self._waited_s() >= SHORT_S:
            self._say(f"starting the engine{_which(current.axes, current.attempt)}")
            self._told = True

    def _waited_s(self) -> float:
        return self._now_s() - self._since_s

    def _watch_on(self) -> None:
        while not self._ended.wait(INTERVAL_S):
            self.look()


def _which(axes: Mapping[str, AxisValue], attempt: int) -> str:
    again = f", attempt {attempt}" if attempt > 1 else ""
    return f"{again}: {point_words(axes)}"
