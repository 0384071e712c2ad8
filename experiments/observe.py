"""Watches the host, and the devices of the engine, while a trial runs."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

import psutil

from experiments.clock import Clock
from experiments.devices import Allocation, DeviceReader, find_reader
from experiments.errors import TelemetryError
from experiments.host_energy import HostEnergy
from experiments.process_tree import ProcessTree
from experiments.records import TelemetrySample

INTERVAL_S = 0.1
SLOWEST_S = 0.5
LATEST_OF = 128
"""Samples among which the newest of every device is found."""
MOST_SHARE = 0.1
"""Of the time that may go into reading: slow devices are read less often, up to SLOWEST_S."""


class Observer(Protocol):
    """Collects samples between `start` and `stop`."""

    def idle_power_w(self, clock: Clock, facts: Allocation, seconds: float) -> float | None:
        """Mean watts of all devices of the engine over `seconds`; None where one does not tell.

        Nothing may be in flight. Takes no time where the engine has no device that tells.
        """
        ...

    def start(self, clock: Clock, origin_ns: int, facts: Allocation) -> None:
        """Begin; instants count from `origin_ns` of the clock."""
        ...

    def stop(self) -> tuple[TelemetrySample, ...]:
        """End, and give the samples in order of time. Harmless when not started."""
        ...


class NoObserver:
    """Watches nothing: for simulations and tests."""

    def idle_power_w(self, clock: Clock, facts: Allocation, seconds: float) -> float | None:
        """Not known."""

    def start(self, clock: Clock, origin_ns: int, facts: Allocation) -> None:
        """Nothing to start."""

    def stop(self) -> tuple[TelemetrySample, ...]:
        """No sample."""
        return ()


class HostObserver:
    """A thread that reads CPU, memory of this process and its children, and devices.

    Only the devices that the target was given are read. A value that the host cannot tell
    stays None; why no device can be read stands in the host's rows.
    """

    def __init__(self, interval_s: float = INTERVAL_S) -> None:
        self._interval_s = interval_s
        self._thread: threading.Thread | None = None
        self._ended = threading.Event()
        self._samples: list[TelemetrySample] = []

    def idle_power_w(self, clock: Clock, facts: Allocation, seconds: float) -> float | None:
        """From readings an interval apart."""
        reader, _ = _reader(facts)
        if reader is None:
            return None
        watts: list[float | None] = []
        try:
            until_s = clock.now_ns() / 1e9 + seconds
            while clock.now_ns() / 1e9 < until_s:
                watts.append(_all_power_w(reader.read(clock.now_ns() / 1e9), facts.devices))
                if watts[-1] is None:
                    return None
                clock.sleep(max(self._interval_s, reader.interval_s))
        finally:
            reader.close()
        told = [w for w in watts if w is not None]
        return sum(told) / len(told) if told else None

    def start(self, clock: Clock, origin_ns: int, facts: Allocation) -> None:
        """One reading before this returns, then one every interval."""
        self.stop()
        self._ended.clear()
        instruments = Instruments(clock, origin_ns, facts)
        first = instruments.look()
        unknown = {"cpu_percent": None, "own_cpu_percent": None}  # nothing came before them
        self._samples = [replace(sample, **unknown) for sample in first]
        self._thread = threading.Thread(
            target=self._watch, args=(instruments,), name="observer", daemon=True
        )
        self._thread.start()

    def stop(self) -> tuple[TelemetrySample, ...]:
        """Waits for the last sample."""
        if self._thread is not None:
            self._ended.set()
            self._thread.join()
            self._thread = None
        return tuple(self._samples)

    def latest(self) -> tuple[TelemetrySample, ...]:
        """The host and every device, as last read; nothing before `start`. Any thread."""
        samples = self._samples
        newest = {sample.device_index: sample for sample in samples[-LATEST_OF:]}
        return tuple(newest.values()) if self._thread is not None else ()

    def _watch(self, instruments: Instruments) -> None:
        """Instants are multiples of the interval, so that the time of reading adds no drift."""
        ended, next_s = False, instruments.now_s()
        while not ended:
            next_s += self._interval_s
            now_s = instruments.now_s()
            pause_s = min(instruments.took_s / MOST_SHARE, SLOWEST_S)
            next_s = max(next_s, now_s, instruments.read_s + pause_s)
            ended = self._ended.wait(next_s - now_s)
            self._samples += instruments.look()
        instruments.close()


class Instruments:
    """Everything that is read at one instant, and how long that took. One thread uses it."""

    def __init__(self, clock: Clock, origin_ns: int, facts: Allocation) -> None:
        self._clock = clock
        self._origin_ns = origin_ns
        self._reader, self._reason = _reader(facts)
        self._devices_at_s: float | None = None
        self._tree = ProcessTree()
        self._own_cpu = OwnCpu(self._tree)
        self._host_energy = HostEnergy()
        self.read_s = 0.0
        self.took_s = 0.0
        psutil.cpu_percent(None)  # the first answer has nothing to compare with

    def now_s(self) -> float:
        """Seconds on the trial's clock."""
        return (self._clock.now_ns() - self._origin_ns) / 1e9

    def look(self) -> list[TelemetrySample]:
        """The host's row, then the devices'. They are read first: counters are of the instant."""
        time_s = self.read_s = self.now_s()
        devices = self._read_devices(time_s)
        host = TelemetrySample(
            time_s=time_s,
            cpu_percent=psutil.cpu_percent(None),
            own_cpu_percent=self._own_cpu.percent(time_s),
            memory_bytes=self._tree.memory_bytes(time_s),
            host_energy_j=self._host_energy.read_j(),
            telemetry_reason=self._reason,
        )
        self.took_s = self.now_s() - time_s
        return [host, *devices]

    def close(self) -> None:
        """Give the devices back."""
        if self._reader is not None:
            self._reader.close()

    def _read_devices(self, time_s: float) -> list[TelemetrySample]:
        if self._reader is None:
            return []
        due = self._devices_at_s is None or time_s >= self._devices_at_s + self._reader.interval_s
        if not due:
            return []
        self._devices_at_s = time_s
        return self._reader.read(time_s)


class OwnCpu:
    """The share of all processors that a process tree took between two readings."""

    def __init__(self, tree: ProcessTree, processors: int | None = None) -> None:
        self._tree = tree
        self._processors = processors or psutil.cpu_count() or 1
        self._before: tuple[float, float] | None = None  # time, processor seconds

    def percent(self, time_s: float) -> float | None:
        """Since the last call; None for the first, and where no time has passed."""
        before, now = self._before, (time_s, self._tree.cpu_s(time_s))
        self._before = now
        if before is None or now[0] <= before[0]:
            return None
        share = (now[1] - before[1]) / (now[0] - before[0]) / self._processors
        return 100 * max(0.0, share)


def _reader(facts: Allocation) -> tuple[DeviceReader | None, str | None]:
    """A reader of the engine's devices, or why there is none; neither: it has no device."""
    if not facts.device_uuids:
        return None, None
    try:
        return find_reader(facts.device_uuids), None
    except TelemetryError as error:
        return None, str(error)


def _all_power_w(rows: Sequence[TelemetrySample], devices: int | None) -> float | None:
    """Watts of all devices together; None unless every one of them tells."""
    told = [row.device_power_w for row in rows if row.device_power_w is not None]
    return sum(told) if told and len(told) == devices else None
