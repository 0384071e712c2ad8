"""Readings of NVIDIA devices through NVML, where the driver and its Python binding are there."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import ModuleType

from experiments.errors import TelemetryError
from experiments.process_tree import own_pids
from experiments.records import TelemetrySample

SLOW_S = 1.0
"""How often what rarely changes is asked: processes and the power limit."""

REASON_BITS = {
    0x1: "gpu_idle",
    0x2: "applications_clocks_setting",
    0x4: "sw_power_cap",
    0x8: "hw_slowdown",
    0x10: "sync_boost",
    0x20: "sw_thermal_slowdown",
    0x40: "hw_thermal_slowdown",
    0x80: "hw_power_brake_slowdown",
    0x100: "display_clock_setting",
    0x200: "board_limit",
    0x400: "reliability",
}
"""nvmlClocksThrottleReason* of nvml.h."""

_VALUE_FIELDS = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")
"""Members of NVML's value union by its type number."""

_CLOCK_SM, _CLOCK_MEMORY, _SENSOR_GPU = 1, 2, 0  # of nvml.h

MIG_REASON = "MIG is on: power and energy are of the whole board, not of this instance"


def throttle_names(bits: int) -> tuple[str, ...]:
    """Names of the reasons that are set; a bit nobody knows is named by its value."""
    set_bits = [1 << place for place in range(bits.bit_length()) if bits >> place & 1]
    return tuple(REASON_BITS.get(bit, f"unknown_{bit:#x}") for bit in set_bits)


@dataclass
class _Device:
    """One device: its handles, what it does not support, and what was asked less often."""

    index: int
    handle: object  # of the device or the MIG instance
    board: object  # that power, clocks and temperature belong to
    mig: bool
    unsupported: set[str] = field(default_factory=set[str])
    slow_at_s: float | None = None
    power_limit_w: float | None = None
    foreign_processes: int | None = None


class NvidiaReader:
    """An open NVML session over some devices of the host."""

    interval_s = 0.0

    def __init__(
        self,
        nvml: ModuleType,
        uuids: Sequence[str],
        pids: Callable[[], frozenset[int]] = own_pids,
    ) -> None:
        self._nvml = nvml
        self._pids = pids
        self._open = True
        self._devices = [_device(nvml, uuid) for uuid in uuids]

    @classmethod
    def open(cls, uuids: Sequence[str]) -> NvidiaReader:
        """A session over the devices named; TelemetryError without driver, binding or device."""
        try:
            import pynvml
        except ImportError as error:
            raise TelemetryError(
                "nvidia-ml-py is not installed", remedy="pip install nvidia-ml-py"
            ) from error
        try:
            pynvml.nvmlInit()
        except pynvml.NVMLError as error:
            raise TelemetryError(f"no NVIDIA driver answers ({error})", where="NVML") from error
        try:
            return cls(pynvml, uuids)
        except pynvml.NVMLError as error:
            pynvml.nvmlShutdown()
            raise TelemetryError(
                f"does not know a device of the engine ({error})", where="NVML"
            ) from error

    def read(self, time_s: float) -> list[TelemetrySample]:
        """These devices now; the counters of all are asked before anything else."""
        joules = [self._energy_j(device) for device in self._devices]
        return [
            self._row(device, energy, time_s)
            for device, energy in zip(self._devices, joules, strict=True)
        ]

    def close(self) -> None:
        """End the session."""
        if self._open:
            self._open = False
            self._nvml.nvmlShutdown()

    def _row(
        self, device: _Device, energy: tuple[float | None, str | None], time_s: float
    ) -> TelemetrySample:
        self._ask_slow(device, time_s)
        memory_bytes, _ = self._ask(device, "memory")
        sample = TelemetrySample(
            time_s=time_s,
            device_index=device.index,
            device_energy_j=energy[0],
            device_memory_bytes=None if memory_bytes is None else int(memory_bytes),
            device_clock_mhz=self._ask(device, "clock")[0],
            device_memory_clock_mhz=self._ask(device, "memory clock")[0],
            device_temperature_c=self._ask(device, "temperature")[0],
            device_utilisation_percent=self._ask(device, "utilisation")[0],
            device_power_limit_w=device.power_limit_w,
            throttle_reasons=self._throttle_reasons(device),
            foreign_processes=device.foreign_processes,
        )
        return self._with_power(device, sample, energy[1])

    def _with_power(
        self, device: _Device, sample: TelemetrySample, energy_reason: str | None
    ) -> TelemetrySample:
        """Watts at the instant where the device tells them, its own mean otherwise."""
        if device.mig:
            return replace(sample, telemetry_reason=MIG_REASON)
        plain, reason = self._ask(device, "power")
        fields = self._power_fields(device)
        instant = fields.get("NVML_FI_DEV_POWER_INSTANT", plain)
        why = "; ".join(dict.fromkeys(text for text in (energy_reason, reason) if text))
        return replace(
            sample,
            device_power_w=_scaled(instant),
            device_power_average_w=_scaled(fields.get("NVML_FI_DEV_POWER_AVERAGE")),
            telemetry_reason=why or None,
        )

    def _energy_j(self, device: _Device) -> tuple[float | None, str | None]:
        """The counter, which is in millijoules, or why there is none."""
        if device.mig:
            return None, MIG_REASON
        count, reason = self._ask(device, "energy counter")
        return _scaled(count), reason

    def _power_fields(self, device: _Device) -> Mapping[str, float]:
        """Milliwatts by field name, of the fields that this device has."""
        names = ("NVML_FI_DEV_POWER_INSTANT", "NVML_FI_DEV_POWER_AVERAGE")
        nvml = self._nvml
        if "power fields" in device.unsupported:
            return {}
        try:
            values = nvml.nvmlDeviceGetFieldValues(
                device.board, [getattr(nvml, name) for name in names]
            )
        except (nvml.NVMLError, AttributeError):  # an older driver or binding
            device.unsupported.add("power fields")
            return {}
        return {
            name: float(getattr(value.value, _VALUE_FIELDS[value.valueType]))
            for name, value in zip(names, values, strict=True)
            if value.nvmlReturn == nvml.NVML_SUCCESS
        }

    def _throttle_reasons(self, device: _Device) -> tuple[str, ...] | None:
        bits, _ = self._ask(device, "throttle reasons")
        return None if bits is None else throttle_names(int(bits))

    def _ask_slow(self, device: _Device, time_s: float) -> None:
        """Ask for the power limit and the processes, if the last time is long enough ago."""
        if device.slow_at_s is not None and time_s - device.slow_at_s < SLOW_S:
            return
        device.slow_at_s = time_s
        limit, _ = self._ask(device, "power limit")
        device.power_limit_w = _scaled(limit)
        device.foreign_processes = self._foreign(device)

    def _foreign(self, device: _Device) -> int | None:
        """Processes on the device that are none of ours; None where NVML's pids mean nothing here.

        The engine under test runs on the device. Where none of the listed pids is ours, they are
        those of another pid namespace (or the list is cut down to nothing): nothing can be said.
        """
        pids: set[int] = set()
        for question in (
            self._nvml.nvmlDeviceGetComputeRunningProcesses,
            self._nvml.nvmlDeviceGetGraphicsRunningProcesses,
        ):
            try:
                pids |= {process.pid for process in question(device.handle)}
            except self._nvml.NVMLError:
                continue
        ours = self._pids()
        return len(pids - ours) if pids & ours else None

    def _ask(self, device: _Device, name: str) -> tuple[float | None, str | None]:
        """The answer to a question of _QUESTIONS, or why there is none.

        What a device does not support is not asked again.
        """
        if name in device.unsupported:
            return None, f"this device tells no {name}"
        handle = device.handle if name in _OF_INSTANCE else device.board
        try:
            return float(_QUESTIONS[name](self._nvml, handle)), None
        except self._nvml.NVMLError as error:
            if getattr(error, "value", None) == self._nvml.NVML_ERROR_NOT_SUPPORTED:
                device.unsupported.add(name)
                return None, f"this device tells no {name}"
            return None, f"{name}: {error}"


_QUESTIONS: dict[str, Callable[[ModuleType, object], float]] = {
    "energy counter": lambda nvml, h: nvml.nvmlDeviceGetTotalEnergyConsumption(h),
    "power": lambda nvml, h: nvml.nvmlDeviceGetPowerUsage(h),
    "power limit": lambda nvml, h: nvml.nvmlDeviceGetEnforcedPowerLimit(h),
    "memory": lambda nvml, h: nvml.nvmlDeviceGetMemoryInfo(h).used,
    "clock": lambda nvml, h: nvml.nvmlDeviceGetClockInfo(h, _CLOCK_SM),
    "memory clock": lambda nvml, h: nvml.nvmlDeviceGetClockInfo(h, _CLOCK_MEMORY),
    "temperature": lambda nvml, h: nvml.nvmlDeviceGetTemperature(h, _SENSOR_GPU),
    "utilisation": lambda nvml, h: nvml.nvmlDeviceGetUtilizationRates(h).gpu,
    "throttle reasons": lambda nvml, h: nvml.nvmlDeviceGetCurrentClocksThrottleReasons(h),
}
"""What is asked of a device, in NVML's own units."""

_OF_INSTANCE = frozenset({"memory", "utilisation"})
"""What a MIG instance is asked itself; the rest belongs to its board."""


def _device(nvml: ModuleType, uuid: str) -> _Device:
    """The device of a UUID; of a MIG instance also the board that it is a part of."""
    handle = board = nvml.nvmlDeviceGetHandleByUUID(uuid)
    if uuid.startswith("MIG-"):
        board = nvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(handle)
    return _Device(
        index=nvml.nvmlDeviceGetIndex(board),
        handle=handle,
        board=board,
        mig=uuid.startswith("MIG-") or _mig_is_on(nvml, board),
    )


def _mig_is_on(nvml: ModuleType, board: object) -> bool:
    try:
        return nvml.nvmlDeviceGetMigMode(board)[0] == 1
    except nvml.NVMLError:  # a device without MIG
        return False


def _scaled(thousandths: float | None) -> float | None:
    return None if thousandths is None else thousandths * 1e-3
