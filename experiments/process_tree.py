"""This process and those it started: which they are, what memory and processor time they take."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable

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


class BusyShare:
    """How busy some processes are: the busiest of them, in percent of one core."""

    def __init__(self, pids: Iterable[int]) -> None:
        self._processes: list[psutil.Process] = []
        for pid in pids:
            with contextlib.suppress(psutil.NoSuchProcess):
                process = psutil.Process(pid)
                process.cpu_percent(None)  # the first answer has nothing to compare with
                self._processes.append(process)

    def percent(self) -> float | None:
        """Since the last call; None when none of them lives."""
        found: list[float] = []
        for process in self._processes:
            with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):
                found.append(process.cpu_percent(None))
        return max(found) if found else None
