"""What a device costs for an hour: versioned tables, each price with its source and date."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Literal, Self

import yaml
from pydantic import Field, ValidationError, model_validator

from experiments.border import Border
from kernels.near_names import nearest
from workbench.errors import PriceError

BUILT_IN = Path(__file__).with_name("prices.yaml")
STORE_FILE = "prices.yaml"
"""A table in the folder of a store takes the place of the built-in one for its runs."""

EXAMPLE = """\
version: "1"
as_of: "2026-11"
source: our contract
default_tier: rental
tiers: {rental: what we pay}
devices:
  - {names: [NVIDIA H200], usd_device_h: {rental: 1.60}}"""


class DevicePrice(Border):
    """One kind of device. Names are the driver's, with `*` for anything."""

    names: list[str] = Field(min_length=1)
    usd_device_h: dict[str, float] = Field(min_length=1)  # by tier
    as_of: str | None = None  # None: the table's
    source: str | None = None


class PriceTable(Border):
    """Prices by device and tier. A price is above 0: what is free is not known."""

    version: str = Field(min_length=1)
    currency: Literal["USD"] = "USD"
    as_of: str
    source: str
    default_tier: str
    tiers: dict[str, str] = Field(min_length=1)
    devices: list[DevicePrice]

    @model_validator(mode="after")
    def _agrees_with_itself(self) -> Self:
        if self.default_tier not in self.tiers:
            raise ValueError(f"default_tier {self.default_tier!r} is none of {list(self.tiers)}")
        for device in self.devices:
            for tier, price in device.usd_device_h.items():
                if tier not in self.tiers:
                    raise ValueError(f"{device.names[0]} has the unknown tier {tier!r}")
                if price <= 0:
                    raise ValueError(f"{device.names[0]} costs {price} in {tier}; leave it out")
        return self


@dataclass(frozen=True, kw_only=True)
class Price:
    """A price, or why there is none, and where it comes from."""

    usd_device_h: float | None
    tier: str
    table: str  # its version, and its file where it is not the built-in one
    reason: str | None = None
    as_of: str | None = None
    source: str | None = None


@dataclass(frozen=True, kw_only=True)
class Prices:
    """A table as it is used: with the name it goes by and the tier that is asked for."""

    table: PriceTable
    name: str
    tier: str

    def of(self, device: str) -> Price:
        """The price of a device by the name its driver gives it; the first entry that fits."""
        found = next((d for d in self.table.devices if _fits(device, d.names)), None)
        if found is None:
            reason = (
                f"the price table {self.name} has no price for {device}; give one by --prices, "
                f"with an entry of devices whose names are [{device!r}]"
            )
            return Price(usd_device_h=None, tier=self.tier, table=self.name, reason=reason)
        price = found.usd_device_h.get(self.tier)
        return Price(
            usd_device_h=price,
            tier=self.tier,
            table=self.name,
            reason=None if price else f"{device} has no {self.tier} price in {self.name}",
            as_of=found.as_of or self.table.as_of,
            source=found.source or self.table.source,
        )


def load_prices(path: str | Path | None = None, *, tier: str | None = None) -> Prices:
    """A table from a YAML file; None is the one that ships. PriceError says what is wrong in it."""
    file = BUILT_IN if path is None else Path(path)
    table = _built_in() if path is None else _read(file)
    chosen = tier if tier is not None else table.default_tier
    if chosen not in table.tiers:
        raise PriceError(
            f"has no tier {chosen!r}", where=str(file), remedy=nearest(chosen, table.tiers)
        )
    name = table.version if path is None else f"{table.version} ({file.name})"
    return Prices(table=table, name=name, tier=chosen)


def prices_of_store(folder: Path) -> Prices:
    """The table of the store in `folder`: its own where it has one, the built-in one otherwise."""
    own = folder / STORE_FILE
    return load_prices(own if own.exists() else None)


def table_of(document: Mapping[str, object], *, where: str) -> PriceTable:
    """A document as a table. PriceError names the field."""
    try:
        return PriceTable.model_validate(document)
    except ValidationError as error:
        lacking = [_place(e["loc"]) for e in error.errors() if e["type"] == "missing"]
        if lacking:
            raise PriceError(
                f"lacks {', '.join(lacking)}", where=where, remedy=f"A table looks so:\n{EXAMPLE}"
            ) from error
        finding = error.errors()[0]
        field = _place(finding["loc"])
        what = finding["msg"].removeprefix("Value error, ")
        raise PriceError(
            f"{what[0].lower()}{what[1:]}",
            where=f"{where}: {field}" if field else where,
            remedy="workbench/prices.yaml shows the form.",
        ) from error


def _place(location: tuple[int | str, ...]) -> str:
    return ".".join(str(part) for part in location)


@cache
def _built_in() -> PriceTable:
    return _read(BUILT_IN)


def _read(path: Path) -> PriceTable:
    try:
        document = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError, ValueError) as error:
        raise PriceError(f"cannot be read ({error})", where=str(path)) from error
    if not isinstance(document, dict):
        raise PriceError("is no table of prices", where=str(path))
    return table_of(document, where=str(path))


def _fits(device: str, names: list[str]) -> bool:
    return any(fnmatchcase(device.casefold(), name.casefold()) for name in names)
