"""NVIDIA devices, through torch."""

from __future__ import annotations

import torch

from engine.choices import AcceleratorKind
from engine.errors import ConfigError
from kernels.target import Target, triton_is_installed


class CudaAccelerator:
    """One CUDA device, by its index among the visible ones."""

    kind = AcceleratorKind.CUDA

    def __init__(self, index: int) -> None:
        if index >= count():
            raise ConfigError(
                f"CUDA device {index} is wanted, {count()} are visible.",
                where="accelerator",
                remedy="Use cpu, or fewer replicas.",
            )
        self.device = f"cuda:{index}"

    def name(self) -> str:
        """Product name."""
        return torch.cuda.get_device_name(self.device)

    def uuid(self) -> str | None:
        """As NVML names it, so that it can be found whatever CUDA_VISIBLE_DEVICES hides."""
        return f"GPU-{torch.cuda.get_device_properties(self.device).uuid}"

    def target(self) -> Target:
        """Compute capability, and whether Triton is there."""
        major, minor = torch.cuda.get_device_capability(self.device)
        return Target(
            device_type="cuda",
            arch=10 * major + minor,
            has_triton=triton_is_installed(),
        )

    def memory_free_bytes(self) -> int:
        """Memory that nobody holds."""
        return torch.cuda.mem_get_info(self.device)[0]

    def synchronize(self) -> None:
        """Wait for every stream of the device."""
        torch.cuda.synchronize(self.device)


def count() -> int:
    """Visible devices; 0 without a driver."""
    return torch.cuda.device_count() if torch.cuda.is_available() else 0
