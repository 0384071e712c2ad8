"""Joules of the processor packages, from the kernel's powercap counters (RAPL)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

POWERCAP = Path("/sys/class/powercap")


@dataclass
class _Package:
    """One package: its counter in microjoules, where it starts again, and what passed so far."""

    counter: Path
    range_uj: int
    last_uj: int
    passed_uj: int = 0


class HostEnergy:
    """What all packages took since this was made. None where the kernel does not let us read.

    Only whole packages are added up: cores, uncore and memory are parts of them or not always
    there. The files are readable by root alone on most systems.
    """

    def __init__(self, folder: Path = POWERCAP) -> None:
        self._packages: list[_Package] | None = None
        try:
            found = [_package(path) for path in sorted(folder.glob("*:[0-9]*")) if _is_whole(path)]
        except (OSError, ValueError):
            return
        self._packages = found or None

    def read_j(self) -> float | None:
        """Joules since the start; None too where a counter can be read no longer."""
        if self._packages is None:
            return None
        try:
            for package in self._packages:
                now_uj = _number(package.counter)
                passed = now_uj - package.last_uj
                package.passed_uj += passed if passed >= 0 else passed + package.range_uj
                package.last_uj = now_uj
        except (OSError, ValueError):
            return None
        return sum(package.passed_uj for package in self._packages) * 1e-6


def _is_whole(path: Path) -> bool:
    return (path / "name").read_text().startswith("package")


def _package(path: Path) -> _Package:
    return _Package(
        counter=path / "energy_uj",
        range_uj=_number(path / "max_energy_range_uj"),
        last_uj=_number(path / "energy_uj"),
    )


def _number(path: Path) -> int:
    return int(path.read_text())
