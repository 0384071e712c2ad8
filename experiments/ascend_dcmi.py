"""Ascend's device management library, DCMI, through ctypes: milliseconds where npu-smi takes one
second. It counts power in tenths of a watt and memory in megabytes.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from pathlib import Path
from typing import Protocol, TypeVar

from experiments.ascend import Chip
from experiments.errors import TelemetryError

FOLDERS = (Path("/usr/local/Ascend/driver/lib64/driver"), Path("/usr/local/dcmi"))
LIBRARY = "libdcmi.so"
MOST_CARDS = 64
NPU_UNIT = 0  # the other units of a card are its controller and its CPU
AICORE, HBM_CLOCK, AICORE_CLOCK = 2, 6, 7


class _PcieInfo(ctypes.Structure):
    _fields_ = (
        ("vendor", ctypes.c_uint),
        ("subvendor", ctypes.c_uint),
        ("device", ctypes.c_uint),
        ("subdevice", ctypes.c_uint),
        ("domain", ctypes.c_int),
        ("bus", ctypes.c_uint),
        ("slot", ctypes.c_uint),
        ("function", ctypes.c_uint),
        ("reserved", ctypes.c_char * 32),
    )


class _HbmInfo(ctypes.Structure):
    _fields_ = (
        ("total_mb", ctypes.c_ulonglong),
        ("clock_mhz", ctypes.c_uint),
        ("used_mb", ctypes.c_ulonglong),
        ("temperature_c", ctypes.c_int),
        ("bandwidth_percent", ctypes.c_uint),
    )


Count = TypeVar("Count", ctypes.c_int, ctypes.c_uint)
Answer = TypeVar("Answer", ctypes.c_int, ctypes.c_uint, _PcieInfo, _HbmInfo)


class Library(Protocol):
    """The loaded library: functions by name, each returning 0 or an error code."""

    def __getattr__(self, name: str) -> Callable[..., int]: ...


class Dcmi:
    """An open library. One thread uses it."""

    def __init__(self, library: Library) -> None:
        code = library.dcmi_init()
        if code:
            raise TelemetryError(f"does not start ({code})", where="DCMI")
        self._library = library

    @classmethod
    def open(cls, folders: tuple[Path, ...] = FOLDERS) -> Dcmi:
        """The driver's own library; TelemetryError where there is none or it does not start."""
        path = next((f / LIBRARY for f in folders if (f / LIBRARY).exists()), None)
        if path is None:
            raise TelemetryError(f"{LIBRARY} is not installed", where="DCMI")
        try:
            return cls(ctypes.CDLL(str(path)))
        except (OSError, AttributeError) as error:
            raise TelemetryError(f"cannot be loaded ({error})", where=str(path)) from error

    def chips(self) -> list[Chip]:
        """Every NPU of the host now; what a chip refuses is None."""
        count, cards = ctypes.c_int(), (ctypes.c_int * MOST_CARDS)()
        code = self._library.dcmi_get_card_list(ctypes.byref(count), cards, MOST_CARDS)
        if code:
            raise TelemetryError(f"lists no cards ({code})", where="DCMI")
        found = []
        for card in cards[: count.value]:
            units = self._ask(ctypes.c_int(), "dcmi_get_device_num_in_card", card)
            for unit in range(units.value if units is not None else 0):
                kind = self._ask(ctypes.c_uint(), "dcmi_get_device_type", card, unit)
                if kind is not None and kind.value == NPU_UNIT:
                    found.append(self._chip(card, unit))
        return found

    def _chip(self, card: int, unit: int) -> Chip:
        here = (card, unit)
        power = self._whole(ctypes.c_int(), "dcmi_get_device_power_info", *here)
        hbm = self._ask(_HbmInfo(), "dcmi_get_device_hbm_info", *here)
        has_hbm = hbm is not None and hbm.total_mb > 0
        return Chip(
            card=card,
            chip=unit,
            bus_id=self._bus_id(card, unit),
            power_w=None if power is None else power / 10,
            temperature_c=self._whole(ctypes.c_int(), "dcmi_get_device_temperature", *here),
            aicore_percent=self._whole(
                ctypes.c_uint(), "dcmi_get_device_utilization_rate", *here, AICORE
            ),
            aicore_clock_mhz=self._whole(
                ctypes.c_uint(), "dcmi_get_device_frequency", *here, AICORE_CLOCK
            ),
            memory_clock_mhz=self._whole(
                ctypes.c_uint(), "dcmi_get_device_frequency", *here, HBM_CLOCK
            ),
            memory_used_mb=int(hbm.used_mb) if hbm is not None and has_hbm else None,
            memory_total_mb=int(hbm.total_mb) if hbm is not None and has_hbm else None,
        )

    def _bus_id(self, card: int, unit: int) -> str | None:
        pcie = self._ask(_PcieInfo(), "dcmi_get_device_pcie_info_v2", card, unit)
        if pcie is None:
            return None
        return f"{pcie.domain:04X}:{pcie.bus:02X}:{pcie.slot:02X}.{pcie.function:X}"

    def _whole(self, into: Count, question: str, *arguments: int) -> int | None:
        found = self._ask(into, question, *arguments)
        return None if found is None else found.value

    def _ask(self, into: Answer, question: str, *arguments: int) -> Answer | None:
        """The answer, or None where this driver refuses or does not have the question."""
        try:
            code = getattr(self._library, question)(*arguments, ctypes.byref(into))
        except AttributeError:
            return None
        return into if code == 0 else None
