"""Times of work on a device: replays of captured graphs, in turn, and the ceilings beside them."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import torch

from kernels.cost import Ceilings

Work = Callable[[], object]
LINE = 200  # characters of an error that are told
ROUNDS = 21
CALLS = 20  # of one graph: a launch costs little beside them
LONGEST_S = 0.02  # of one graph, where more than two calls would take longer


def first_line(error: Exception) -> str:
    """An error in one line."""
    first = (str(error).strip() or "no message").splitlines()[0]
    return f"{type(error).__name__}: {first[:LINE]}"


class Captured(NamedTuple):
    """A graph of several calls.

    It reads what its works read, where that lies: they hold it for as long as the graph is held.
    """

    replay: Work
    calls: int
    works: tuple[Work, ...]


class Stopwatch:
    """One device. A captured graph is replayed behind another, so that no launch is waited for."""

    def __init__(self, device: torch.device) -> None:
        self._device = device

    def compare(self, arms: Mapping[str, Captured]) -> dict[str, float]:
        """Median seconds of one call of each arm, the arms in turn."""
        seen: dict[str, list[float]] = {name: [] for name in arms}
        for _ in range(ROUNDS):
            for name, arm in arms.items():
                arm.replay()
                seen[name].append(self.seconds(arm.replay) / arm.calls)
        return {name: statistics.median(times) for name, times in seen.items()}

    def seconds(self, work: Work) -> float:
        """Of one execution on the device, and of launching it where the device is idle."""
        start, end = (torch.Event(self._device, enable_timing=True) for _ in range(2))
        start.record()
        work()
        end.record()
        end.synchronize()
        return start.elapsed_time(end) / 1e3

    def ceilings(self) -> Ceilings:
        """A copy of 2 GiB and products of 8192 cubed."""
        source = torch.empty(1 << 31, dtype=torch.uint8, device=self._device)
        target = torch.empty_like(source)
        a, b = (torch.randn(8192, 8192, device=self._device) for _ in range(2))
        narrow, wide = a.bfloat16(), b.bfloat16()
        a8, b8 = (x.to(torch.float8_e4m3fn) for x in (a, b))
        one = torch.ones((), device=self._device)
        flops = 2 * 8192**3
        return Ceilings(
            copy_bytes_s=2 * source.numel() / self._median(lambda: target.copy_(source)),
            bf16_flops_s=flops / self._median(lambda: narrow @ wide),
            fp8_flops_s=flops / self._median(
                lambda: torch._scaled_mm(a8, b8.T, one, one, out_dtype=torch.bfloat16)
            ),
        )  # fmt: skip

    def capture(self, works: Sequence[Work]) -> Captured:
        """Calls that go round the works, at least once where that is not too long.

        Each work must have run and must not wait.
        """
        once = min(self.seconds(works[0]) for _ in range(2))
        calls = min(max(CALLS, len(works)), max(2, int(LONGEST_S / once)))
        graph = torch.cuda.CUDAGraph()  # noqa: TID251
        with torch.cuda.graph(graph):  # noqa: TID251
            for call in range(calls):
                works[call % len(works)]()
        return Captured(replay=graph.replay, calls=calls, works=tuple(works))

    def failure(self) -> str | None:
        """Why nothing runs on the device any more, as after a fault; None where it does."""
        try:
            torch.zeros((), device=self._device).item()
        except torch.OutOfMemoryError:
            return None
        except RuntimeError as error:
            return first_line(error)
        return None

    def _median(self, work: Work) -> float:
        return statistics.median([self.seconds(work) for _ in range(12)][2:])
