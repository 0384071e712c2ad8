"""What a million tokens cost: derived when a run is read, from its rates and a price table.

A cost is (price of one device for an hour x allocated devices) / tokens in an hour. It needs a
device with a price: what is simulated, a processor or an unknown device has none, and never 0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from experiments.labels import SIMULATED
from experiments.metric_specs import Direction, MetricSpec
from workbench.prices import Price, Prices, prices_of_store

if TYPE_CHECKING:
    import pandas as pd

    from workbench.pareto import Values

MILLION = 1e6
HOUR_S = 3600.0
FACTS = ("cost.prices", "cost.tier", "cost.usd_device_h", "cost.devices", "cost.accelerator")
"""Columns beside the costs: the table's version, and what went into the numbers."""


def _spec(kind: str, tokens: str) -> MetricSpec:
    return MetricSpec(
        name=f"cost_usd_mtok_{kind}",
        label=f"Cost per million {tokens}",
        unit="USD/Mtok",
        direction=Direction.MIN,
        statistic="ratio",
        basis="window",
        definition=f"price of a device for an hour x allocated devices / ({tokens} a second x "
        "3600) x 10^6; prices are those of the table that is named beside it",
    )


COST_METRICS: dict[str, MetricSpec] = {
    spec.name: spec
    for spec in (
        _spec("output", "output tokens"),
        _spec("input", "input tokens"),
        _spec("total", "tokens, input and output"),
    )
}
"""Costs by name. They are no part of a stored trial."""


@dataclass(frozen=True, kw_only=True)
class Host:
    """What the run says of the devices that its points ran on."""

    names: tuple[str, ...]  # of the devices of the host, by the manifest
    remote: str | None = None  # the device of a server that was only asked, by the plan

    @classmethod
    def of(cls, environment: Mapping[str, object], plan: Mapping[str, object]) -> Host:
        """From a stored run."""
        devices, http = environment.get("devices"), plan.get("http")
        rows = devices if isinstance(devices, list) else []
        names = [str(row["name"]) for row in rows if isinstance(row, Mapping) and row.get("name")]
        told = http.get("accelerator") if isinstance(http, Mapping) else None
        return cls(names=tuple(dict.fromkeys(names)), remote=None if told is None else str(told))


def with_cost(points: pd.DataFrame, host: Host, prices: Prices | None, store: Path) -> pd.DataFrame:
    """The table with `<cost>`, `.n`, `.low`, `.high`, `.reason` of COST_METRICS, and FACTS.

    `points` has the columns of `workbench.points`; costs that it has already are replaced. A
    bound of a rate is the other bound of its cost; input tokens have none. `prices` None: the
    table of the store, which is the one that ships unless it has its own.
    """
    import pandas as pd

    if prices is None:
        prices = prices_of_store(store)
    found = [_device(row, host) for row in _facts_of(points)]
    known = {name: prices.of(name) for name, _ in found if name is not None}
    told = [known[n] if n is not None else _none(prices, why or "") for n, why in found]
    per_hour = np.array([price.usd_device_h or np.nan for price in told])
    devices = _devices(points)
    columns: dict[str, object] = {
        "cost.prices": [price.table for price in told],
        "cost.tier": [price.tier for price in told],
        "cost.usd_device_h": per_hour,
        "cost.devices": devices,
        "cost.accelerator": [name for name, _ in found],
    }
    for kind, metric in (("output", "output_tok_s"), ("total", "total_tok_s")):
        rates = {part: _numbers(points, f"{metric}{part}") for part in ("", ".low", ".high")}
        columns |= _cells(points, f"cost_usd_mtok_{kind}", metric, rates, per_hour * devices, told)
    columns |= _input_cells(points, per_hour * devices, told)
    kept = points.drop(columns=[name for name in columns if name in points.columns])
    return pd.concat([kept, pd.DataFrame(columns, index=points.index)], axis=1).copy()


def _facts_of(points: pd.DataFrame) -> Sequence[tuple[str, bool, Sequence[str]]]:
    """(accelerator, is it a remote server, labels) of each row."""
    rows = len(points)
    kinds = points["engine.accelerator"] if "engine.accelerator" in points else [""] * rows
    urls = points["engine.url"] if "engine.url" in points else [None] * rows
    return [
        (str(kind), isinstance(url, str), labels if isinstance(labels, list) else [])
        for kind, url, labels in zip(kinds, urls, points["labels"], strict=True)
    ]


def _device(row: tuple[str, bool, Sequence[str]], host: Host) -> tuple[str | None, str | None]:
    """The name of the device behind a point, or why it has none that could have a price."""
    kind, remote, labels = row
    if SIMULATED in labels:
        return None, "simulated: no device was used"
    if remote:
        told = (
            None if host.remote else "the plan does not say the server's device (http.accelerator)"
        )
        return host.remote, told
    if kind == "cpu":
        return "cpu", None
    if len(host.names) == 1:
        return host.names[0], None
    several = f"the host has devices of several kinds ({', '.join(host.names)})"
    return None, several if host.names else "the run names no device"


def _none(prices: Prices, reason: str) -> Price:
    return Price(usd_device_h=None, tier=prices.tier, table=prices.name, reason=reason)


def _devices(points: pd.DataFrame) -> Values:
    """Allocated devices of each row, as the rate per device implies them; NaN: not known."""
    whole, each = _numbers(points, "output_tok_s"), _numbers(points, "output_tok_s_device")
    with np.errstate(all="ignore"):
        return np.round(whole / each, 6)


def _numbers(points: pd.DataFrame, name: str) -> Values:
    if name not in points:
        return np.full(len(points), np.nan)
    return points[name].to_numpy(dtype=float, na_value=np.nan)


def _usd(per_hour: Values, rate: Values) -> Values:
    """NaN where a price or a rate is missing, or nothing came, or it would be free."""
    with np.errstate(all="ignore"):
        cost = per_hour / (rate * HOUR_S) * MILLION
    return np.where(np.isfinite(cost) & (cost > 0), cost, np.nan)


def _cells(
    points: pd.DataFrame,
    name: str,
    metric: str,
    rates: Mapping[str, Values],
    per_hour: Values,
    told: Sequence[Price],
) -> dict[str, object]:
    """The five cells of one cost, by the rate it rests on."""
    value = _usd(per_hour, rates[""])
    whys = points.get(f"{metric}.reason")
    reasons = [None] * len(points) if whys is None else list(whys)
    return {
        name: value,
        f"{name}.n": np.where(np.isnan(value), 0.0, _numbers(points, f"{metric}.n")),
        f"{name}.low": _usd(per_hour, rates[".high"]),
        f"{name}.high": _usd(per_hour, rates[".low"]),
        f"{name}.reason": [
            None if np.isfinite(cost) else _why(price, reason, per_hour[row])
            for row, (cost, price, reason) in enumerate(zip(value, told, reasons, strict=True))
        ],
    }


def _why(price: Price, rate_reason: object, per_hour: float) -> str:
    if price.reason:
        return price.reason
    if isinstance(rate_reason, str):
        return rate_reason
    return "no token came" if np.isfinite(per_hour) else "the number of devices is not known"


def _input_cells(
    points: pd.DataFrame, per_hour: Values, told: Sequence[Price]
) -> dict[str, object]:
    """Input tokens a second are those of all tokens less the output."""
    rate = _numbers(points, "total_tok_s") - _numbers(points, "output_tok_s")
    rates = {"": np.where(rate > 0, rate, np.nan)}
    unknown = np.full(len(points), np.nan)
    rates |= {".low": unknown, ".high": unknown}
    return _cells(points, "cost_usd_mtok_input", "total_tok_s", rates, per_hour, told)
