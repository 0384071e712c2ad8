"""What the devices did in the window: power, clocks, heat, throttling. Definitions: `METRICS`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from experiments.energy import energy
from experiments.measurement import Measurement
from experiments.metric_values import missing, ratio
from experiments.records import MetricValue, TelemetrySample
from experiments.throttling import harmful

NO_DEVICE = "no device was read in the window"
POWER_CAP = "sw_power_cap"


def device_metrics(m: Measurement) -> dict[str, MetricValue]:
    """Every metric of `metric_rows_devices`, by name."""
    inside = [s for s in m.telemetry if m.inside(s.time_s)]
    rows = [s for s in inside if s.device_index is not None]
    reason = next((s.telemetry_reason for s in m.telemetry if s.telemetry_reason), NO_DEVICE)
    none = NO_DEVICE if rows else reason
    return {
        **energy(m),
        "device_power_w": _summed_power(rows, m, none),
        "idle_power_w": missing("the power of the idle devices was not measured")
        if m.idle_power_w is None
        else MetricValue(value=m.idle_power_w, n=m.devices or 1),
        "device_utilisation_percent": _of(
            _mean, (s.device_utilisation_percent for s in rows), none
        ),
        "device_clock_mhz": _of(_mean, (s.device_clock_mhz for s in rows), none),
        "device_clock_mhz_min": _of(min, (s.device_clock_mhz for s in rows), none),
        "device_temperature_c": _of(max, (s.device_temperature_c for s in rows), none),
        "device_memory_peak_bytes": _of(max, (s.device_memory_bytes for s in rows), none),
        "throttled_share": _share(rows, lambda reasons: bool(harmful(reasons)), none),
        "power_capped_share": _share(rows, lambda reasons: POWER_CAP in reasons, none),
        "host_energy_j": _host_energy(m),
        "telemetry_readings_s": _pace(inside, m),
    }


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _of(
    statistic: Callable[[Sequence[float]], float], values: Iterable[float | None], none: str
) -> MetricValue:
    told = [value for value in values if value is not None]
    return MetricValue(value=float(statistic(told)), n=len(told)) if told else missing(none)


def _summed_power(rows: Sequence[TelemetrySample], m: Measurement, none: str) -> MetricValue:
    """The mean of each device, then their sum: devices need not be read equally often."""
    devices: dict[int, list[float]] = {}
    for row in rows:
        if row.device_power_w is not None and row.device_index is not None:
            devices.setdefault(row.device_index, []).append(row.device_power_w)
    if not devices:
        return missing(none)
    if len(devices) != m.devices:
        return missing(f"{len(devices)} devices were read and {m.devices} are allocated")
    count = sum(map(len, devices.values()))
    return MetricValue(value=sum(map(_mean, devices.values())), n=count)


def _share(
    rows: Sequence[TelemetrySample], holds: Callable[[tuple[str, ...]], bool], none: str
) -> MetricValue:
    told = [row.throttle_reasons for row in rows if row.throttle_reasons is not None]
    return ratio(sum(map(holds, told)), len(told), len(told), none)


def _pace(inside: Sequence[TelemetrySample], m: Measurement) -> MetricValue:
    """By the rows of the host: there is one an instant."""
    count = sum(s.memory_bytes is not None for s in inside)
    if not count:
        return missing("nothing was read in the window")
    return ratio(count, m.window_length_s, count, "the window is empty")


def _host_energy(m: Measurement) -> MetricValue:
    """Between the readings that enclose the window most closely, scaled to its length."""
    pairs = [(s.time_s, s.host_energy_j) for s in m.telemetry if s.host_energy_j is not None]
    before = [pair for pair in pairs if pair[0] <= m.window_s[0]]
    after = [pair for pair in pairs if pair[0] >= m.window_s[1]]
    if not before or not after:
        return missing("the processors' energy counters cannot be read on this host")
    (start_s, start_j), (end_s, end_j) = before[-1], after[0]
    if end_s <= start_s or end_j < start_j:
        return missing("the processors' energy counters did not move")
    share = m.window_length_s / (end_s - start_s)
    return MetricValue(value=(end_j - start_j) * share, n=len(pairs))
