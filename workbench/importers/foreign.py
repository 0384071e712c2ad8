"""What an importer makes of a file: points, and every number with what its tool means by it.

A module of this folder has `FORMATS`, a tuple of `Format`: `recognises` looks at a `Document`
without raising, `read` makes a `Foreign` of it, or raises `refused(...)` for one that says
nothing. `told` reads cells by a table of `Column`; a column with a `metric` fills that metric of
our catalogue, in its unit and only where the tool means the same by it.
"""

from __future__ import annotations

import dataclasses
import reprlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from experiments.records import AxisValue, ForeignNumber, MetricValue, TelemetrySample
from workbench.importers.cells import number, text
from workbench.importers.document import Document

UNTOLD = "not told"  # a model or an accelerator that no file names
NO_SAMPLE = "the tool wrote a number although no request succeeded"
NOT_INTERPRETED = "kept as it stands; this workbench does not interpret it"
CLIENT = "measured by the client"
SERVER = "told by the server"


@dataclass(frozen=True, kw_only=True)
class Column:
    """One cell that a tool writes: its name, what it means there, and which metric of ours it is.

    The value here is the cell times `scale`, in `unit`.
    """

    key: str
    unit: str
    meaning: str
    metric: str | None = None
    scale: float = 1.0
    side: str = CLIENT


@dataclass(frozen=True, kw_only=True)
class ForeignPoint:
    """One result: a configuration under one load. None and absent: the file does not tell."""

    engine: Mapping[str, AxisValue]
    workload: Mapping[str, AxisValue]
    numbers: tuple[ForeignNumber, ...]
    samples: int | None = None  # requests that the latencies rest on
    failed: int | None = None
    devices: int | None = None  # allocated, as the file tells them
    invalid: str | None = None  # why the tool itself does not stand by it
    labels: tuple[str, ...] = ()  # of a trial of this workbench: `indicative` and the like
    repeat: int = 0
    duration_s: float | None = None
    telemetry: tuple[TelemetrySample, ...] = ()
    metrics: Mapping[str, MetricValue] = field(default_factory=dict[str, MetricValue])
    """Numbers of a run of this workbench, with their own samples and intervals."""


@dataclass(frozen=True, kw_only=True)
class Foreign:
    """The results of one file."""

    points: tuple[ForeignPoint, ...]
    version: str | None = None  # of the tool
    notes: tuple[str, ...] = ()  # what was dropped or is odd, a sentence each


@dataclass(frozen=True, kw_only=True)
class Format:
    """One kind of file of one tool."""

    name: str  # a slug, as messages and run names have it
    tool: str  # as people call it
    title: str  # what the file is
    recognises: Callable[[Document], bool]
    read: Callable[[Document], Foreign]
    expects: str  # what tells it from others, for those whose file is not recognised
    seen: bool = True  # False: written from the documented format, no real file was seen
    unseen: str = ""  # the variants of a format that was seen of which no real file was


def told(
    cells: Mapping[str, object], columns: Iterable[Column], samples: int | None = None
) -> tuple[ForeignNumber, ...]:
    """The cells that there are, by the table. Where no request succeeded no number is one."""
    return tuple(_cell(cells[one.key], one, samples) for one in columns if one.key in cells)


def _cell(value: object, column: Column, samples: int | None) -> ForeignNumber:
    found = number(value)
    if found is not None and column.metric is not None and not _can_be(found, column.unit):
        found = None
    reason = None if found is not None else f"the file has {_shown(value)} for it"
    latency_or_rate = column.metric is not None and not column.metric.endswith("_requests")
    if samples == 0 and latency_or_rate and found is not None:
        found, reason = None, NO_SAMPLE
    return ForeignNumber(
        key=column.key,
        value=None if found is None else found * column.scale,
        unit=column.unit,
        meaning=", ".join(filter(None, (column.meaning, column.metric and column.side))),
        metric=column.metric,
        reason=reason,
    )


def _can_be(value: float, unit: str) -> bool:
    """No metric is negative, and a time of 0 is one of nothing: vLLM's TPOT of single tokens."""
    return value > 0 if unit == "s" else value >= 0


def derived(key: str, value: float | None, column: Column) -> ForeignNumber:
    """A number that the importer computes from others of the file; `meaning` tells how."""
    return _cell(value, dataclasses.replace(column, key=key), None)


def series(
    key: str,
    stats: Mapping[str, object],
    family: Family,
    *,
    unit: str = "s",
    scale: float = 1.0,
    samples: int | None = None,
) -> tuple[ForeignNumber, ...]:
    """An object of statistics, `{"mean": 1.0, "p50": 0.9, ...}`, as `<key>.<statistic>` each."""
    columns = [
        Column(
            key=name,
            metric=_metric_of(family, name),
            unit=unit,
            scale=scale,
            meaning=f"{family.statistics.get(name, name)} of {family.meaning}",
            side=family.side,
        )
        for name, value in stats.items()
        if number(value) is not None or (name in family.statistics and value is not None)
    ]
    return tuple(
        dataclasses.replace(one, key=f"{key}.{one.key}") for one in told(stats, columns, samples)
    )


def _metric_of(family: Family, statistic: str) -> str | None:
    ours = family.statistics.get(statistic)
    return None if ours is None or family.prefix is None else f"{family.prefix}_{ours}"


def leftovers(
    cells: Mapping[str, object], taken: Iterable[str], dropped: Iterable[str] = ()
) -> tuple[ForeignNumber, ...]:
    """Every other number or text at the top of `cells`, so that nothing is lost."""
    skip = {*taken, *dropped}
    return tuple(
        ForeignNumber(key=name, value=_plain(value), unit="", meaning=NOT_INTERPRETED)
        for name, value in cells.items()
        if name not in skip and _plain(value) is not None
    )


def _plain(value: object) -> float | str | None:
    found = number(value) if not isinstance(value, str) else None
    if isinstance(value, bool):
        return str(value).lower()
    return text(value) if isinstance(value, str) else found


def _shown(value: object) -> str:
    """A few characters of a cell, however much it holds: YAML can name one list a billion times."""
    return "nothing" if value is None else reprlib.repr(value)[:40]


@dataclass(frozen=True, kw_only=True)
class Family:
    """A latency that a tool tells by several statistics, and the family of ours that it is."""

    name: str  # in the tool's keys
    prefix: str | None  # of our metrics; None: none of ours means the same
    meaning: str
    statistics: Mapping[str, str] = field(
        default_factory=lambda: {"mean": "mean", "median": "p50", "p90": "p90", "p99": "p99"}
    )  # the tool's -> ours
    side: str = CLIENT


def latency_columns(
    families: Sequence[Family], key: Callable[[str, str], str], *, scale: float
) -> tuple[Column, ...]:
    """A column for each family and statistic; `key(statistic, name)` is the tool's name for it."""
    return tuple(
        Column(
            key=key(theirs, family.name),
            metric=None if family.prefix is None else f"{family.prefix}_{ours}",
            unit="s",
            scale=scale,
            meaning=f"{ours} of {family.meaning}",
        )
        for family in families
        for theirs, ours in family.statistics.items()
    )
