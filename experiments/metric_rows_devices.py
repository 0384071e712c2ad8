"""Rows of METRICS about devices and energy, in the form of `metric_rows`."""

from __future__ import annotations

from experiments.metric_rows import Row

_JOULES = "growth of all allocated devices' energy counters over the window"

DEVICES: tuple[Row, ...] = (
    (
        "energy_j",
        "Energy of the devices",
        "J",
        "none",
        "sum of window",
        f"{_JOULES}; of devices without a counter: the integral of their power. Missing when a "
        "counter was reset, under MIG, when another process ran there, or when not all devices "
        "were read. The interval is one step of the counters",
    ),
    (
        "energy_j_token",
        "Energy per output token",
        "J/tok",
        "min",
        "ratio of window",
        f"{_JOULES} / output tokens in it",
    ),
    (
        "energy_j_total_token",
        "Energy per token, prompt included",
        "J/tok",
        "min",
        "ratio of window",
        f"{_JOULES} / (output tokens in it + prompt tokens of requests that started in it)",
    ),
    (
        "energy_j_request",
        "Energy per request",
        "J",
        "min",
        "ratio of window",
        f"{_JOULES} / requests that ended in it",
    ),
    (
        "energy_j_token_net",
        "Energy per output token, net of idle",
        "J/tok",
        "min",
        "ratio of window",
        f"({_JOULES} - power of the idle devices x window) / output tokens in it; idle: the engine "
        "up and nothing in flight, measured before the trial",
    ),
    (
        "energy_j_token_integral",
        "Energy per output token, by power",
        "J/tok",
        "min",
        "ratio of window",
        "trapezoids under the devices' power over the window, readings at most 1 s apart / output "
        "tokens in it; the interval is two standard errors, by how neighbouring readings differ",
    ),
    (
        "energy_agreement",
        "Integral of power over counter",
        "",
        "none",
        "ratio of window",
        "energy by the integral of power / energy by the counters: 1 where they agree; the "
        "interval is what the bounds of both allow",
    ),
    (
        "device_power_w",
        "Power of the devices",
        "W",
        "none",
        "mean of devices",
        "mean power of each allocated device over the window, summed over devices",
    ),
    (
        "idle_power_w",
        "Idle power of the devices",
        "W",
        "none",
        "mean of devices",
        "power of all allocated devices with the engine up and nothing in flight, before the trial",
    ),
    (
        "device_utilisation_percent",
        "Device utilisation",
        "%",
        "none",
        "mean of devices",
        "share of time in which the device ran anything, as its driver tells; mean over readings",
    ),
    (
        "device_clock_mhz",
        "Device clock",
        "MHz",
        "none",
        "mean of devices",
        "clock of the computing cores; mean over readings in the window",
    ),
    (
        "device_clock_mhz_min",
        "Lowest device clock",
        "MHz",
        "none",
        "min of devices",
        "lowest reading of the clock of the computing cores in the window",
    ),
    (
        "device_temperature_c",
        "Device temperature",
        "C",
        "none",
        "max of devices",
        "hottest reading of any device in the window",
    ),
    (
        "device_memory_peak_bytes",
        "Peak memory of a device",
        "B",
        "min",
        "max of devices",
        "largest reading of memory in use on any device in the window",
    ),
    (
        "throttled_share",
        "Share of readings throttled",
        "",
        "min",
        "ratio of devices",
        "readings with a harmful throttle reason (heat, hardware brake) / readings",
    ),
    (
        "power_capped_share",
        "Share of readings at the power limit",
        "",
        "none",
        "ratio of devices",
        "readings in which the power limit held the clocks down / readings",
    ),
    (
        "host_energy_j",
        "Energy of the processors",
        "J",
        "none",
        "sum of window",
        "growth of the energy counters of the host's processor packages over the window",
    ),
    (
        "telemetry_readings_s",
        "Telemetry readings per second",
        "1/s",
        "none",
        "ratio of window",
        "instants in the window at which host and devices were read / window",
    ),
)
