"""Are the devices' own numbers to be trusted here? `python -m experiments.device_check --help`.

Reads the devices while a load runs on the first of them, and says: what they tell, what reading
costs, how often the energy counter moves, and whether counter and integral of power agree.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import islice, pairwise

from kernels.interrupt import quiet_imports

with quiet_imports(__name__):
    from engine.accelerator.find import find_accelerator
    from engine.choices import AcceleratorKind
    from experiments.ascend import ascend_chips
    from experiments.clock import Clock, SystemClock
    from experiments.device_metrics import device_metrics
    from experiments.devices import find_reader
    from experiments.errors import TelemetryError
    from experiments.measurement import Measurement
    from experiments.nvidia_facts import nvidia_uuids
    from experiments.observe import INTERVAL_S, HostObserver, Instruments
    from experiments.records import MetricValue, TelemetrySample
    from kernels.program import ended

READS = 50
STEP_S = 1.0
"""How long the energy counter is watched for its steps."""
IDLE_S = 1.0
AGREES = 0.05

Work = Callable[[], None]
"""A small piece of load on the first device; returns when the device has done it."""


@dataclass(frozen=True, kw_only=True)
class DeviceCheck:
    """What was found. `problems` is empty where everything can be had and agrees."""

    devices: tuple[str, ...]
    load: str
    reading: tuple[TelemetrySample, ...]  # one row a device, under load
    read_p50_s: float  # of host and devices together
    read_max_s: float
    read_cpu_share: float  # of one core, at the observer's pace
    counter_step_s: float | None  # median time between two values; None: it did not move
    load_slowed: float | None  # share of the load's speed that observing cost; noise may be < 0
    metrics: dict[str, MetricValue]  # over the load, as a trial would have them
    problems: tuple[str, ...]


@dataclass(frozen=True)
class _Given:
    """The devices that are checked, as an observer takes them."""

    device_uuids: tuple[str, ...]

    @property
    def devices(self) -> int:
        """All of them."""
        return len(self.device_uuids)


def check(
    identities: Sequence[str], work: Work | None, *, seconds: float, clock: Clock, load: str
) -> DeviceCheck:
    """Watch the devices for `seconds` under `work`; None: under whatever runs on them already.

    TelemetryError where they cannot be read at all.
    """
    given = _Given(tuple(identities))
    find_reader(identities).close()
    observer = HostObserver()
    idle_w = observer.idle_power_w(clock, given, IDLE_S)
    alone = _speed(work, seconds / 2, clock)
    origin_ns = clock.now_ns()
    observer.start(clock, origin_ns, given)
    start_s = (clock.now_ns() - origin_ns) / 1e9
    beside = _speed(work, seconds, clock)
    window_s = (start_s, (clock.now_ns() - origin_ns) / 1e9)
    telemetry = observer.stop()
    watched = Measurement(
        requests=(),
        window_s=window_s,
        devices=given.devices,
        telemetry=telemetry,
        idle_power_w=idle_w,
    )
    metrics = device_metrics(watched)
    reading = _reading(telemetry, sum(window_s) / 2, given.devices)
    durations, cpu_share = _cost(given, clock)
    return DeviceCheck(
        devices=given.device_uuids,
        load=load,
        reading=reading,
        read_p50_s=statistics.median(durations),
        read_max_s=max(durations),
        read_cpu_share=cpu_share,
        counter_step_s=_counter_step_s(identities, clock),
        load_slowed=1 - beside / alone if alone and beside else None,
        metrics=metrics,
        problems=tuple(_problems(reading, metrics)),
    )


def matrix_work() -> tuple[Work, str, str] | None:
    """Products of large matrices on the first device: the work, its device's identity, its name.

    None on a host whose torch sees no device.
    """
    import torch

    accelerator = find_accelerator(AcceleratorKind.AUTO)
    identity = accelerator.uuid()
    if identity is None:
        return None
    left = torch.randn(8192, 8192, device=accelerator.device, dtype=torch.bfloat16)
    into = torch.empty_like(left)

    def work() -> None:
        for _ in range(8):
            torch.mm(left, left, out=into)
        accelerator.synchronize()

    return work, identity, f"products of 8192 x 8192 bfloat16 matrices on {accelerator.name()}"


def host_devices() -> list[str]:
    """Identities of every device of this host. TelemetryError where none can be read."""
    try:
        return nvidia_uuids()
    except TelemetryError as no_nvidia:
        try:
            return [chip.identities[0] for chip in ascend_chips()]
        except TelemetryError as no_ascend:
            raise TelemetryError(f"{no_nvidia}; {no_ascend}", where="devices") from no_ascend


def _reading(
    telemetry: Sequence[TelemetrySample], from_s: float, devices: int
) -> tuple[TelemetrySample, ...]:
    """One row a device, of the first instant at or after `from_s`."""
    late = (s for s in telemetry if s.device_index is not None and s.time_s >= from_s)
    return tuple(islice(late, devices))


def _speed(work: Work | None, seconds: float, clock: Clock) -> float | None:
    """Pieces of work a second; None without work, which only waits."""
    if work is None:
        clock.sleep(seconds)
        return None
    begun_ns, count = clock.now_ns(), 0
    while clock.now_ns() - begun_ns < seconds * 1e9:
        work()
        count += 1
    return count / ((clock.now_ns() - begun_ns) / 1e9)


def _cost(given: _Given, clock: Clock) -> tuple[list[float], float]:
    """Seconds of each reading, and the share of a core that readings at the usual pace take."""
    instruments = Instruments(clock, clock.now_ns(), given)
    durations: list[float] = []
    cpu_ns = 0
    for _ in range(READS):
        begun_ns, cpu_begun_ns = clock.now_ns(), time.thread_time_ns()
        instruments.look()
        cpu_ns += time.thread_time_ns() - cpu_begun_ns
        durations.append((clock.now_ns() - begun_ns) / 1e9)
        clock.sleep(INTERVAL_S / 10)
    instruments.close()
    return durations, cpu_ns / READS / (INTERVAL_S * 1e9)


def _counter_step_s(identities: Sequence[str], clock: Clock) -> float | None:
    """Median time between two values of the first device's counter, read as fast as it goes."""
    reader = find_reader(identities[:1])
    changes: list[float] = []
    last: float | None = None
    begun_s = clock.now_ns() / 1e9
    while (now_s := clock.now_ns() / 1e9) - begun_s < STEP_S:
        joules = reader.read(now_s)[0].device_energy_j
        if joules is not None and joules != last:
            changes.append(now_s)
            last = joules
        clock.sleep(1e-3)
    reader.close()
    gaps = [later - earlier for earlier, later in pairwise(changes[1:])]
    return statistics.median(gaps) if gaps else None


def _problems(reading: Sequence[TelemetrySample], metrics: dict[str, MetricValue]) -> Iterator[str]:
    for row in reading:
        missing = [name for name, value in asdict(row).items() if value is None and _told(name)]
        if missing:
            why = f" ({row.telemetry_reason})" if row.telemetry_reason else ""
            yield f"device {row.device_index} does not tell {', '.join(missing)}{why}"
    agreement = metrics["energy_agreement"]
    if agreement.value is None:
        yield f"counter and power cannot be held against each other: {agreement.reason}"
    elif abs(agreement.value - 1) > AGREES:
        yield f"integral of power over energy counter is {agreement.value:.3f}, not 1 +- {AGREES}"
    if metrics["throttled_share"].value:
        yield "the device throttled under the load"


def _told(name: str) -> bool:
    return name.startswith("device_") or name in ("throttle_reasons", "foreign_processes")


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the check as JSON; exit code 1 where there is a problem or no device."""
    parser = argparse.ArgumentParser(prog="python -m experiments.device_check", description=__doc__)
    parser.add_argument("--seconds", type=float, default=5.0, help="how long the load runs")
    parser.add_argument("--no-load", action="store_true", help="watch whatever runs already")
    asked = parser.parse_args(arguments)
    found = run(seconds=asked.seconds, with_load=not asked.no_load)
    sys.stdout.write(json.dumps(asdict(found), indent=1) + "\n")
    return 1 if found.problems else 0


def run(*, seconds: float, with_load: bool) -> DeviceCheck:
    """The check of this host: with a load of its own on one device, or of all devices as they are.

    TelemetryError where there is no device.
    """
    clock = SystemClock()
    made = matrix_work() if with_load else None
    if made is None:
        return check(host_devices(), None, seconds=seconds, clock=clock, load="none of its own")
    work, identity, name = made
    return check([identity], work, seconds=seconds, clock=clock, load=name)


if __name__ == "__main__":
    sys.exit(ended(main))
