"""This process and those it started: which they are, and what they take of the host."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import psutil

REFRESH_S = 1.0
"""How old the list of processes may be: finding it reads every process of the host."""


def own_pids() -> frozenset[int]:
    """This process and everything below it, now."""
    me = psutil.Process()
    return frozenset({me.pid, *(child.pid for child in me.children(recursive=True))})


class ProcessTree:
    """The tree as it was found lately. Times are the caller's, in seconds."""

    def __init__(self, list_pids: Callable[[], frozenset[int]] = own_pids) -> None:
        self._list_pids = list_pids
        self._found_at_s: float | None = None
        self._processes: dict[int, psutil.Process] = {}

    def cpu_s(self, time_s: float) -> float:
        """Processor seconds of the whole tree since it began, of those that have ended too."""
        self._refresh(time_s)
        total = 0.0
        for process in self._processes.values():
            with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):
                took = process.cpu_times()
                total += took.user + took.system + took.children_user + took.children_system
        return total

    def memory_bytes(self, time_s: float) -> int:
        """Resident memory of the whole tree; a process that has ended counts nothing."""
        self._refresh(time_s)
        total = 0
        for process in self._processes.values():
            with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):
                total += process.memory_info().rss
        return total

    def _refresh(self, time_s: float) -> None:
        if self._found_at_s is not None and 0 <= time_s - self._found_at_s < REFRESH_S:
            return
        self._found_at_s = time_s
        pids = self._list_pids()
        kept = {pid: found for pid, found in self._processes.items() if pid in pids}
        for pid in pids - kept.keys():
            with contextlib.suppress(psutil.NoSuchProcess):
                kept[pid] = psutil.Process(pid)
        self._processes = kept
