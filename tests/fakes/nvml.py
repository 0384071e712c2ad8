"""A pynvml whose devices follow a script: known power, and the faults that drivers have."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace

NOT_SUPPORTED, NO_PERMISSION, NOT_FOUND, GPU_IS_LOST = 3, 4, 6, 15
WORDS = {3: "Not Supported", 4: "Insufficient Permissions", 6: "Not Found", 15: "GPU is lost"}


class NVMLError(Exception):
    """As pynvml raises it: the code in `value`."""

    def __init__(self, value: int) -> None:
        self.value = value
        super().__init__(WORDS[value])


@dataclass(frozen=True)
class Power:
    """Watts that change at instants, and the joules until any instant, exactly."""

    steps: tuple[tuple[float, float], ...]  # (from when, watts), from 0 on

    @classmethod
    def of(cls, *steps: tuple[float, float]) -> Power:
        return cls(steps)

    def watts(self, time_s: float) -> float:
        return next(w for start, w in reversed(self.steps) if start <= time_s)

    def joules(self, time_s: float) -> float:
        ends = [start for start, _ in self.steps[1:]] + [float("inf")]
        return sum(
            watts * max(0.0, min(time_s, end) - start)
            for (start, watts), end in zip(self.steps, ends, strict=True)
        )


@dataclass
class FakeDevice:
    """One scripted device. `refuses` maps a function's name to the error code it gives."""

    uuid: str = "GPU-0"
    name: str = "NVIDIA H200"
    power: Power = field(default_factory=lambda: Power.of((0.0, 100.0)))
    counter_every_s: float = 0.0  # the counter moves in steps of this; 0: always
    counter_scale: float = 1000.0  # counts a joule; 1000 is what NVML promises
    reset_at_s: float | None = None
    has_instant_power: bool = True
    pids: Sequence[int] = ()
    throttle_bits: int = 0
    clock_mhz: int = 1980
    temperature_c: int = 55
    mig: bool = False
    persistence: bool = True
    ecc: bool = True
    power_limit_w: float = 700.0
    default_power_limit_w: float = 700.0
    application_clock_mhz: int = 1980
    refuses: dict[str, int] = field(default_factory=dict)

    def count(self, time_s: float) -> int:
        """The counter's reading."""
        if self.counter_every_s:
            time_s = int(time_s / self.counter_every_s + 1e-9) * self.counter_every_s
        joules = self.power.joules(time_s)
        if self.reset_at_s is not None and time_s >= self.reset_at_s:
            joules -= self.power.joules(self.reset_at_s)
        return int(joules * self.counter_scale)


class FakeNvml:
    """Stands for the module: `monkeypatch.setitem(sys.modules, "pynvml", FakeNvml(...))`.

    Time is `now_s()`. A function that is not written here is one the driver does not support.
    Handles are the devices themselves; calls are counted by name.
    """

    NVMLError = NVMLError
    NVML_SUCCESS = 0
    NVML_ERROR_NOT_SUPPORTED = NOT_SUPPORTED
    NVML_FI_DEV_POWER_AVERAGE, NVML_FI_DEV_POWER_INSTANT = 185, 186

    def __init__(
        self, devices: Sequence[FakeDevice], now_s: Callable[[], float] = lambda: 0.0
    ) -> None:
        self.devices = list(devices)
        self.now_s = now_s
        self.sessions = 0
        self.calls: list[str] = []

    def __getattribute__(self, name: str):
        found = object.__getattribute__(self, name) if name in _KNOWN else None
        if found is None and not name.startswith("nvml"):
            return object.__getattribute__(self, name)
        return lambda *arguments: self._call(name, found, arguments)

    def _call(self, name, answer, arguments):
        self.calls.append(name)
        device = arguments[0] if arguments and isinstance(arguments[0], FakeDevice) else None
        if device is not None and name in device.refuses:
            raise NVMLError(device.refuses[name])
        if answer is None:
            raise NVMLError(NOT_SUPPORTED)
        return answer(*arguments)

    def nvmlInit(self):
        self.sessions += 1

    def nvmlShutdown(self):
        self.sessions -= 1

    def nvmlSystemGetDriverVersion(self):
        return b"580.159.03"

    def nvmlSystemGetCudaDriverVersion(self):
        return 13000

    def nvmlSystemGetNVMLVersion(self):
        return "13.580.159"

    def nvmlDeviceGetCount(self):
        return len(self.devices)

    def nvmlDeviceGetHandleByIndex(self, index):
        return self.devices[index]

    def nvmlDeviceGetHandleByUUID(self, uuid):
        found = next((device for device in self.devices if device.uuid == uuid), None)
        if found is None:
            raise NVMLError(NOT_FOUND)
        return found

    def nvmlDeviceGetDeviceHandleFromMigDeviceHandle(self, device):
        return device

    def nvmlDeviceGetIndex(self, device):
        return next(i for i, one in enumerate(self.devices) if one is device)

    def nvmlDeviceGetName(self, device):
        return device.name

    def nvmlDeviceGetUUID(self, device):
        return device.uuid

    def nvmlDeviceGetVbiosVersion(self, device):
        return "96.00.D0.00.01"

    def nvmlDeviceGetPciInfo(self, device):
        return SimpleNamespace(busId=f"00000000:{self.nvmlDeviceGetIndex(device):02X}:00.0")

    def nvmlDeviceGetTotalEnergyConsumption(self, device):
        return device.count(self.now_s())

    def nvmlDeviceGetPowerUsage(self, device):
        now_s = self.now_s()
        since_s = max(0.0, now_s - 1.0)  # the mean of the last second
        if now_s <= since_s:
            return int(device.power.watts(now_s) * 1000)
        joules = device.power.joules(now_s) - device.power.joules(since_s)
        return int(joules / (now_s - since_s) * 1000)

    def nvmlDeviceGetFieldValues(self, device, ids):
        mean = self.nvmlDeviceGetPowerUsage(device)
        instant = int(device.power.watts(self.now_s()) * 1000)
        code = 0 if device.has_instant_power else NOT_SUPPORTED
        watts = {self.NVML_FI_DEV_POWER_AVERAGE: mean, self.NVML_FI_DEV_POWER_INSTANT: instant}
        return [
            SimpleNamespace(nvmlReturn=code, valueType=1, value=SimpleNamespace(uiVal=watts[one]))
            for one in ids
        ]

    def nvmlDeviceGetMemoryInfo(self, device):
        return SimpleNamespace(total=141 << 30, used=20 << 30, free=121 << 30)

    def nvmlDeviceGetClockInfo(self, device, kind):
        return {1: device.clock_mhz, 2: 3201}[kind]

    def nvmlDeviceGetMaxClockInfo(self, device, kind):
        return {1: 1980, 2: 3201}[kind]

    def nvmlDeviceGetApplicationsClock(self, device, kind):
        return {1: device.application_clock_mhz, 2: 3201}[kind]

    def nvmlDeviceGetTemperature(self, device, sensor):
        return device.temperature_c

    def nvmlDeviceGetUtilizationRates(self, device):
        return SimpleNamespace(gpu=97, memory=40)

    def nvmlDeviceGetEnforcedPowerLimit(self, device):
        return int(device.power_limit_w * 1000)

    def nvmlDeviceGetPowerManagementDefaultLimit(self, device):
        return int(device.default_power_limit_w * 1000)

    def nvmlDeviceGetPowerManagementLimitConstraints(self, device):
        return [200_000, 700_000]

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, device):
        return device.throttle_bits

    def nvmlDeviceGetComputeRunningProcesses(self, device):
        return [SimpleNamespace(pid=pid, usedGpuMemory=1 << 30) for pid in device.pids]

    def nvmlDeviceGetGraphicsRunningProcesses(self, device):
        return []

    def nvmlDeviceGetMigMode(self, device):
        return [int(device.mig), int(device.mig)]

    def nvmlDeviceGetEccMode(self, device):
        return [int(device.ecc), int(device.ecc)]

    def nvmlDeviceGetPersistenceMode(self, device):
        return int(device.persistence)

    def nvmlDeviceGetComputeMode(self, device):
        return 0

    def nvmlDeviceGetCudaComputeCapability(self, device):
        return (9, 0)

    def nvmlDeviceGetNumGpuCores(self, device):
        return 16896

    def nvmlDeviceGetCurrPcieLinkGeneration(self, device):
        return 5

    def nvmlDeviceGetCurrPcieLinkWidth(self, device):
        return 16

    def nvmlDeviceGetNumaNodeId(self, device):
        return 0

    def nvmlDeviceGetNvLinkState(self, device, link):
        return int(link < 18)

    def nvmlDeviceGetTopologyCommonAncestor(self, one, other):
        return 30


_KNOWN = frozenset(name for name in vars(FakeNvml) if name.startswith("nvml"))


def ticks(end_s: float, every_s: float = 0.1, jitter: Sequence[float] = (0.0,)) -> list[float]:
    """Instants from 0 to at least `end_s`, each late by the next of `jitter`."""
    count = int(end_s / every_s) + 2
    late = itertools.islice(itertools.cycle(jitter), count)
    return [i * every_s + extra for i, extra in enumerate(late)]
