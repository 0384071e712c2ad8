"""What NVML tells about the NVIDIA devices of this host that does not change from instant to
instant: names, limits, modes, clocks, links. Names of fields are those of the manifest.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import ModuleType

from experiments.errors import TelemetryError
from experiments.nvidia import throttle_names

NVLINKS = 18
"""The most links that a device has had so far."""
TOPOLOGY = {
    0: "one board", 10: "one switch", 20: "several switches", 30: "one host bridge",
    40: "one NUMA node", 50: "across NUMA nodes",
}  # fmt: skip
"""nvmlGpuTopologyLevel: what the way between two devices crosses; NVLinks aside."""
COMPUTE_MODES = {0: "default", 1: "exclusive thread", 2: "prohibited", 3: "exclusive process"}

Answer = str | int | float | bool | list[str] | None


@dataclass(frozen=True, kw_only=True)
class NvidiaHost:
    """Driver and devices. `reasons`: why a field is None, `devices[0].mig` for one of a device."""

    driver: str | None
    cuda_driver: float | None
    nvml: str | None
    topology: dict[str, str] | None
    devices: list[dict[str, Answer]]
    reasons: dict[str, str] = field(default_factory=dict[str, str])


def nvidia_host() -> NvidiaHost:
    """TelemetryError where there is no driver or no binding; a refused question is None."""
    with _session() as nvml:
        count = int(nvml.nvmlDeviceGetCount())
        handles = [nvml.nvmlDeviceGetHandleByIndex(index) for index in range(count)]
        reasons: dict[str, str] = {}
        devices: list[dict[str, Answer]] = []
        for index, handle in enumerate(handles):
            asked = {name: _ask(nvml, ask, handle) for name, ask in _FIELDS.items()}
            devices.append({"index": index, **{name: value for name, (value, _) in asked.items()}})
            reasons |= {f"devices[{index}].{n}": why for n, (_, why) in asked.items() if why}
        return NvidiaHost(
            driver=_words(_ask(nvml, lambda n, _: n.nvmlSystemGetDriverVersion(), None)[0]),
            cuda_driver=_cuda(nvml),
            nvml=_words(_ask(nvml, lambda n, _: n.nvmlSystemGetNVMLVersion(), None)[0]),
            topology=_topology(nvml, handles),
            devices=devices,
            reasons=reasons,
        )


def nvidia_uuids() -> list[str]:
    """The UUIDs of all devices of this host. TelemetryError as `nvidia_host`."""
    return [str(device["uuid"]) for device in nvidia_host().devices]


@contextmanager
def _session() -> Generator[ModuleType]:
    try:
        import pynvml
    except ImportError as error:
        raise TelemetryError("nvidia-ml-py is not installed") from error
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        raise TelemetryError(f"no NVIDIA driver answers ({error})") from error
    try:
        yield pynvml
    finally:
        pynvml.nvmlShutdown()


Ask = Callable[[ModuleType, object], Answer]


def _ask(nvml: ModuleType, ask: Ask, handle: object) -> tuple[Answer, str | None]:
    try:
        return _text(ask(nvml, handle)), None
    except (nvml.NVMLError, AttributeError) as error:  # AttributeError: an older binding
        return None, str(error) or type(error).__name__


def _text(value: object) -> Answer:
    """NVML gives bytes or text by its version."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value  # type: ignore[return-value]


def _words(answer: Answer) -> str | None:
    return None if answer is None else str(answer)


def _cuda(nvml: ModuleType) -> float | None:
    version, _ = _ask(nvml, lambda n, _: n.nvmlSystemGetCudaDriverVersion(), None)
    return version // 1000 + version % 1000 // 10 / 10 if isinstance(version, int) else None


def _topology(nvml: ModuleType, handles: list[object]) -> dict[str, str] | None:
    """`0-1` -> what lies between the devices 0 and 1; None for one device alone."""
    found: dict[str, str] = {}
    for first in range(len(handles)):
        for second in range(first + 1, len(handles)):
            level, _ = _ask(
                nvml,
                lambda n, pair: n.nvmlDeviceGetTopologyCommonAncestor(*pair),  # type: ignore[misc]
                (handles[first], handles[second]),
            )
            if isinstance(level, int):
                found[f"{first}-{second}"] = TOPOLOGY.get(level, str(level))
    return found or None


def _nvlinks(nvml: ModuleType, handle: object) -> int:
    """Links that are up; a device asked for a link that it does not have refuses."""
    up = 0
    for link in range(NVLINKS):
        state, _ = _ask(nvml, lambda n, h, at=link: n.nvmlDeviceGetNvLinkState(h, at), handle)
        up += state == 1
    return up


def _capability(nvml: ModuleType, handle: object) -> str:
    major, minor = nvml.nvmlDeviceGetCudaComputeCapability(handle)
    return f"{major}.{minor}"


_FIELDS: dict[str, Ask] = {
    "name": lambda n, h: n.nvmlDeviceGetName(h),
    "uuid": lambda n, h: n.nvmlDeviceGetUUID(h),
    "vbios": lambda n, h: n.nvmlDeviceGetVbiosVersion(h),
    "pci_bus_id": lambda n, h: _text(n.nvmlDeviceGetPciInfo(h).busId),
    "pcie_generation": lambda n, h: n.nvmlDeviceGetCurrPcieLinkGeneration(h),
    "pcie_width": lambda n, h: n.nvmlDeviceGetCurrPcieLinkWidth(h),
    "numa_node": lambda n, h: n.nvmlDeviceGetNumaNodeId(h),
    "nvlinks": _nvlinks,
    "compute_capability": _capability,
    "cores": lambda n, h: n.nvmlDeviceGetNumGpuCores(h),
    "memory_bytes": lambda n, h: n.nvmlDeviceGetMemoryInfo(h).total,
    "memory_used_bytes": lambda n, h: n.nvmlDeviceGetMemoryInfo(h).used,
    "power_limit_w": lambda n, h: n.nvmlDeviceGetEnforcedPowerLimit(h) / 1000,
    "power_limit_default_w": lambda n, h: n.nvmlDeviceGetPowerManagementDefaultLimit(h) / 1000,
    "power_limit_least_w": lambda n, h: n.nvmlDeviceGetPowerManagementLimitConstraints(h)[0] / 1000,
    "power_limit_most_w": lambda n, h: n.nvmlDeviceGetPowerManagementLimitConstraints(h)[1] / 1000,
    "sm_clock_mhz": lambda n, h: n.nvmlDeviceGetClockInfo(h, 1),
    "sm_clock_max_mhz": lambda n, h: n.nvmlDeviceGetMaxClockInfo(h, 1),
    "sm_clock_application_mhz": lambda n, h: n.nvmlDeviceGetApplicationsClock(h, 1),
    "memory_clock_mhz": lambda n, h: n.nvmlDeviceGetClockInfo(h, 2),
    "memory_clock_max_mhz": lambda n, h: n.nvmlDeviceGetMaxClockInfo(h, 2),
    "temperature_c": lambda n, h: n.nvmlDeviceGetTemperature(h, 0),
    "ecc": lambda n, h: n.nvmlDeviceGetEccMode(h)[0] == 1,
    "mig": lambda n, h: n.nvmlDeviceGetMigMode(h)[0] == 1,
    "persistence": lambda n, h: n.nvmlDeviceGetPersistenceMode(h) == 1,
    "compute_mode": lambda n, h: COMPUTE_MODES.get(n.nvmlDeviceGetComputeMode(h)),
    "throttle_reasons": lambda n, h: list(
        throttle_names(n.nvmlDeviceGetCurrentClocksThrottleReasons(h))
    ),
    "energy_counter": lambda n, h: n.nvmlDeviceGetTotalEnergyConsumption(h) >= 0,
    "processes": lambda n, h: len(n.nvmlDeviceGetComputeRunningProcesses(h)),
}
"""Field of the manifest -> the question. `sm_clock_application_mhz` below the maximum: somebody
set it. Whether clocks are locked (`nvidia-smi -lgc`) NVML does not tell."""
