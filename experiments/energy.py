"""Joules of the allocated devices over the window, by two ways. Definitions: `METRICS`.

A counter is known from its readings alone: it may step slowly, so a value counts from the reading
that showed it first. Both edges are late by that alike, and what is left of it is at most one
step: the bounds of the number.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import replace

from experiments.measurement import Measurement
from experiments.metric_values import missing, ratio
from experiments.records import MetricValue, TelemetrySample

MAX_GAP_S = 1.0
"""The longest time between two readings across which energy is still interpolated."""
NO_COUNTER = "this host has no energy counter that can be read"

Reading = tuple[float, float]  # (seconds, joules or watts)
Devices = dict[int, list[Reading]]


def energy(m: Measurement) -> dict[str, MetricValue]:
    """Every metric of energy, by name."""
    by_counter, by_integral = counted_j(m), integrated_j(m)
    counts = any(sample.device_energy_j is not None for sample in m.telemetry)
    joules = by_integral if by_integral.value is not None and not counts else by_counter
    output = sum(m.tokens_inside(r) for r in m.issued)
    prompt = sum(r.prompt_tokens for r in m.issued if r.chunks and m.inside(r.chunks[0].time_s))
    ended = sum(m.inside(r.chunks[-1].time_s) for r in m.completed)
    no_token = "no token arrived in the window"
    return {
        "energy_j": joules,
        "energy_j_token": _each(joules, output, no_token),
        "energy_j_total_token": _each(joules, output + prompt, no_token),
        "energy_j_request": _each(joules, ended, "no request ended in the window"),
        "energy_j_token_net": _each(_net(joules, m), output, no_token),
        "energy_j_token_integral": _each(by_integral, output, no_token),
        "energy_agreement": _agreement(by_integral, by_counter),
    }


def counted_j(m: Measurement) -> MetricValue:
    """Growth of all counters over the window; `low` and `high` are one step of them away."""
    devices = _readings(m, lambda sample: sample.device_energy_j)
    refusal = _refused(m, devices, NO_COUNTER)
    if refusal:
        return missing(refusal)
    if any(b < a for pairs in devices.values() for (_, a), (_, b) in itertools.pairwise(pairs)):
        return missing("an energy counter was reset")
    total = step = 0.0
    for pairs in devices.values():
        steps = _first_seen(pairs)
        for window in m.windows:
            start, end = (_at(steps, edge) for edge in window)
            if start is None or end is None:
                return missing(_uncovered(pairs, window))
            total += end[0] - start[0]
            step += max(start[1], end[1])
    count = sum(map(len, devices.values()))
    return MetricValue(value=total, n=count, low=max(0.0, total - step), high=total + step)


def integrated_j(m: Measurement) -> MetricValue:
    """Trapezoids under the power of all devices, both sides of the window interpolated.

    `low` and `high` are two standard errors away, from how much neighbouring readings differ: a
    power that jumps between readings is not known better.
    """
    devices = _readings(m, lambda sample: sample.device_power_w)
    refusal = _refused(m, devices, "this host tells no power")
    if refusal:
        return missing(refusal)
    total = variance = 0.0
    for pairs in devices.values():
        for window in m.windows:
            line = _line(pairs, window)
            if line is None:
                return missing(_uncovered(pairs, window))
            steps = [(b - a, v, w) for (a, v), (b, w) in itertools.pairwise(line)]
            if any(seconds > MAX_GAP_S for seconds, _, _ in steps):
                return missing(f"a device was not read for more than {MAX_GAP_S:g} s")
            total += sum(seconds * (v + w) / 2 for seconds, v, w in steps)
            variance += sum((seconds * (w - v)) ** 2 / 2 for seconds, v, w in steps)
    count, error = sum(map(len, devices.values())), 2 * math.sqrt(variance)
    return MetricValue(value=total, n=count, low=max(0.0, total - error), high=total + error)


def _readings(m: Measurement, value: Callable[[TelemetrySample], float | None]) -> Devices:
    """(seconds, value) of every device, those without a value left out."""
    found: Devices = {}
    for sample in m.telemetry:
        number = value(sample)
        if number is not None and sample.device_index is not None:
            found.setdefault(sample.device_index, []).append((sample.time_s, number))
    return found


def _refused(m: Measurement, devices: Devices, none: str) -> str | None:
    """Why these readings are not the energy of the trial, all of it and of nothing else."""
    if not devices:
        return next((s.telemetry_reason for s in m.telemetry if s.telemetry_reason), none)
    if m.devices is None or len(devices) != m.devices:
        return f"{len(devices)} devices were read and {m.devices} are allocated"
    inside = (s.foreign_processes for s in m.telemetry if m.inside(s.time_s))
    if any(count for count in inside):
        return "another process ran on a device"
    return None


def _first_seen(pairs: Sequence[Reading]) -> list[Reading]:
    """The readings that showed a new value, and the last one."""
    new = [later for earlier, later in itertools.pairwise(pairs) if later[1] != earlier[1]]
    steps = [pairs[0], *new]
    return steps if steps[-1][0] == pairs[-1][0] else [*steps, pairs[-1]]


def _at(readings: Sequence[Reading], time_s: float) -> tuple[float, float] | None:
    """The value at an instant on the line between its neighbours, and how far they are apart.

    None outside the readings, or between neighbours that are further apart than MAX_GAP_S.
    """
    for (before_s, before), (after_s, after) in itertools.pairwise(readings):
        if not before_s <= time_s <= after_s:
            continue
        passed = after_s - before_s
        if passed > MAX_GAP_S and time_s not in (before_s, after_s):
            return None
        share = (time_s - before_s) / passed if passed else 0.0
        return before + share * (after - before), abs(after - before)
    return None


def _line(pairs: Sequence[Reading], window: Reading) -> list[Reading] | None:
    """The readings inside a window, and what lies on its edges; None where an edge is not known."""
    start, end = (_at(pairs, edge) for edge in window)
    if start is None or end is None:
        return None
    inner = [pair for pair in pairs if window[0] < pair[0] < window[1]]
    return [(window[0], start[0]), *inner, (window[1], end[0])]


def _uncovered(pairs: Sequence[Reading], window: Reading) -> str:
    if pairs[0][0] > window[0] or pairs[-1][0] < window[1]:
        return "a device was not read on both sides of the window"
    return f"a device was not read within {MAX_GAP_S:g} s around an edge of the window"


def _each(joules: MetricValue, count: float, none: str) -> MetricValue:
    """Joules for each of `count`, bounds included."""
    if joules.value is None:
        return joules
    share = ratio(joules.value, count, round(count), none)
    if share.value is None or joules.low is None or joules.high is None:
        return share
    return replace(share, low=joules.low / count, high=joules.high / count)


def _net(joules: MetricValue, m: Measurement) -> MetricValue:
    """Less what the devices take with the engine up and nothing in flight."""
    if joules.value is None:
        return joules
    if m.idle_power_w is None:
        return missing("the power of the idle devices was not measured")
    idle_j = m.idle_power_w * m.window_length_s
    if joules.value < idle_j:
        return missing("the devices took less than when idle: they had not settled", joules.n)
    bounds = {
        name: None if bound is None else max(0.0, bound - idle_j)
        for name, bound in (("low", joules.low), ("high", joules.high))
    }
    return replace(joules, value=joules.value - idle_j, **bounds)


def _agreement(by_integral: MetricValue, by_counter: MetricValue) -> MetricValue:
    """Integral / counter, with the bounds that those of the two allow."""
    for found in (by_counter, by_integral):
        if found.value is None:
            return found
    over, under = by_integral, by_counter
    assert over.value is not None
    assert under.value is not None
    found = ratio(over.value, under.value, under.n, "the counters did not move")
    if found.value is None or over.low is None or over.high is None:
        return found
    if not under.low or under.high is None:
        return found
    return replace(found, low=over.low / under.high, high=over.high / under.low)
