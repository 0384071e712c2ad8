"""What this machine has and lacks, each with what it means for a measurement."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Literal

from experiments.errors import TelemetryError
from workbench.doctor_devices import devices, meters
from workbench.doctor_host import permissions, ports, processor
from workbench.findings import Finding
from workbench.provenance import accelerator_name, manifest

LITTLE_DISK_BYTES = 1_000_000_000
LITTLE_MEMORY_BYTES = 2_000_000_000
BUSY_SHARE = 0.5  # of the cores
REQUIRED = {
    "torch": "the engine cannot run",
    "numpy": "nothing can run",
    "safetensors": "checkpoints cannot be read",
    "tokenizers": "text workloads with a tokenizer.json cannot be read",
    "pydantic": "plans cannot be read",
    "pyyaml": "plans cannot be read",
    "pyarrow": "trials cannot be stored",
    "psutil": "the host cannot be observed and runs cannot be locked",
}
OPTIONAL = {
    "pandas": "`workbench show`, `pareto` and `report` do not work; measuring does",
    "duckdb": "Parquet is read through pandas instead; nothing is lost",
    "plotly": "reports come without a figure",
    "streamlit": "`workbench dashboard` does not work; `workbench report` does",
    "jinja2": "`workbench report` does not work",
    "jupyterlab": "notebooks cannot be opened here",
    "nvidia-ml-py": "NVIDIA devices are not observed: no power, energy or clocks",
    "triton": "no Triton kernels: the reference kernels are used",
}

Version = Callable[[str], str | None]


def examine(store: Path) -> list[Finding]:
    """Every finding about this machine; `store` is where results would go."""
    facts = manifest(environ={}, folder=store)
    return [
        Finding(level="ok", subject="python", message=sys.version.split()[0]),
        *packages(installed_version),
        *host(facts),
        *devices(facts),
        *processor(facts),
        *quiet(facts),
        *permissions(facts, store),
        *ports(),
        kernels_clash(installed_version),
    ]


def examine_devices(seconds: float) -> list[Finding]:
    """What the devices' meters say under load: this puts one on the first device."""
    from experiments.device_check import run

    try:
        return list(meters(run(seconds=seconds, with_load=True)))
    except TelemetryError as error:
        return [Finding(level="error", subject="meters", message=str(error))]


def installed_version(name: str) -> str | None:
    """The installed version of a distribution; None where it is absent."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def requirement(name: str) -> str:
    """The versions of a package that this distribution asks for, such as `plotly>=6,<7`."""
    try:
        asked = importlib.metadata.requires("inference-workbench") or []
    except importlib.metadata.PackageNotFoundError:
        asked = []
    found = (text.partition(";")[0].strip() for text in asked)
    return next((text for text in found if re.match(rf"{re.escape(name)}\b", text)), name)


def packages(version: Version) -> Iterator[Finding]:
    """What is installed, and what the absence of the rest means."""
    for name, meaning in REQUIRED.items():
        yield _package(name, version(name), meaning, "error")
    for name, meaning in OPTIONAL.items():
        yield _package(name, version(name), meaning, "warning")


def _package(
    name: str, version: str | None, meaning: str, absent: Literal["warning", "error"]
) -> Finding:
    if version is None:
        return Finding(level=absent, subject=name, message=f"not installed: {meaning}")
    return Finding(level="ok", subject=name, message=version)


def host(facts: Mapping[str, object]) -> Iterator[Finding]:
    """Accelerator, disk and memory of the manifest `facts`."""
    reasons = facts.get("reasons")
    why = reasons.get("devices") if isinstance(reasons, Mapping) else None
    yield Finding(
        level="ok",
        subject="accelerator",
        message=accelerator_name(facts) + (f" ({why})" if why else ""),
    )
    yield _room("disk", facts.get("disk_free_bytes"), LITTLE_DISK_BYTES)
    yield _room("memory", facts.get("memory_available_bytes"), LITTLE_MEMORY_BYTES)


def quiet(facts: Mapping[str, object]) -> Iterator[Finding]:
    """What besides a measurement uses the processors, and what there is to measure on."""
    if not facts.get("devices"):
        message = "CPU only: no GPU was found, so nothing here says how fast a GPU would be"
        yield Finding(level="warning", subject="devices", message=message)
    cores, load = facts.get("cpu_logical"), facts.get("load_average")
    if not isinstance(cores, int) or not isinstance(load, list) or not load:
        return
    busy = load[0] > cores * BUSY_SHARE
    note = ": other processes take time from a measurement; wait until they end" if busy else ""
    yield Finding(
        level="warning" if busy else "ok",
        subject="load",
        message=f"load average {load[0]:.1f} on {cores} cores{note}",
    )
    yield Finding(
        level="ok",
        subject="num_threads",
        message=f"auto shares {cores} cores among the replicas; set engine.num_threads to fix it",
    )


def _room(subject: str, free: object, little: int) -> Finding:
    if not isinstance(free, int):
        return Finding(level="warning", subject=subject, message="how much is free is not known")
    level: Literal["ok", "warning"] = "ok" if free >= little else "warning"
    note = "" if free >= little else ": little; a run may have to stop"
    return Finding(level=level, subject=subject, message=f"{free / 1e9:,.1f} GB free{note}")


def kernels_clash(version: Version) -> Finding:
    """Whether the other distribution called `kernels` is here: both own that import name."""
    other = version("kernels")
    if other is None:
        return Finding(level="ok", subject="kernels", message="no other package of that name")
    spec = importlib.util.find_spec("kernels")
    seen = "ours is imported" if _is_ours(spec) else "the other one is imported"
    return Finding(
        level="warning" if _is_ours(spec) else "error",
        subject="kernels",
        message=f"the package kernels {other} from PyPI shares the import name; {seen}. "
        "Remove it with `pip uninstall kernels`, then reinstall inference-workbench.",
    )


def _is_ours(spec: object) -> bool:
    origin = getattr(spec, "origin", None)
    return origin is not None and (Path(str(origin)).parent / "formats.py").is_file()
