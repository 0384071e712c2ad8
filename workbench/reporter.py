"""Keeps progress.json up to date while a run is measured, and passes orders on."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from pathlib import Path

from experiments.watch import Stopped, Watch
from workbench.errors import StoreError
from workbench.files import write_file, write_lightly
from workbench.progress import PROGRESS, Progress, progress_text, take_orders

INTERVAL_S = 1.0


class Reporter:
    """A thread of the process that measures; a context manager.

    `progress` is asked for the content about once a second, from that thread, and once more at
    the end. A disk without room costs the report only: the next trial will say so.
    """

    def __init__(
        self,
        folder: Path,
        watch: Watch,
        progress: Callable[[], Progress],
        interval_s: float = INTERVAL_S,
    ) -> None:
        self._folder = folder
        self._watch = watch
        self._progress = progress
        self._interval_s = interval_s
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._report, name="run-progress", daemon=True)

    def __enter__(self) -> Reporter:
        take_orders(self._folder)  # meant for a process that is gone
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        with contextlib.suppress(StoreError):
            write_file(self._folder / PROGRESS, progress_text(self._progress()).encode())

    def _report(self) -> None:
        ended = False
        while not ended:
            with contextlib.suppress(OSError):
                self._obey()
            with contextlib.suppress(StoreError):
                content = progress_text(self._progress()).encode()
                write_lightly(self._folder / PROGRESS, content)
            ended = self._ended.wait(self._interval_s)

    def _obey(self) -> None:
        stop, skips = take_orders(self._folder)
        if stop:
            self._watch.ask_stop(Stopped.REQUEST)
        for trial_id in skips:
            self._watch.ask_skip(trial_id)
