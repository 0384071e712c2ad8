"""Whether a plan can fit this host at all, before anything is written or started."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from workbench.errors import DiskFullError, MemoryTooSmallError
from workbench.files import free_bytes

if TYPE_CHECKING:
    from experiments.space import PlannedTrial
    from workbench.runs import Outlook
    from workbench.store import Store


RECORDS_SHARE = 0.5
"""Of the free memory, from which the records of a trial are worth a word."""
BUSY_SHARE = 0.5
"""Load average over processors from which a host counts as busy."""


def check_room(found: Outlook, store: Store) -> None:
    """DiskFullError where the store lacks the estimate, MemoryTooSmallError for the weights
    or for the requests of a trial.

    TargetError for a server that is not there, or does not serve the plan's model;
    MissingProgramError for what the plan starts and this host lacks.
    """
    from experiments.targets.factory import check_programs

    _check_disk(found, store.path)
    check_devices(found)
    check_programs(found.runnable)
    weights = weight_bytes(found.trials)
    total = psutil.virtual_memory().total
    if weights > total:
        raise MemoryTooSmallError(
            f"the weights of all replicas take at least {weights:,} bytes and this host has "
            f"{total:,}. Nothing was started.",
            where=found.plan.name,
            remedy="Use a smaller checkpoint, or fewer replicas (data_parallel_size).",
        )
    _check_records(found, total)


def check_devices(found: Outlook) -> None:
    """ConfigError where the plan is for another machine than this."""
    from engine.errors import ConfigError

    if (missing := missing_device(found)) is not None:
        raise ConfigError(
            missing,
            where="accelerator",
            remedy="Use cpu, or fewer replicas; `workbench plan` looks at it all the same.",
        )


def missing_device(found: Outlook) -> str | None:
    """What this host lacks to run the plan, as its target tells it; None: nothing."""
    return next((t.facts.missing_device for t in found.trials if t.facts.missing_device), None)


def device_note(found: Outlook) -> str | None:
    """What to say of a plan for another machine; None: its devices are here."""
    missing = missing_device(found)
    if missing is None:
        return None
    return (f"{missing.rstrip('.')}: the machine that runs it will tell the kernels, the room for "
            "caches, whether the weights fit, and whether energy can be read")  # fmt: skip


def memory_notes(found: Outlook) -> list[str]:
    """What to say where the weights, or the records of a trial, may not fit what is free now."""
    from experiments.room import most_requests, record_bytes

    weights, free = weight_bytes(found.trials), psutil.virtual_memory().available
    notes = [f"the weights take at least {weights:,} bytes and {free:,} are free now"]
    plan = found.runnable
    counts = [(trial, most_requests(trial, plan)) for trial in found.trials]
    taken, most = max(((record_bytes(t, n), n) for t, n in counts), default=(0, 0))
    notes.append(
        f"a trial on an engine that answers as fast as it is asked may hold {most:,} requests, "
        f"which take about {taken / 1e9:,.1f} GB, and {free / 1e9:,.1f} GB are free now; "
        "protocol.max_requests bounds them"
    )
    told = (weights > free, taken > RECORDS_SHARE * free)
    return [note for note, holds in zip(notes, told, strict=True) if holds]


def _check_records(found: Outlook, total: int) -> None:
    """MemoryTooSmallError where what a trial must send would not fit this host."""
    from experiments.room import needed_requests, record_bytes

    for trial in found.trials:
        needed = needed_requests(trial, found.runnable)
        if record_bytes(trial, needed) > total:
            raise MemoryTooSmallError(
                f"the {needed:,} requests of a trial take about "
                f"{record_bytes(trial, needed) / 1e9:,.1f} GB until it is stored, and this host "
                f"has {total / 1e9:,.1f} GB. Nothing was started.",
                where=found.plan.name,
                remedy="Lower protocol.max_requests, measured_per_slot or the load.",
            )


def busy_note() -> str | None:
    """What to say where this host has other work; None: it is quiet, or does not tell."""
    try:
        load, processors = os.getloadavg()[0], len(os.sched_getaffinity(0))
    except (OSError, AttributeError):
        return None
    if load <= BUSY_SHARE * processors:
        return None
    return (
        f"the load average of this host is {load:.1f} on {processors} processors: other work "
        "slows what is measured; foreign_cpu_percent of each trial says how much there was"
    )


def weight_bytes(trials: list[PlannedTrial]) -> int:
    """Of the largest configuration that runs in host memory: its weight files, once a replica."""
    return max((_weights(trial) for trial in trials), default=0)


def _weights(trial: PlannedTrial) -> int:
    """A lower bound: arithmetic in a wider type, caches and activations come on top."""
    if trial.facts.accelerator != "cpu":
        return 0
    replicas = trial.point.engine.get("data_parallel_size")
    folder = Path(str(trial.facts.model))
    files = folder.glob("*.safetensors") if folder.is_dir() else ()
    return sum(path.stat().st_size for path in files) * (
        replicas if isinstance(replicas, int) else 1
    )


def _check_disk(found: Outlook, folder: Path) -> None:
    free = free_bytes(folder)
    if free is not None and free < found.estimate_bytes:
        raise DiskFullError(
            f"{free:,} bytes are free and the run may need {found.estimate_bytes:,}. "
            "Nothing was written.",
            where=str(folder),
            remedy="Free some space, or choose another --store.",
        )
