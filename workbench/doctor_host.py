"""What the host means for a measurement: processor, memory, disk, ports, what the user may do."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator, Mapping
from pathlib import Path

from workbench.findings import Finding

FEW_FILES = 4096
PAGES_PORT = 8501
QUICK_CLOCKS = ("tsc", "kvm-clock", "arch_sys_counter", "hyperv_clocksource_tsc_page")


def processor(facts: Mapping[str, object]) -> Iterator[Finding]:
    """Clocks, NUMA, quotas: what makes the processor's speed depend on the moment."""
    governor = facts.get("cpu_governor")
    if governor not in (None, "performance"):
        message = f"the governor is {governor}: clocks move, so numbers on the CPU scatter"
        yield Finding(level="warning", subject="cpu", message=message)
    nodes = facts.get("numa_nodes")
    if isinstance(nodes, int) and nodes > 1:
        moves = facts.get("numa_balancing") not in (None, "0")
        note = ", and the kernel moves memory between them (numa_balancing)" if moves else ""
        message = f"{nodes} nodes{note}: bind the engine with numactl, or runs differ by placement"
        yield Finding(level="warning", subject="numa", message=message)
    quota, cores = facts.get("cpu_quota_cores"), facts.get("cpu_logical")
    if isinstance(quota, float) and isinstance(cores, int) and quota < cores:
        message = (
            f"the container may use {quota:g} of {cores} cores: it is stopped when it used them"
        )
        yield Finding(level="warning", subject="quota", message=message)
    source = facts.get("clock_source")
    if isinstance(source, str) and source not in QUICK_CLOCKS:
        message = f"time is read through {source}, which is slow: stamps cost microseconds"
        yield Finding(level="warning", subject="clock", message=message)


def permissions(facts: Mapping[str, object], store: Path) -> Iterator[Finding]:
    """Whether results can be written, many connections opened, processors' energy read."""
    home = next((path for path in (store, *store.absolute().parents) if path.exists()), Path("/"))
    if not os.access(home, os.W_OK):
        message = f"{home} cannot be written by this user: give another --store"
        yield Finding(level="error", subject="store", message=message)
    files = facts.get("open_files_limit")
    if isinstance(files, int) and 0 < files < FEW_FILES:
        message = f"{files} open files at most: loads over HTTP need one a request; `ulimit -n`"
        yield Finding(level="warning", subject="files", message=message)
    if facts.get("processor_energy_readable") is False:
        message = "the processors' energy counters need root: energy is that of devices alone"
        yield Finding(level="ok", subject="energy", message=message)


def ports(port: int = PAGES_PORT) -> Iterator[Finding]:
    """Whether the pages' usual port is free on this host."""
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(("127.0.0.1", port))
        except OSError as error:
            message = (
                f"{port} is taken ({error.strerror}): `workbench dashboard --port` takes another"
            )
            yield Finding(level="warning", subject="port", message=message)
            return
    yield Finding(level="ok", subject="port", message=f"{port} is free for the pages")
