"""Readings of NVIDIA devices through NVML, where the driver and its Python binding are there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import ModuleType


@dataclass(frozen=True, kw_only=True)
class DeviceReading:
    """One device at one instant. None = this device does not tell."""

    index: int
    power_w: float | None
    energy_j: float | None  # since the driver was loaded
    memory_bytes: int | None
    clock_mhz: float | None


class NvidiaReader:
    """An open NVML session over some devices of the host."""

    def __init__(self, nvml: ModuleType, uuids: Sequence[str]) -> None:
        self._nvml = nvml
        handles = [nvml.nvmlDeviceGetHandleByUUID(uuid) for uuid in uuids]
        self._handles = {nvml.nvmlDeviceGetIndex(handle): handle for handle in handles}

    @classmethod
    def find(cls, uuids: Sequence[str]) -> NvidiaReader | None:
        """A session over the devices named; None on a host without NVML, its binding or them."""
        try:
            import pynvml
        except ImportError:
            return None
        try:
            pynvml.nvmlInit()
            return cls(pynvml, uuids)
        except pynvml.NVMLError:
            return None

    def read(self) -> list[DeviceReading]:
        """These devices now. NVML gives milliwatts and millijoules."""
        nvml = self._nvml
        return [
            DeviceReading(
                index=index,
                power_w=self._try(nvml.nvmlDeviceGetPowerUsage, handle, scale=1e-3),
                energy_j=self._try(nvml.nvmlDeviceGetTotalEnergyConsumption, handle, scale=1e-3),
                memory_bytes=self._memory_bytes(handle),
                clock_mhz=self._try(
                    lambda h: nvml.nvmlDeviceGetClockInfo(h, nvml.NVML_CLOCK_SM), handle
                ),
            )
            for index, handle in self._handles.items()
        ]

    def close(self) -> None:
        """End the session."""
        self._nvml.nvmlShutdown()

    def _memory_bytes(self, handle: object) -> int | None:
        used = self._try(lambda h: self._nvml.nvmlDeviceGetMemoryInfo(h).used, handle)
        return None if used is None else int(used)

    def _try(
        self, ask: Callable[[object], float], handle: object, *, scale: float = 1.0
    ) -> float | None:
        try:
            return ask(handle) * scale
        except self._nvml.NVMLError:
            return None
