"""Times of work that is done when its call returns: the stopwatch of a processor."""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping, Sequence

import torch

from kernels.cost import Ceilings
from kernels.stopwatch import Captured, Work

ROUNDS = 5
COPIED_BYTES = 1 << 26
SIDE = 512  # of the square product that is the ceiling


class HostStopwatch:
    """By the host's clock. Nothing is captured: a call is a call."""

    def compare(self, arms: Mapping[str, Captured]) -> dict[str, float]:
        """Median seconds of one call of each arm, the arms in turn."""
        seen: dict[str, list[float]] = {name: [] for name in arms}
        for _ in range(ROUNDS):
            for name, arm in arms.items():
                seen[name].append(self.seconds(arm.replay) / arm.calls)
        return {name: statistics.median(times) for name, times in seen.items()}

    def seconds(self, work: Work) -> float:
        """Of one call."""
        begun_s = time.perf_counter()
        work()
        return time.perf_counter() - begun_s

    def ceilings(self) -> Ceilings:
        """A copy of 64 MiB and a product of bfloat16; fp8 is multiplied as that at the best."""
        source = torch.empty(COPIED_BYTES, dtype=torch.uint8)
        target = torch.empty_like(source)
        a = torch.randn(SIDE, SIDE).bfloat16()
        rate = 2 * SIDE**3 / self._median(lambda: a @ a)
        return Ceilings(
            copy_bytes_s=2 * COPIED_BYTES / self._median(lambda: target.copy_(source)),
            bf16_flops_s=rate,
            fp8_flops_s=rate,
        )

    def capture(self, works: Sequence[Work]) -> Captured:
        """All works once, one after the other."""

        def replay() -> None:
            for work in works:
                work()

        return Captured(replay=replay, calls=len(works), works=tuple(works))

    def failure(self) -> str | None:
        """A processor that runs this runs on."""
        return None

    def _median(self, work: Work) -> float:
        return statistics.median([self.seconds(work) for _ in range(ROUNDS)])
