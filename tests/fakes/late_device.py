"""A device that is given a step's operations at once and does them as late as it may.

As on a GPU, the Python of a step runs when it is submitted, before the steps ahead of it are
done; its operations run later, and read then what the host has left where they look: staging
buffers, tables, results. `NullAccelerator` puts off both.
"""

import random

from torch.utils._python_dispatch import _disable_current_modes

from engine.accelerator.null import NullAccelerator, VirtualClock
from engine.core import Engine
from engine.graphs import StepGraphs
from tests.fakes.recorder import FakeRecorder


class _OwnRecorder(FakeRecorder):
    """Records for the engine while the device takes down the step around it."""

    def record(self, work):
        with _disable_current_modes():
            return super().record(work)


class LateDevice(NullAccelerator):
    """Takes down uniform decode steps; others read values, so the host waits for them."""

    def __init__(self, clock, is_prompt):
        super().__init__(clock, step_seconds=lambda: 0.01, is_prompt=is_prompt)
        self.recorder = _OwnRecorder()
        self.late = 0  # steps that were put off
        self.late_swaps = 0  # those of them that copy caches

    def submit(self, work):
        if not _is_uniform(work):
            self.synchronize()
            ticket = super().submit(work)
            self.synchronize()
            return ticket
        self.late += 1
        self.late_swaps += work.args[1] is not None
        return super().submit(FakeRecorder().record(work).replay)


def _is_uniform(work):
    *_, run = work.args
    owner = getattr(getattr(run, "func", None), "__self__", None)
    return isinstance(owner, StepGraphs)


def late_engine(config, source, delays):
    """An engine on such a device, which is sometimes done early, as `delays` (a seed) says."""
    draw, clock = random.Random(delays), VirtualClock(tick_ns=10_000)
    device = LateDevice(clock, is_prompt=lambda: draw.random() < 0.25)
    return Engine(config, source=source, clock_ns=clock, accelerator=device), device
