"""The median of numbers that come one after the other."""

from __future__ import annotations

import heapq


class RunningMedian:
    """The upper median of what was added so far; each addition takes time with its logarithm."""

    def __init__(self) -> None:
        self._lower: list[float] = []  # a heap of the smaller half, negated
        self._upper: list[float] = []  # a heap of the others: as many, or one more

    def add(self, value: float) -> None:
        """One more number, not NaN."""
        least = heapq.heappushpop(self._upper, value)
        heapq.heappush(self._lower, -least)
        if len(self._lower) > len(self._upper):
            heapq.heappush(self._upper, -heapq.heappop(self._lower))

    def value(self) -> float | None:
        """None before anything was added."""
        return self._upper[0] if self._upper else None
