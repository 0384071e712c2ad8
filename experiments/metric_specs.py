"""The metrics this bench knows: name, label, unit, direction and exact definition of each."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from experiments.foreign_cpu import ROWS as FOREIGN_CPU
from experiments.metric_rows import ENGINE, LOAD, PERCENTILE_RULE, RATES, SPECULATION, Row
from experiments.metric_rows_client import CLIENT
from experiments.metric_rows_devices import DEVICES
from experiments.metric_rows_evals import EVALS
from experiments.metric_rows_load import LOAD_FORMS
from experiments.metric_rows_validity import ACCOUNTS, AGREEMENT


class Direction(StrEnum):
    """Which way is better."""

    MAX = "max"
    MIN = "min"
    NONE = "none"


@dataclass(frozen=True, kw_only=True)
class MetricSpec:
    """What one number means. A label drawn anywhere comes from here."""

    name: str
    label: str
    unit: str  # of the stored value: seconds, tokens, tokens/s, ...
    direction: Direction
    statistic: str  # mean, p50, ..., sum, ratio
    basis: str  # of what: requests, tokens, chunks, window, steps, host
    definition: str

    @property
    def heading(self) -> str:
        """The label with its unit, as a column or an axis is headed: `TTFT p50 (s)`."""
        return f"{self.label} ({self.unit})" if self.unit else self.label


QUANTILES = {"p50": 0.50, "p90": 0.90, "p99": 0.99}

FAMILIES = {
    "ttft_s": (
        "TTFT",
        "requests",
        "first chunk that bears a token - sent",
    ),
    "ttft_sched_s": (
        "TTFT from schedule",
        "requests",
        "first chunk that bears a token - the instant the schedule wanted the request sent",
    ),
    "ttfo_s": (
        "TTFO",
        "requests",
        "first chunk whose tokens are not reasoning - sent; a request that only reasoned has none",
    ),
    "tpot_s": (
        "TPOT",
        "requests",
        "(E2E - TTFT) / (output tokens - tokens of the first chunk), one value a request; "
        "missing where the first chunk holds the whole output",
    ),
    "tpot_compat_s": (
        "TPOT by all tokens but one",
        "requests",
        "(E2E - TTFT) / (output tokens - 1), one value a request: the divisor of other tools, "
        "for comparison with theirs",
    ),
    "itl_s": (
        "ITL",
        "tokens",
        "a gap g before a chunk of n tokens counts as n samples of g / n; pooled",
    ),
    "icl_s": ("ICL", "chunks", "gap between two chunks that bear tokens; pooled"),
    "e2e_s": ("E2E", "requests", "last chunk that bears a token - sent"),
    "e2e_sched_s": (
        "E2E from schedule",
        "requests",
        "last chunk that bears a token - the instant the schedule wanted the request sent",
    ),
}
"""Latency families by prefix of their metric names: label, basis, definition of one sample."""


def _latency(prefix: str) -> list[MetricSpec]:
    label, basis, definition = FAMILIES[prefix]
    return [
        MetricSpec(
            name=f"{prefix}_{statistic}",
            label=f"{label} {statistic}",
            unit="s",
            direction=Direction.MIN,
            statistic=statistic,
            basis=basis,
            definition=definition
            + ("; arithmetic mean" if statistic == "mean" else f"; {PERCENTILE_RULE}"),
        )
        for statistic in ("mean", *QUANTILES)
    ]


def _adjusted(statistic: str) -> MetricSpec:
    return MetricSpec(
        name=f"e2e_s_{statistic}_adj",
        label=f"E2E {statistic}, failures as infinite",
        unit="s",
        direction=Direction.MIN,
        statistic=statistic,
        basis="all requests",
        definition="E2E with every failed or cancelled request at +infinity; numpy `higher` "
        "quantile, missing where it falls on infinity",
    )


def _spec(row: Row) -> MetricSpec:
    name, label, unit, direction, statistic_of_basis, definition = row
    statistic, _, basis = statistic_of_basis.partition(" of ")
    return MetricSpec(
        name=name,
        label=label,
        unit=unit,
        direction=Direction(direction),
        statistic=statistic,
        basis=basis,
        definition=definition,
    )


METRICS: dict[str, MetricSpec] = {
    spec.name: spec
    for spec in (
        *map(_spec, RATES),
        *(spec for prefix in FAMILIES for spec in _latency(prefix)),
        _adjusted("p90"),
        _adjusted("p99"),
        *map(_spec, SPECULATION),
        *map(_spec, LOAD),
        *map(_spec, ACCOUNTS),
        *map(_spec, ENGINE),
        *map(_spec, AGREEMENT),
        *map(_spec, DEVICES),
        *map(_spec, LOAD_FORMS),
        *map(_spec, CLIENT),
        *map(_spec, EVALS),
        *map(_spec, FOREIGN_CPU),
    )
}
"""Every metric by name, in the order in which tables show them."""
