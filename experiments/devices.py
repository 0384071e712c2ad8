"""The devices beside a load, whoever built them: one reader, one kind of row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from experiments.errors import TelemetryError
from experiments.records import TelemetrySample


class Allocation(Protocol):
    """The devices that an engine was given; `TargetFacts` is one."""

    @property
    def devices(self) -> int | None:
        """How many; None: cannot be told."""
        ...

    @property
    def device_uuids(self) -> tuple[str, ...] | None:
        """Their identities, as `find_reader` takes them; None: they have none."""
        ...


class DeviceReader(Protocol):
    """Some devices of this host, open for reading. One thread uses it."""

    interval_s: float
    """The shortest time between two reads that is worth their cost; 0: as often as asked."""

    def read(self, time_s: float) -> list[TelemetrySample]:
        """One row a device, stamped `time_s`; energy counters are read first, then the rest.

        What a device refuses is None in its row. Never raises for a device that fails.
        """
        ...

    def close(self) -> None:
        """Give the session back. Harmless twice."""
        ...


def find_reader(identities: Sequence[str]) -> DeviceReader:
    """A reader of the devices named as their own driver names them.

    `GPU-...` and `MIG-...` are NVML's, `NPU-<bus id>` or `NPU-<bus id>/<chip>` Ascend's.
    TelemetryError says why none can be read.
    """
    if all(name.startswith("NPU-") for name in identities):
        from experiments.ascend import ascend_reader

        return ascend_reader(identities)
    if any(name.startswith("NPU-") for name in identities):
        raise TelemetryError("devices of two vendors serve one engine", where=", ".join(identities))
    from experiments.nvidia import NvidiaReader

    return NvidiaReader.open(identities)
