"""Joules a token, from the devices' own counters. Definition: `METRICS`."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from experiments.measurement import Measurement
from experiments.metric_values import missing, ratio
from experiments.records import MetricValue

Reading = tuple[float, float]  # (seconds, joules)


def energy_j_token(m: Measurement) -> MetricValue:
    """What the counters of all allocated devices grew by in the window / tokens in it.

    Missing unless every device was read before, or as, the window began and after it ended.
    """
    readings: dict[int | None, list[Reading]] = {}
    for sample in m.telemetry:
        if sample.device_energy_j is not None:
            pair = (sample.time_s, sample.device_energy_j)
            readings.setdefault(sample.device_index, []).append(pair)
    if not readings:
        return missing("this host has no energy counter that can be read")
    if m.devices is None or len(readings) != m.devices:
        return missing(f"{len(readings)} devices were read and {m.devices} are allocated")
    if any(b < a for pairs in readings.values() for (_, a), (_, b) in itertools.pairwise(pairs)):
        return missing("an energy counter was reset")
    edges = [[_at(pairs, edge) for edge in m.window_s] for pairs in readings.values()]
    if any(joules is None for pair in edges for joules in pair):
        return missing("a device was not read on both sides of the window")
    joules = sum(end - start for start, end in edges if start is not None and end is not None)
    tokens = sum(m.tokens_inside(r) for r in m.issued)
    return ratio(joules, tokens, tokens, "no token arrived in the window")


def _at(readings: Sequence[Reading], time_s: float) -> float | None:
    """The counter at an instant between two readings, on the line through them."""
    for (before_s, before_j), (after_s, after_j) in itertools.pairwise(readings):
        if before_s <= time_s <= after_s:
            passed = after_s - before_s
            share = (time_s - before_s) / passed if passed else 0.0
            return before_j + share * (after_j - before_j)
    return None
