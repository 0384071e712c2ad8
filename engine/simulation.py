"""The real engine on a device and a clock of no substance: what a schedule would cost."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.accelerator.null import NullAccelerator, VirtualClock
from engine.core import Engine

if TYPE_CHECKING:
    from engine.accelerator.interface import GraphRecorder
    from engine.config import EngineConfig
    from engine.models.null import NullSource


def simulate(
    config: EngineConfig,
    source: NullSource,
    *,
    host_tick_ns: int = 0,
    recorder: GraphRecorder | None = None,
) -> tuple[Engine, NullAccelerator]:
    """An engine whose steps take what `source` says they cost, and its device.

    Time is `device.clock`: it passes when the engine waits for the device, by `host_tick_ns`
    whenever the engine looks at it, and when the caller says so. A padded step, which a device
    with a `recorder` is given, costs what it is padded to. ConfigError as from any engine.
    """
    clock = VirtualClock(host_tick_ns)
    device = NullAccelerator(clock, step_seconds=source.meter.take)
    device.recorder = recorder
    return Engine(config, source=source, clock_ns=clock, accelerator=device), device
