"""The facts that decide whether two sides may be compared, and where each is read."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from workbench.figures_text import value_text

if TYPE_CHECKING:
    import pandas as pd

    from workbench.stored_run import Run

CLOCK_TOLERANCE = 0.03  # of the mean clock observed under load


class Severity(StrEnum):
    """What a difference does to a comparison."""

    BLOCK = "block"
    WARN = "warn"
    NOTE = "note"


@dataclass(frozen=True, kw_only=True)
class Side:
    """One side of a comparison: its run and those of its points that are compared."""

    run: Run
    points: pd.DataFrame

    def environment(self, *path: str) -> object:
        """A fact of the manifest; None where it is missing."""
        found: object = self.run.environment
        for name in path:
            found = found.get(name) if isinstance(found, Mapping) else None
        return found

    def devices(self, field: str) -> object:
        """A field of every device, each value once; None where one of them lacks it."""
        found = self.run.environment.get("devices")
        if self.on_cpu or not isinstance(found, list) or not found:
            return None
        values = [device.get(field) for device in found if isinstance(device, Mapping)]
        return None if None in values else sorted(set(map(value_text, values)))

    def column(self, name: str) -> object:
        """The different values of a column of the points; None where there is none."""
        if name not in self.points.columns:
            return None
        told = [value_text(value) for value in self.points[name] if not _absent(value)]
        return sorted(set(told)) or None

    @cached_property
    def on_cpu(self) -> bool:
        """True where no device of the host serves."""
        return self.column("engine.accelerator") == ["cpu"] or self.simulated

    @cached_property
    def imported(self) -> bool:
        """True where another tool measured, and only its file is known."""
        return self.run.origin is not None

    @cached_property
    def simulated(self) -> bool:
        """True where nothing was computed at all."""
        return self.run.summary.engine == "simulated"


def _absent(value: object) -> bool:
    return value is None or value != value


Read = Callable[[Side], object]


@dataclass(frozen=True, kw_only=True)
class Rule:
    """One fact that must, should or may agree. `why` ends the sentence of a difference."""

    name: str
    read: Read
    severity: Severity
    why: str
    matters: Callable[[Side], bool] = lambda _side: True
    same: Callable[[object, object], bool] = operator.eq


def _devices(field: str) -> Read:
    return lambda side: side.devices(field)


def _environment(*path: str) -> Read:
    return lambda side: side.environment(*path)


def _column(name: str) -> Read:
    return lambda side: side.column(name)


def _on_device(side: Side) -> bool:
    return not side.on_cpu


def _clocks(side: Side) -> object:
    """The clocks that are set: application clocks, or the largest where none are told."""
    found = [side.devices(f"{kind}_clock_{which}_mhz") for kind, which in _CLOCKS]
    return None if all(values is None for values in found) else found


_CLOCKS = (("sm", "application"), ("sm", "max"), ("memory", "max"))


def _device_name(side: Side) -> object:
    """A tuple where another tool names it, by a word of its own."""
    if side.imported:
        told = side.column("engine.accelerator")
        return tuple(told) if isinstance(told, list) else None
    if side.simulated:
        return "simulated"
    return side.environment("cpu_model") if side.on_cpu else side.devices("name")


def _same_device(first: object, second: object) -> bool:
    """Names of another tool are the same where they share a word with a digit: `h200`."""
    if not isinstance(first, tuple) and not isinstance(second, tuple):
        return first == second
    if not isinstance(first, list | tuple) or not isinstance(second, list | tuple):
        return False
    ours, theirs = (
        [set(re.findall(r"[a-z]*\d\w*", str(name).lower())) for name in names]
        for names in (first, second)
    )
    return all(any(one & other for other in theirs) for one in ours) and all(
        any(one & other for one in ours) for other in theirs
    )


def _model(side: Side) -> object:
    """Names of the models, without the folder or the owner."""
    found = side.column("engine.model")
    return sorted({Path(name).name.lower() for name in found}) if isinstance(found, list) else None


def _is_imported(side: Side) -> bool:
    return side.imported


def _tokenizer(side: Side) -> object:
    return side.environment("tokenizer_hashes")


def _slo(side: Side) -> object:
    names = [name for name in side.points.columns if str(name).startswith("workload.slo_")]
    return {str(name): side.column(str(name)) for name in names} or "none"


def _protocol(side: Side) -> object:
    found = side.run.plan.get("protocol")
    kept = ("name", "measured_s", "measured_per_slot", "measured_requests")
    return {n: found.get(n) for n in kept} if isinstance(found, Mapping) else found


def _dirty(side: Side) -> object:
    told = side.environment("git_dirty")
    return None if told is None else side.environment("git_diff_hash") if told else "clean"


def _variables(side: Side) -> object:
    return side.environment("environment_variables")


def _labels(side: Side) -> object:
    return sorted({str(label) for labels in side.points["labels"] for label in labels})


def _clock_observed(side: Side) -> object:
    """Mean over the points, in MHz: whether clocks are locked no driver tells."""
    if "device_clock_mhz" not in side.points.columns:
        return None
    values = [float(value) for value in side.points["device_clock_mhz"] if not _absent(value)]
    return round(sum(values) / len(values)) if values else None


def _within_tolerance(first: object, second: object) -> bool:
    if isinstance(first, int) and isinstance(second, int):
        return abs(first - second) <= CLOCK_TOLERANCE * max(first, second)
    return first == second


def _package(name: str) -> Read:
    return _environment("packages", name)


def _has_quota(side: Side) -> bool:
    return side.environment("cpu_quota_cores") is not None


def _in_image(side: Side) -> bool:
    return side.environment("container_image") is not None


_BLOCK, _WARN, _NOTE = Severity.BLOCK, Severity.WARN, Severity.NOTE
RULES = (
    Rule(name="target", read=lambda s: s.simulated, severity=_BLOCK,
          why="a simulated target computes nothing"),
    Rule(name="device", read=_device_name, severity=_BLOCK, same=_same_device,
          why="another device has another speed"),
    Rule(name="model", read=_model, severity=_BLOCK, matters=_is_imported,
          why="another model is other work"),
    Rule(name="checkpoint", read=_column("checkpoint"), severity=_BLOCK,
          why="other weights are other work, and draft with another acceptance"),
    Rule(name="tokenizer", read=_tokenizer, severity=_BLOCK,
          why="a token is not the same amount of text"),
    Rule(name="dtype", read=_column("engine.dtype"), severity=_BLOCK,
          why="other arithmetic is other work"),
    Rule(name="cache_format", read=_column("engine.cache_format"), severity=_BLOCK,
          why="rows of another size move other bytes"),
    Rule(name="content", read=_column("workload.content"), severity=_BLOCK,
          why="random ids, text and synthetic acceptance draft and route differently"),
    Rule(name="workload", read=_column("workload.content_hash"), severity=_BLOCK,
          why="they were asked for other prompts or lengths"),
    Rule(name="load", read=_column("workload.load"), severity=_BLOCK,
          why="latency under a fixed number in flight is not latency at a rate"),
    Rule(name="slo", read=_slo, severity=_BLOCK, why="goodput counts by other limits"),
    Rule(name="prices", read=_column("cost.prices"), severity=_BLOCK,
          why="costs come from other prices"),
    Rule(name="driver", read=_environment("driver"), severity=_BLOCK,
          why="a driver brings clocks and kernels of its own", matters=_on_device),
    Rule(name="cuda", read=_environment("torch_build", "cuda"), severity=_BLOCK,
          why="libraries of another CUDA have other kernels", matters=_on_device),
    Rule(name="clocks", read=_clocks, severity=_BLOCK,
          why="other clocks are another speed", matters=_on_device),
    Rule(name="power_limit", read=_devices("power_limit_w"), severity=_BLOCK,
          why="a lower limit lowers the clocks under load", matters=_on_device),
    Rule(name="mig", read=_devices("mig"), severity=_BLOCK,
          why="an instance is a part of a device", matters=_on_device),
    Rule(name="cuda_driver", read=_environment("cuda_driver"), severity=_WARN,
          why="the driver speaks another CUDA", matters=_on_device),
    Rule(name="ecc", read=_devices("ecc"), severity=_WARN,
          why="memory checks cost bandwidth", matters=_on_device),
    Rule(name="vbios", read=_devices("vbios"), severity=_WARN,
          why="firmware sets limits", matters=_on_device),
    Rule(name="torch", read=_package("torch"), severity=_WARN, why="it brings the kernels"),
    Rule(name="triton", read=_package("triton"), severity=_WARN, why="it compiles the kernels"),
    Rule(name="engine", read=lambda s: s.run.summary.engine, severity=_WARN,
          why="a client and a wire between cost time of their own"),
    Rule(name="protocol", read=_protocol, severity=_WARN,
          why="they were measured for another time"),
    Rule(name="labels", read=_labels, severity=_WARN, why="what a label says holds of one side"),
    Rule(name="code_dirty", read=_dirty, severity=_WARN,
          why="uncommitted changes are in no history"),
    Rule(name="variables", read=_variables, severity=_WARN, why="libraries read them"),
    Rule(name="threads", read=_environment("torch_threads"), severity=_WARN,
          why="operations share another number of cores"),
    Rule(name="cpu", read=_environment("cpu_model"), severity=_WARN,
          why="the host schedules and samples", matters=_on_device),
    Rule(name="cpu_governor", read=_environment("cpu_governor"), severity=_WARN,
          why="it sets the clocks of the host"),
    Rule(name="cpu_allowed", read=_environment("cpu_allowed"), severity=_WARN,
          why="the host had other cores"),
    Rule(name="cpu_quota", read=_environment("cpu_quota_cores"), severity=_WARN,
          why="the host's cores were shared out differently", matters=_has_quota),
    Rule(name="kernel", read=_environment("kernel"), severity=_WARN,
          why="the system schedules the host"),
    Rule(name="container", read=_environment("container_image"), severity=_WARN,
          why="an image brings libraries", matters=_in_image),
    Rule(name="clock_observed", read=_clock_observed, severity=_WARN, same=_within_tolerance,
         why="locked, throttled or boosted, the devices ran at another speed", matters=_on_device),
    Rule(name="code", read=lambda s: s.run.code_version, severity=_NOTE,
          why="the code that measures changed"),
    Rule(name="git", read=_environment("git_sha"), severity=_NOTE, why="another commit"),
    Rule(name="host", read=_environment("hostname_hash"), severity=_NOTE, why="another machine"),
    Rule(name="python", read=_environment("python"), severity=_NOTE, why="another interpreter"),
)  # fmt: skip
BLOCKING = tuple(rule.name for rule in RULES if rule.severity is Severity.BLOCK)
"""Names that a comparison may accept."""
