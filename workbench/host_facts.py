"""What this host is: processor, memory, system, devices. Reads only; each fact or its reason.

A fact that cannot be had is absent from the mapping's values (None) and its reason is kept
under the same name in `Facts.reasons`.
"""

from __future__ import annotations

import hashlib
import os
import platform
import re
import resource
import shutil
import socket
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from experiments.ascend import ascend_chips
from experiments.errors import TelemetryError
from experiments.nvidia_facts import nvidia_host

CPU_FEATURES = (
    "avx2",
    "avx512f",
    "avx512_bf16",
    "avx512_vnni",
    "amx_bf16",
    "amx_tile",
    "sve",
    "asimd",
)


@dataclass
class Facts:
    """Facts by name as they are gathered, and why some are missing."""

    values: dict[str, object] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)

    def add(self, name: str, read: Callable[[], object]) -> None:
        """Keep what `read` returns; a refusal or None becomes a missing fact with a reason."""
        try:
            value = read()
            reason = "this system does not tell"
        except (OSError, ValueError, LookupError, AttributeError, psutil.Error) as error:
            value, reason = None, f"{type(error).__name__}: {error}"
        self.values[name] = value
        if value is None:
            self.reasons[name] = reason


def host_facts(root: Path = Path("/")) -> Facts:
    """Processor, memory and system facts; `root` is where proc and sys are looked up."""
    facts = Facts()
    for name, read in (_system(root) | _processor(root)).items():
        facts.add(name, read)
    return facts


def _system(root: Path) -> dict[str, Callable[[], object]]:
    return {
        "hostname_hash": lambda: hashlib.sha256(socket.gethostname().encode()).hexdigest()[:12],
        "os": platform.system,
        "os_release": lambda: platform.freedesktop_os_release()["PRETTY_NAME"],
        "kernel": platform.release,
        "machine": platform.machine,
        "libc": lambda: " ".join(platform.libc_ver()).strip() or None,
        "locked_memory_limit_bytes": _locked_memory,
        "open_files_limit": lambda: resource.getrlimit(resource.RLIMIT_NOFILE)[0],
        "user_is_root": lambda: os.geteuid() == 0,
        "huge_pages": lambda: _text(root / "sys/kernel/mm/transparent_hugepage/enabled"),
        "clock_source": lambda: _text(
            root / "sys/devices/system/clocksource/clocksource0/current_clocksource"
        ),
        "memory_bytes": lambda: psutil.virtual_memory().total,
        "memory_available_bytes": lambda: psutil.virtual_memory().available,
        "memory_limit_bytes": lambda: _memory_limit(root),
        "swap_bytes": lambda: psutil.swap_memory().total,
        "load_average": lambda: [round(value, 2) for value in os.getloadavg()],
        "processes": lambda: len(psutil.pids()),
        "container": lambda: _container(root),
    }


def _processor(root: Path) -> dict[str, Callable[[], object]]:
    cpu_text = _text(root / "proc/cpuinfo") or ""
    return {
        "cpu_model": lambda: _cpu_line(cpu_text, "model name") or platform.processor() or None,
        "cpu_microcode": lambda: _cpu_line(cpu_text, "microcode"),
        "cpu_features": lambda: _features(cpu_text),
        "cpu_physical": lambda: psutil.cpu_count(logical=False),
        "cpu_logical": lambda: psutil.cpu_count(logical=True),
        "cpu_allowed": lambda: len(os.sched_getaffinity(0)),
        "cpu_quota_cores": lambda: _quota(root),
        "cpu_governor": lambda: _text(_cpu0(root) / "cpufreq/scaling_governor"),
        "cpu_mhz_now": lambda: _number(_cpu_line(cpu_text, "cpu MHz")),
        "cpu_mhz_max": lambda: _thousandth(_text(_cpu0(root) / "cpufreq/cpuinfo_max_freq")),
        "cpu_caches": lambda: _caches(_cpu0(root) / "cache"),
        "cpu_mitigations": lambda: _mitigations(root),
        "virtual_machine": lambda: "hypervisor" in (_cpu_line(cpu_text, "flags") or "").split(),
        "numa_nodes": lambda: _numa_nodes(root),
        "numa_balancing": lambda: _text(root / "proc/sys/kernel/numa_balancing"),
        "cpu_turbo": lambda: _turbo(root),
        "smt": lambda: _text(root / "sys/devices/system/cpu/smt/control"),
        "perf_event_paranoid": lambda: _text(root / "proc/sys/kernel/perf_event_paranoid"),
        "processor_energy_readable": lambda: _may_read(root / "sys/class/powercap"),
    }


DEVICE_FACTS: tuple[str, ...] = ("devices", "driver", "cuda_driver", "nvml", "device_topology")


def device_facts() -> Facts:
    """NVIDIA devices through NVML, or Ascend ones: DEVICE_FACTS, each missing with its reason."""
    try:
        found = nvidia_host()
    except TelemetryError as error:
        return _ascend_facts(str(error))
    told = (found.devices, found.driver, found.cuda_driver, found.nvml, found.topology)
    values: dict[str, object] = dict(zip(DEVICE_FACTS, told, strict=True))
    facts = Facts(values, dict(found.reasons))
    alone = "there is one device" if len(found.devices) == 1 else "NVML does not tell"
    for name, value in facts.values.items():
        if value is None:
            facts.reasons[name] = alone if name == "device_topology" else "NVML does not tell"
    return facts


def _ascend_facts(no_nvidia: str) -> Facts:
    """The chips of an Ascend host; why there is no device where it is none."""
    facts = Facts(reasons=dict.fromkeys(DEVICE_FACTS, no_nvidia))
    facts.values.update(dict.fromkeys(DEVICE_FACTS))
    try:
        chips = ascend_chips()
    except TelemetryError as error:
        if shutil.which("npu-smi"):
            facts.reasons["devices"] = str(error)
        return facts
    facts.values["devices"] = [
        {
            "index": place,
            "name": chip.name,
            "uuid": chip.identities[0],
            "pci_bus_id": chip.bus_id,
            "memory_bytes": None if chip.memory_total_mb is None else chip.memory_total_mb << 20,
            "temperature_c": chip.temperature_c,
            "health": chip.health,
        }
        for place, chip in enumerate(chips)
    ]
    del facts.reasons["devices"]
    return facts


def _text(path: Path) -> str | None:
    """The file without surrounding space; None when it is absent."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip("\0 \n") or None
    except OSError:
        return None


def _cpu0(root: Path) -> Path:
    return root / "sys/devices/system/cpu/cpu0"


def _cpu_line(cpu_text: str, name: str) -> str | None:
    found = re.search(rf"^{re.escape(name)}\s*:\s*(.+)$", cpu_text, re.MULTILINE)
    return found.group(1).strip() if found else None


def _features(cpu_text: str) -> list[str] | None:
    flags = (_cpu_line(cpu_text, "flags") or _cpu_line(cpu_text, "Features") or "").split()
    return [name for name in CPU_FEATURES if name in flags] if flags else None


def _number(text: str | None) -> float | None:
    return None if text is None else float(text)


def _thousandth(text: str | None) -> float | None:
    return None if text is None else float(text) / 1000


def _caches(folder: Path) -> dict[str, str] | None:
    found = {}
    for path in sorted(folder.glob("index[0-9]*")):
        level, kind, size = (_text(path / name) for name in ("level", "type", "size"))
        found[f"L{level} {kind}"] = str(size)
    return found or None


def _mitigations(root: Path) -> dict[str, str] | None:
    folder = root / "sys/devices/system/cpu/vulnerabilities"
    names = sorted(folder.iterdir()) if folder.is_dir() else []
    return {path.name: _text(path) or "" for path in names} or None


def _numa_nodes(root: Path) -> int | None:
    return len(list((root / "sys/devices/system/node").glob("node[0-9]*"))) or None


def _turbo(root: Path) -> bool | None:
    """Whether the processor may go above its base clock, as the driver in use tells it."""
    cpu = root / "sys/devices/system/cpu"
    off = _text(cpu / "intel_pstate/no_turbo")
    on = _text(cpu / "cpufreq/boost")
    if off is not None:
        return off == "0"
    return None if on is None else on == "1"


def _may_read(powercap: Path) -> bool | None:
    """Whether this user may read the processors' energy counters; None where there are none."""
    counters = list(powercap.glob("*/energy_uj"))
    return all(os.access(counter, os.R_OK) for counter in counters) if counters else None


def _locked_memory() -> int | None:
    """Memory that may be pinned; None: no limit."""
    limit = resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]
    if limit == resource.RLIM_INFINITY:
        raise LookupError("there is no limit")
    return limit


def _quota(root: Path) -> float | None:
    quota, _, period = (_text(root / "sys/fs/cgroup/cpu.max") or "max").partition(" ")
    return None if quota == "max" else int(quota) / int(period)


def _memory_limit(root: Path) -> int | None:
    limit = _text(root / "sys/fs/cgroup/memory.max")
    return None if limit in (None, "max") else int(limit)


def _container(root: Path) -> str:
    """The kind of container this runs in, as far as it shows; `none seen` otherwise."""
    if (root / ".dockerenv").exists():
        return "docker"
    if (root / "run/.containerenv").exists():
        return "podman"
    groups = _text(root / "proc/1/cgroup") or ""
    kinds = ("kubepods", "docker", "containerd", "lxc", "slurm")
    return next((kind for kind in kinds if kind in groups), "none seen")
