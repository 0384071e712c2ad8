"""What generating the load costs: the processor time of a client, over the time of the clock."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

from experiments.records import TelemetrySample

INTERVAL_S = 0.25


class CpuWatch:
    """Samples this process in a thread, at equal distances from `start_s` of `now_s` on."""

    def __init__(self, start_s: float, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self._next_s = start_s
        self._ended = threading.Event()
        self._percent: list[float] = []
        self._thread = threading.Thread(target=self._watch, name="client-cpu", daemon=True)
        self._thread.start()

    def stop(self) -> tuple[float, ...]:
        """Percent of a core in each whole interval since the start."""
        self._ended.set()
        self._thread.join()
        return tuple(self._percent)

    def _watch(self) -> None:
        before: tuple[float, float] | None = None
        while not self._ended.wait(max(0.0, self._next_s - self._now_s())):
            now = (self._now_s(), time.process_time())
            if before is not None and now[0] > before[0]:
                self._percent.append(100 * (now[1] - before[1]) / (now[0] - before[0]))
            before = now
            self._next_s += INTERVAL_S


def busiest(clients: Sequence[Sequence[float]], start_s: float) -> tuple[TelemetrySample, ...]:
    """Of every interval, the client that took most of a core."""
    longest = max(map(len, clients), default=0)
    return tuple(
        TelemetrySample(
            time_s=start_s + (i + 1) * INTERVAL_S,
            client_cpu_percent=max(client[i] for client in clients if i < len(client)),
        )
        for i in range(longest)
    )
