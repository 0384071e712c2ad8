"""Watches the host, and its NVIDIA devices, while a trial runs."""

from __future__ import annotations

import contextlib
import threading
from dataclasses import replace
from typing import Protocol

import psutil

from experiments.clock import Clock
from experiments.nvidia import DeviceReading, NvidiaReader
from experiments.records import TelemetrySample
from experiments.targets.base import TargetFacts


class Observer(Protocol):
    """Collects samples between `start` and `stop`."""

    def start(self, clock: Clock, origin_ns: int, facts: TargetFacts) -> None:
        """Begin; instants count from `origin_ns` of the clock."""
        ...

    def stop(self) -> tuple[TelemetrySample, ...]:
        """End, and give the samples in order of time. Harmless when not started."""
        ...


class NoObserver:
    """Watches nothing: for simulations and tests."""

    def start(self, clock: Clock, origin_ns: int, facts: TargetFacts) -> None:
        """Nothing to start."""

    def stop(self) -> tuple[TelemetrySample, ...]:
        """No sample."""
        return ()


class HostObserver:
    """A thread that samples CPU, memory of this process and its children, and devices.

    Only the devices that the target was given are read. A value that the host cannot tell
    stays None.
    """

    def __init__(self, interval_s: float = 0.25) -> None:
        self._interval_s = interval_s
        self._thread: threading.Thread | None = None
        self._ended = threading.Event()
        self._samples: list[TelemetrySample] = []

    def start(self, clock: Clock, origin_ns: int, facts: TargetFacts) -> None:
        """One sample before this returns, then one every interval."""
        self.stop()
        self._ended.clear()
        self._samples = []
        reader = NvidiaReader.find(facts.device_uuids) if facts.device_uuids else None
        psutil.cpu_percent(None)  # the first reading has nothing to compare with
        first = self._sampled(clock, origin_ns, reader)
        self._samples = [replace(sample, cpu_percent=None) for sample in first]
        self._thread = threading.Thread(
            target=self._watch, args=(clock, origin_ns, reader), name="observer", daemon=True
        )
        self._thread.start()

    def stop(self) -> tuple[TelemetrySample, ...]:
        """Waits for the last sample."""
        if self._thread is not None:
            self._ended.set()
            self._thread.join()
            self._thread = None
        return tuple(self._samples)

    def _watch(self, clock: Clock, origin_ns: int, reader: NvidiaReader | None) -> None:
        ended = False
        while not ended:
            ended = self._ended.wait(self._interval_s)
            self._samples += self._sampled(clock, origin_ns, reader)
        if reader:
            reader.close()

    @staticmethod
    def _sampled(
        clock: Clock, origin_ns: int, reader: NvidiaReader | None
    ) -> list[TelemetrySample]:
        """The devices first: their counters belong to the instant."""
        time_s = (clock.now_ns() - origin_ns) / 1e9
        return _samples(time_s, reader.read() if reader else [])


def _samples(time_s: float, readings: list[DeviceReading]) -> list[TelemetrySample]:
    """The host's values go with the first device, so that a mean over samples counts them once."""
    host = TelemetrySample(
        time_s=time_s, cpu_percent=psutil.cpu_percent(None), memory_bytes=_memory_bytes()
    )
    devices = [
        TelemetrySample(
            time_s=time_s,
            device_index=reading.index,
            device_power_w=reading.power_w,
            device_energy_j=reading.energy_j,
            device_memory_bytes=reading.memory_bytes,
            device_clock_mhz=reading.clock_mhz,
        )
        for reading in readings
    ]
    return [host, *devices]


def _memory_bytes() -> int:
    """Resident memory of this process and every process it started."""
    me = psutil.Process()
    total = me.memory_info().rss
    for child in me.children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):
            total += child.memory_info().rss
    return total
