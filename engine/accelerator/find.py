"""Which accelerator this host has. Detection happens in the call, never at import."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.accelerator import cuda
from engine.accelerator.cpu import CpuAccelerator
from engine.choices import AcceleratorKind

if TYPE_CHECKING:
    from engine.accelerator.interface import Accelerator


def find_accelerator(wanted: AcceleratorKind, *, index: int = 0) -> Accelerator:
    """The device for one replica: `auto` takes CUDA where there is one.

    ConfigError when a CUDA device is wanted and there is none of that index.
    """
    if wanted is AcceleratorKind.CUDA or (wanted is AcceleratorKind.AUTO and cuda.count()):
        return cuda.CudaAccelerator(index)
    return CpuAccelerator()
