"""What kernels in Gluon share: the barrier of a group of warps, and how many run at once."""

from __future__ import annotations

from functools import cache

import torch
import triton
from triton.experimental.gluon import language as gl

barrier = gl.barrier if hasattr(gl, "barrier") else gl.thread_barrier  # renamed after 3.6


@cache
def processors(device: torch.device) -> int:
    """Programs that a device runs at once."""
    properties = triton.runtime.driver.active.utils.get_device_properties(device.index or 0)
    return properties["multiprocessor_count"]
