"""Metrics of a kernel bench: part of the catalogue so that its runs have tables and pages."""

from __future__ import annotations

from experiments.metric_specs import Direction, MetricSpec


def _time(name: str, label: str, definition: str) -> MetricSpec:
    return MetricSpec(
        name=name, label=label, unit="s", direction=Direction.MIN, statistic="p50",
        basis="calls", definition=definition,
    )  # fmt: skip


def _ratio(name: str, label: str, definition: str) -> MetricSpec:
    return MetricSpec(
        name=name, label=label, unit="", direction=Direction.MAX, statistic="ratio",
        basis="calls", definition=definition,
    )  # fmt: skip


KERNEL_METRICS: dict[str, MetricSpec] = {
    spec.name: spec
    for spec in (
        _time("call_s", "Call",
              "one call in a replayed graph; inputs that together exceed the cache in turn"),
        _time("call_warm_s", "Call, warm", "one call in a replayed graph; the same inputs again"),
        _time("floor_s", "Floor",
              "max(least bytes / copied bytes a second, products / their rate), by ceilings "
              "measured in the same run"),
        _ratio("floor_fraction", "Of the floor", "floor / call"),
        _time("peer_s", "Peer", "the same case by the fastest other implementation there was"),
        _ratio("peer_ratio", "Faster than peer", "time of the fastest peer / time of the call"),
    )
}  # fmt: skip
"""By name."""
