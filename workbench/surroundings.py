"""What must stay as it is while a run is measured: packages, driver, limits and clocks.

The code that measures is not watched: a process keeps what it imported when the run began.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import cast

from workbench.agreement import mapping
from workbench.host_facts import device_facts, host_facts
from workbench.provenance import package_versions

HOST = ("kernel", "cpu_governor", "cpu_turbo", "smt", "numa_balancing", "driver", "cuda_driver")
DEVICE = (
    "uuid", "vbios", "power_limit_w", "sm_clock_application_mhz", "ecc", "mig", "persistence",
    "compute_mode",
)  # fmt: skip
"""Of each device: what a setting holds, not what load moves."""
PACKAGES = (
    "inference-workbench", "torch", "triton", "numpy", "safetensors", "tokenizers",
    "nvidia-ml-py", "transformers", "vllm", "sglang", "flash-attn", "flashinfer-python",
    "nvidia-nccl-cu12", "nvidia-cublas-cu12", "nvidia-cudnn-cu12",
)  # fmt: skip
"""Of the packages in the manifest, those that take part in serving or measuring."""
Manifest = Mapping[str, object]


class Surroundings:
    """The environment as it is when this is made, and what changed since."""

    def __init__(self, read: Callable[[], Manifest] | None = None) -> None:
        self._read = read or present
        self._before = self._read()

    def changes(self) -> tuple[str, ...]:
        """What is different now, in words; some 30 ms."""
        return differences(self._before, self._read())


def present() -> Manifest:
    """The watched part of the manifest, now."""
    return {
        **host_facts().values,
        **device_facts().values,
        "packages": package_versions(),
    }


def differences(before: Manifest, now: Manifest) -> tuple[str, ...]:
    """What two manifests say differently of what is watched; silence on one side is none."""
    old, new = _watched(before), _watched(now)
    return tuple(
        f"{name} changed ({old[name]} to {new[name]})"
        for name in old
        if name in new and old[name] != new[name]
    )


def _watched(manifest: Manifest) -> dict[str, object]:
    """The facts that are known, by the names under which a change is told."""
    packages, devices = mapping(manifest.get("packages")), manifest.get("devices")
    found = {name: manifest.get(name) for name in HOST}
    found |= {name: packages.get(name) for name in PACKAGES}
    for place, told in enumerate(cast("list[object]", devices or [])):
        device = mapping(told)
        found |= {f"{name} of device {place}": device.get(name) for name in DEVICE}
    return {name: value for name, value in found.items() if value is not None}
