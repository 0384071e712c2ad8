"""What this host is: processor, memory, system, devices. Reads only; each fact or its reason.

A fact that cannot be had is absent from the mapping's values (None) and its reason is kept
under the same name in `Facts.reasons`.
"""

from __future__ import annotations

import hashlib
import os
import platform
import re
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import psutil

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
    cpu_text = _text(root / "proc/cpuinfo") or ""
    readers: Mapping[str, Callable[[], object]] = {
        "hostname_hash": lambda: hashlib.sha256(socket.gethostname().encode()).hexdigest()[:12],
        "os": platform.system,
        "os_release": lambda: platform.freedesktop_os_release()["PRETTY_NAME"],
        "kernel": platform.release,
        "machine": platform.machine,
        "libc": lambda: " ".join(platform.libc_ver()).strip() or None,
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
    for name, read in readers.items():
        facts.add(name, read)
    return facts


def device_facts() -> Facts:
    """NVIDIA devices through NVML: `devices`, `driver`, `cuda_driver`; missing with a reason."""
    facts = Facts()
    names = ("devices", "driver", "cuda_driver")
    try:
        import pynvml
    except ImportError:
        return _none(facts, names, "nvidia-ml-py is not installed")
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        return _none(facts, names, f"no NVIDIA driver answers ({error})")
    try:
        facts.add("driver", lambda: _decoded(pynvml.nvmlSystemGetDriverVersion()))
        facts.add("cuda_driver", lambda: pynvml.nvmlSystemGetCudaDriverVersion() / 1000)
        count = pynvml.nvmlDeviceGetCount()
        facts.add("devices", lambda: [_device(pynvml, index) for index in range(count)])
    finally:
        pynvml.nvmlShutdown()
    return facts


def _none(facts: Facts, names: tuple[str, ...], reason: str) -> Facts:
    for name in names:
        facts.values[name], facts.reasons[name] = None, reason
    return facts


def _device(nvml: object, index: int) -> dict[str, object]:
    """One device; a question that NVML refuses is None."""
    handle = _ask(nvml, "nvmlDeviceGetHandleByIndex", index)
    memory = _ask(nvml, "nvmlDeviceGetMemoryInfo", handle)
    mode = _ask(nvml, "nvmlDeviceGetMigMode", handle)
    ecc = _ask(nvml, "nvmlDeviceGetEccMode", handle)
    running = _ask(nvml, "nvmlDeviceGetComputeRunningProcesses", handle)
    return {
        "index": index,
        "name": _decoded(_ask(nvml, "nvmlDeviceGetName", handle)),
        "uuid": _decoded(_ask(nvml, "nvmlDeviceGetUUID", handle)),
        "vbios": _decoded(_ask(nvml, "nvmlDeviceGetVbiosVersion", handle)),
        "memory_bytes": getattr(memory, "total", None),
        "memory_used_bytes": getattr(memory, "used", None),
        "power_limit_mw": _ask(nvml, "nvmlDeviceGetEnforcedPowerLimit", handle),
        "sm_clock_mhz": _ask(nvml, "nvmlDeviceGetClockInfo", handle, 1),
        "sm_clock_max_mhz": _ask(nvml, "nvmlDeviceGetMaxClockInfo", handle, 1),
        "memory_clock_mhz": _ask(nvml, "nvmlDeviceGetClockInfo", handle, 2),
        "temperature_c": _ask(nvml, "nvmlDeviceGetTemperature", handle, 0),
        "ecc": ecc[0] == 1 if isinstance(ecc, list | tuple) else None,
        "mig": mode[0] == 1 if isinstance(mode, list | tuple) else None,
        "persistence": _ask(nvml, "nvmlDeviceGetPersistenceMode", handle),
        "throttle_reasons": _ask(nvml, "nvmlDeviceGetCurrentClocksThrottleReasons", handle),
        "processes": len(running) if isinstance(running, list) else None,
    }


def _ask(nvml: object, question: str, *arguments: object) -> object:
    try:
        return getattr(nvml, question)(*arguments)
    except (getattr(nvml, "NVMLError"), AttributeError):  # noqa: B009 (nvml is passed in)
        return None


def _decoded(value: object) -> object:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


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
