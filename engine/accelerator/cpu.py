"""The host's own processor."""

from __future__ import annotations

import platform
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import psutil
import torch

from engine.accelerator.tickets import run_now
from engine.choices import AcceleratorKind
from engine.environment import openmp_is_dynamic
from engine.errors import ConfigError
from kernels.target import Target, numba_compiles

if TYPE_CHECKING:
    from torch import Tensor

    from engine.accelerator.interface import Ticket, Work


class CpuAccelerator:
    """Host memory and cores; work is done when a call returns."""

    kind = AcceleratorKind.CPU
    device = "cpu"
    runs_ahead = False
    recorder = None

    def name(self) -> str:
        """Processor name as the platform tells it."""
        return platform.processor() or platform.machine()

    def uuid(self) -> str | None:
        """A processor has none."""
        return None

    def target(self) -> Target:
        """Plain torch, what oneDNN has, and loops that numba compiles."""
        has_library = torch.backends.mkldnn.is_available()
        has_bf16 = has_library and torch.ops.mkldnn._is_mkldnn_bf16_supported()
        return Target(device_type="cpu", has_laid_out_products=has_bf16, has_numba=numba_compiles())

    def memory_free_bytes(self) -> int:
        """Memory that the host could give without swapping."""
        return psutil.virtual_memory().available

    def zeros_on_host(self, like: Tensor) -> Tensor:
        """Plain memory."""
        return torch.zeros_like(like, device="cpu")

    def synchronize(self) -> None:
        """Nothing is ever pending."""

    def mark(self) -> _Moment:
        """Now, since nothing is ever pending."""
        return _Moment(time.perf_counter())

    def submit(self, work: Work) -> Ticket:
        """Do the work here and now."""
        return run_now(work)


@dataclass(frozen=True, slots=True)
class _Moment:
    clock_s: float

    def seconds_since(self, earlier: _Moment) -> float:
        """See `engine.accelerator.interface.Mark`."""
        return self.clock_s - earlier.clock_s


NARROW_BELOW = 1024  # hidden size
_PROBE = (64, 256)  # rows, width: large enough for several threads, and exact in bfloat16


def default_threads(hidden_size: int | None, replicas: int) -> int | None:
    """Threads of all replicas together for a model of that width; None: torch's own number.

    The operations of a narrow model are too short to share: on two cores with other work, two
    threads served `nano` and `small` 6 to 12 times slower than one, since each waits for the
    other by spinning.
    """
    narrow = hidden_size is not None and hidden_size < NARROW_BELOW
    return replicas if narrow else None


def set_threads(count: int) -> None:
    """Threads that torch uses for one operation, in this process."""
    torch.set_num_threads(count)


def check_products() -> None:
    """ConfigError where products of torch would come out wrong in this process.

    Where OpenMP grants fewer threads than torch asks for, oneDNN leaves parts of a product as the
    memory was. It may grant them now and not later, so that it may do so at all is refused, too.
    """
    threads = torch.get_num_threads()
    if threads == 1:
        return
    if openmp_is_dynamic():
        raise ConfigError(
            "lets OpenMP grant fewer threads than torch asks for: products then come out wrong.",
            where="OMP_DYNAMIC",
            remedy="Unset it, or set num_threads: 1.",
        )
    if not all(_multiplies(dtype) for dtype in (torch.float32, torch.bfloat16)):
        raise ConfigError(
            f"a product on {threads} threads comes out wrong here: OpenMP grants fewer.",
            where="num_threads",
            remedy="Unset OMP_THREAD_LIMIT, or set num_threads: 1.",
        )


def _multiplies(dtype: torch.dtype) -> bool:
    """Whether a product whose every value is known comes out so: some 0.2 ms."""
    rows, width = _PROBE
    ones = torch.ones(width, width, dtype=dtype)
    found = torch.full((rows, width), torch.nan, dtype=dtype)  # what is left out stays NaN
    torch.mm(ones[:rows], ones, out=found)
    return bool((found == width).all())


def threads_of_replica(wanted: int | None, replicas: int) -> int:
    """Threads for each of `replicas` processes, at least 1; `wanted` is for all together."""
    everything = wanted if wanted is not None else torch.get_num_threads()
    return max(1, everything // replicas)
