"""Null accelerators whose delays come from a seed."""

import random

from engine.accelerator.null import NullAccelerator, VirtualClock
from engine.core import Engine


def erratic_engine(config, source, delays, recorder=None):
    """An engine whose device takes, and starts, as long as `delays` (a seed) says."""
    draw = random.Random(delays)
    clock = VirtualClock(tick_ns=10_000)
    device = NullAccelerator(
        clock,
        step_seconds=lambda: draw.choice([0.0, 0.001, 0.02]),
        is_prompt=lambda: draw.random() < 0.5,
    )
    device.recorder = recorder
    return Engine(config, source=source, clock_ns=clock, accelerator=device)
