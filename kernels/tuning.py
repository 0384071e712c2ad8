"""Which configuration a kernel is launched with: a committed table, written by `kernels.tune`.

A kernel that has a choice states it as a `Tunable` beside its launcher and asks `chosen` for
the configuration of a class of shapes. Nothing is measured at run time. A class may only depend
on what does not change a row's bits: where two configurations add up in another order, the
class must not tell numbers of rows apart, unless the registry promises no invariance of the
implementation, and `Mode.INVARIANT` has another.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import torch

from kernels.errors import WorkbenchError

CONFIGS = Path(__file__).parent / "configs" / "tuned"
Config = Mapping[str, int]


class TableError(WorkbenchError):
    """A committed table does not fit the kernel that reads it."""


@dataclass(frozen=True, kw_only=True)
class Tunable:
    """A kernel with a choice. `default` serves devices and classes that no table names."""

    name: str  # of the table
    op: str  # whose cases are timed
    default: Config
    candidates: tuple[Config, ...]
    implementation: str = "triton"  # whose launcher asks


@dataclass
class _Trial:
    """A configuration put in a table's place, and the classes that asked meanwhile."""

    config: Config
    asked: set[str] = field(default_factory=set)


_TRIALS: dict[str, _Trial] = {}


def chosen(tunable: Tunable, shapes: str, arch: int | None = None) -> Config:
    """The configuration for a class of shapes, on `arch` (None: the current device)."""
    trial = _TRIALS.get(tunable.name)
    if trial is not None:
        trial.asked.add(shapes)
        return trial.config
    found = table(tunable.name).get(str(current_arch() if arch is None else arch), {})
    return _checked(found.get(shapes, tunable.default), tunable)


@contextmanager
def forced(tunable: Tunable, config: Config) -> Iterator[set[str]]:
    """Launch with `config` whatever the table says; gives the classes that asked, as they do."""
    _TRIALS[tunable.name] = trial = _Trial(config)
    try:
        yield trial.asked
    finally:
        del _TRIALS[tunable.name]


@cache
def table(name: str) -> Mapping[str, Mapping[str, Config]]:
    """By architecture and class; empty where there is no file. Read once."""
    path = CONFIGS / f"{name}.json"
    return json.loads(path.read_text()) if path.is_file() else {}


@cache
def current_arch() -> int | None:
    """Compute capability times ten of the current device; None without one."""
    if not torch.cuda.is_available():  # noqa: TID251
        return None
    major, minor = torch.cuda.get_device_capability()  # noqa: TID251
    return 10 * major + minor


def _checked(config: Config, tunable: Tunable) -> Config:
    if config.keys() != tunable.default.keys():
        raise TableError(
            f"has {sorted(config)} where the kernel takes {sorted(tunable.default)}.",
            where=f"kernels/configs/tuned/{tunable.name}.json",
            remedy="Write it again with `python -m kernels.tune`.",
        )
    return config
