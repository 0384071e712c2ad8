"""Readings of Ascend devices: through DCMI where the driver's library is there, else npu-smi.

A device is a chip: a card may hold two. It is found by its PCI bus id, since ordinals differ
between a process, its container and the host; two chips that share one bus id are told apart by
their number on the card.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from experiments.errors import TelemetryError
from experiments.records import TelemetrySample

PREFIX = "NPU-"
MEGABYTE = 1 << 20
PACKAGE_POWER = "power is told for the whole card, and not all of its chips serve this engine"
NO_POWER = "this chip tells no power"
NO_COUNTER = "Ascend devices have no energy counter"


@dataclass(frozen=True, kw_only=True)
class Chip:
    """One chip as the driver tells it. None = it does not."""

    card: int
    chip: int
    name: str | None = None
    health: str | None = None
    bus_id: str | None = None
    physical_id: int | None = None
    power_w: float | None = None
    temperature_c: float | None = None
    aicore_percent: float | None = None
    aicore_clock_mhz: float | None = None
    memory_clock_mhz: float | None = None
    memory_used_mb: int | None = None  # of its main memory: HBM where it has some, else DDR
    memory_total_mb: int | None = None

    @property
    def identities(self) -> tuple[str, ...]:
        """The names that an engine may give it."""
        bus = f"{PREFIX}{(self.bus_id or '').upper()}"
        return (f"{bus}/{self.chip}", bus)


Place = tuple[int, int]  # card, chip on it
Source = Callable[[], list[Chip]]
"""Reads every chip of the host, now. TelemetryError where it cannot."""


class AscendReader:
    """Some chips of the host. TelemetryError at construction where one of them is not there."""

    def __init__(self, source: Source, identities: Sequence[str], *, interval_s: float) -> None:
        self.interval_s = interval_s
        self._source = source
        chips = source()
        self._places = [_place(chips, identity) for identity in identities]

    def read(self, time_s: float) -> list[TelemetrySample]:
        """One row a chip, in the order of the identities."""
        try:
            chips = {(chip.card, chip.chip): chip for chip in self._source()}
        except TelemetryError as error:
            return [
                TelemetrySample(time_s=time_s, device_index=index, telemetry_reason=str(error))
                for index in range(len(self._places))
            ]
        return [
            _row(chips.get(place), self._power(chips, place), index, time_s)
            for index, place in enumerate(self._places)
        ]

    def close(self) -> None:
        """Nothing is held."""

    def _power(self, chips: Mapping[Place, Chip], place: Place) -> tuple[float | None, str]:
        """Watts of a chip, and why it has no energy counter or no power.

        Where one chip tells the power of its whole card, each has an equal part if all of them
        serve this engine: what one takes is not known, their sum is, and only sums are reported.
        """
        card = [other for other in chips if other[0] == place[0]]
        told = [watts for other in card if (watts := chips[other].power_w) is not None]
        if len(card) > 1 and len(told) == 1:
            whole = set(card) <= set(self._places)
            return (told[0] / len(card), NO_COUNTER) if whole else (None, PACKAGE_POWER)
        own = chips[place].power_w if place in chips else None
        return own, NO_COUNTER if own is not None else NO_POWER


def ascend_reader(identities: Sequence[str]) -> AscendReader:
    """The best source that this host has; TelemetryError says why there is none."""
    from experiments.ascend_dcmi import Dcmi
    from experiments.ascend_smi import INTERVAL_S, npu_smi

    try:
        return AscendReader(Dcmi.open().chips, identities, interval_s=0.0)
    except TelemetryError:
        return AscendReader(npu_smi, identities, interval_s=INTERVAL_S)


def ascend_chips() -> list[Chip]:
    """Every chip of this host; TelemetryError says why none can be read."""
    from experiments.ascend_dcmi import Dcmi
    from experiments.ascend_smi import npu_smi

    try:
        return Dcmi.open().chips()
    except TelemetryError:
        return npu_smi()


def _place(chips: Sequence[Chip], identity: str) -> Place:
    wanted = PREFIX + identity.removeprefix(PREFIX).upper()
    found = [(chip.card, chip.chip) for chip in chips if wanted in chip.identities]
    if len(found) == 1:
        return found[0]
    known = ", ".join(chip.identities[0] for chip in chips)
    many = "names two chips; add /0 or /1" if found else "is no chip of this host"
    raise TelemetryError(many, where=identity, remedy=f"Known: {known or 'none'}.")


def _row(
    chip: Chip | None, power: tuple[float | None, str], index: int, time_s: float
) -> TelemetrySample:
    if chip is None:
        reason = "the driver no longer lists this chip"
        return TelemetrySample(time_s=time_s, device_index=index, telemetry_reason=reason)
    used = chip.memory_used_mb
    return TelemetrySample(
        time_s=time_s,
        device_index=index,
        device_power_w=power[0],
        device_memory_bytes=None if used is None else used * MEGABYTE,
        device_clock_mhz=chip.aicore_clock_mhz,
        device_memory_clock_mhz=chip.memory_clock_mhz,
        device_temperature_c=chip.temperature_c,
        device_utilisation_percent=chip.aicore_percent,
        telemetry_reason=power[1],
    )
