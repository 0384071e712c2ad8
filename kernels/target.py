"""What a kernel may know of the device that it is chosen for, and what a user may choose."""

from __future__ import annotations

import importlib
import importlib.util
from dataclasses import dataclass
from enum import StrEnum


@dataclass(frozen=True, kw_only=True)
class Target:
    """Facts of a device, found once by the engine's accelerator."""

    device_type: str  # as torch spells it: "cpu", "cuda", "npu"
    arch: int | None = None  # CUDA compute capability times ten: 90 is Hopper
    has_laid_out_products: bool = False  # of bfloat16, by oneDNN
    has_triton: bool = False  # the compiler is installed and has a backend for the device
    has_numba: bool = False  # the compiler of loops for the host works


class KernelChoice(StrEnum):
    """Which kernels a user asks for."""

    AUTO = "auto"
    REFERENCE = "reference"
    TRITON = "triton"


class Mode(StrEnum):
    """What a plan puts first."""

    FAST = "fast"
    INVARIANT = "invariant"  # a row comes out the same, bit by bit, whatever runs beside it


def triton_is_installed() -> bool:
    """True where the compiler can be imported; imports nothing."""
    return importlib.util.find_spec("triton") is not None


def numba_compiles() -> bool:
    """True where numba can be imported, which this does, and is not told to leave compiling.

    It refuses a numpy that is newer than it knows, and NUMBA_DISABLE_JIT disables it.
    """
    try:
        numba = importlib.import_module("numba")
    except ImportError:
        return False
    return not numba.config.DISABLE_JIT


CPU = Target(device_type="cpu")
