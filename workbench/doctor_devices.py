"""What the devices of this host mean for a measurement: modes, limits, neighbours, permissions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from experiments.metric_specs import METRICS
from experiments.throttling import harmful
from workbench.findings import Finding, Level

if TYPE_CHECKING:
    from experiments.device_check import DeviceCheck

NO_LOCK = (
    "NVML does not tell whether clocks are locked: `nvidia-smi -lgc MIN,MAX` locks them where you "
    "may; trials record every clock, and a moving one shows as device_clock_mhz_min below its mean"
)
FULL_LINKS = 16  # lanes of PCIe that a data-centre device has


def devices(facts: Mapping[str, object]) -> Iterator[Finding]:
    """Findings about each device of the manifest `facts`; none for a host without."""
    found = facts.get("devices")
    rows = [row for row in found if isinstance(row, Mapping)] if isinstance(found, list) else []
    for row in rows:
        subject = f"device {row.get('index')}"
        yield Finding(level="ok", subject=subject, message=_name(row))
        for level, message in _device(row):
            yield Finding(level=level, subject=subject, message=message)
    yield from _together(rows)
    if any("sm_clock_max_mhz" in row for row in rows):
        yield Finding(level="warning", subject="clocks", message=NO_LOCK)


def _name(row: Mapping[str, object]) -> str:
    parts = [str(row.get("name"))]
    memory, limit = row.get("memory_bytes"), row.get("power_limit_w")
    if isinstance(memory, int):
        parts.append(f"{memory / 1e9:,.0f} GB")
    if isinstance(limit, int | float):
        parts.append(f"power limit {limit:,.0f} W")
    return ", ".join(parts)


def _device(row: Mapping[str, object]) -> Iterator[tuple[Level, str]]:
    yield from _modes(row)
    yield from _limits(row)
    reasons = row.get("throttle_reasons")
    bad = harmful(reasons) if isinstance(reasons, list) else ()
    if bad:
        yield "warning", f"is throttled now ({', '.join(bad)}): measure when it has cooled"
    processes = row.get("processes")
    if isinstance(processes, int) and processes:
        yield "warning", f"{processes} processes run on it: they share its time, power and memory"
    used, whole = row.get("memory_used_bytes"), row.get("memory_bytes")
    if isinstance(used, int) and isinstance(whole, int) and used > whole / 20 and not processes:
        message = f"{used / 1e9:,.1f} GB are in use by processes that cannot be seen from here"
        yield "warning", message


def _modes(row: Mapping[str, object]) -> Iterator[tuple[Level, str]]:
    if row.get("mig") is True:
        yield "warning", "MIG is on: no power and energy of an instance, and neighbours share it"
    if row.get("persistence") is False:
        yield (
            "warning",
            "persistence is off: the first start after idling is slow; `nvidia-smi -pm 1`",
        )
    if row.get("ecc") is False:
        yield "warning", "ECC is off: faster than hosts with it, and flipped bits go unnoticed"
    if row.get("compute_mode") not in (None, "default"):
        yield "warning", f"compute mode is {row['compute_mode']}: a second process cannot open it"
    if row.get("energy_counter") is None and "energy_counter" in row:
        yield "warning", "has no energy counter: energy comes from power alone"


def _limits(row: Mapping[str, object]) -> Iterator[tuple[Level, str]]:
    limit, default = row.get("power_limit_w"), row.get("power_limit_default_w")
    if isinstance(limit, float) and isinstance(default, float) and limit != default:
        yield "warning", f"power limit is {limit:,.0f} W, not its default of {default:,.0f} W"
    application, most = row.get("sm_clock_application_mhz"), row.get("sm_clock_max_mhz")
    if isinstance(application, int) and isinstance(most, int) and application < most:
        yield "ok", f"application clock is {application:,} MHz, of {most:,} MHz at most"
    width = row.get("pcie_width")
    if isinstance(width, int) and 0 < width < FULL_LINKS:
        yield "warning", f"is connected by {width} PCIe lanes: copies to and from it are slow"


def _together(rows: list[Mapping[str, object]]) -> Iterator[Finding]:
    """What sets the devices of one host apart from each other."""
    names = sorted({str(row.get("name")) for row in rows})
    if len(names) > 1:
        message = f"of several kinds ({', '.join(names)}): a sweep over them mixes numbers"
        yield Finding(level="warning", subject="devices", message=message)
    limits = {row.get("power_limit_w") for row in rows}
    if len(limits) > 1:
        message = f"with several power limits ({', '.join(map(str, sorted(limits, key=str)))} W)"
        yield Finding(level="warning", subject="devices", message=message)


def meters(found: DeviceCheck) -> Iterator[Finding]:
    """What a check under load said: readings, their cost, and whether the meters agree."""

    def ok(message: str) -> Finding:
        return Finding(level="ok", subject="meters", message=message)

    yield ok(f"load: {found.load}")
    for name in ("device_power_w", "device_clock_mhz", "device_temperature_c", "idle_power_w"):
        spec, metric = METRICS[name], found.metrics[name]
        value = f"{metric.value:,.1f} {spec.unit}" if metric.value is not None else metric.reason
        yield ok(f"{spec.label}: {value}")
    yield ok(
        f"one reading of everything takes {found.read_p50_s * 1e3:.1f} ms (at most "
        f"{found.read_max_s * 1e3:.1f}), {found.read_cpu_share:.1%} of a core at the usual pace"
    )
    if found.load_slowed is not None:
        yield ok(
            f"the load ran {found.load_slowed:.1%} slower while it was watched (noise included)"
        )
    if found.counter_step_s is not None:
        yield ok(f"the energy counter moves every {found.counter_step_s * 1e3:.0f} ms")
    agreement = found.metrics["energy_agreement"]
    if agreement.value is not None:
        yield ok(f"integral of power over energy counter: {agreement.value:.3f}")
    for problem in found.problems:
        yield Finding(level="warning", subject="meters", message=problem)
