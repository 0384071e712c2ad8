"""NVIDIA devices, through torch."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from engine.accelerator.tickets import DoneTicket
from engine.choices import AcceleratorKind
from engine.errors import ConfigError
from kernels.target import Target, triton_is_installed

if TYPE_CHECKING:
    from torch import Tensor

    from engine.accelerator.interface import Ticket, Work

_GRAPH_SHARE = 32  # of the memory of a device, one part may hold graphs


class CudaAccelerator:
    """One CUDA device, by its index among the visible ones."""

    kind = AcceleratorKind.CUDA
    runs_ahead = True

    def __init__(self, index: int) -> None:
        if index >= count():
            raise ConfigError(
                f"CUDA device {index} is wanted, {count()} are visible.",
                where="accelerator",
                remedy="Use cpu, or fewer replicas.",
            )
        self.device = f"cuda:{index}"
        self.recorder = CudaGraphRecorder(self.device)

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

    def zeros_on_host(self, like: Tensor) -> Tensor:
        """Page-locked, so that the device can copy while the host goes on."""
        return torch.zeros_like(like, device="cpu", pin_memory=True)

    def synchronize(self) -> None:
        """Wait for every stream of the device."""
        torch.cuda.synchronize(self.device)

    def mark(self) -> _CudaMark:
        """An event on the current stream."""
        with torch.cuda.device(self.device):
            event = torch.cuda.Event(enable_timing=True)
            event.record()
        return _CudaMark(event)

    def submit(self, work: Work) -> Ticket:
        """Queue the work, and behind it the copies of its results, on the current stream."""
        try:
            with torch.cuda.device(self.device):
                results = tuple(result.to("cpu", non_blocking=True) for result in work())
                done = torch.cuda.Event()
                done.record()
        except Exception as error:  # noqa: BLE001  raised again by `wait`
            with suppress(RuntimeError):  # what was queued of it still reads the host's buffers
                self.synchronize()
            return DoneTicket(error=error)
        return _CudaTicket(done, results)


@dataclass(frozen=True, slots=True)
class _CudaMark:
    event: torch.cuda.Event

    def seconds_since(self, earlier: _CudaMark) -> float:
        """See `engine.accelerator.interface.Mark`."""
        self.event.synchronize()
        return earlier.event.elapsed_time(self.event) / 1e3


class CudaGraphRecorder:
    """CUDA graphs that share one pool of memory, since no two run at once."""

    def __init__(self, device: str) -> None:
        self._device = device
        self._pool: tuple[int, int] | None = None
        self._broken: list[torch.cuda.CUDAGraph] = []

    def budget_bytes(self) -> int:
        """A share of the device's memory."""
        total = torch.cuda.get_device_properties(self._device).total_memory
        return total // _GRAPH_SHARE

    def record(self, work: Work) -> _CudaGraph:
        """Capture on a stream of its own; errors of other threads do not count."""
        with torch.cuda.device(self._device):
            torch.cuda.synchronize()
            torch.cuda.empty_cache()
            free_before = torch.cuda.mem_get_info()[0]
            self._pool = self._pool or torch.cuda.graph_pool_handle()
            graph = torch.cuda.CUDAGraph()
            try:
                with torch.cuda.graph(graph, pool=self._pool, capture_error_mode="thread_local"):
                    results = work()
            except Exception:
                # Where a capture breaks off, `CUDAGraph::capture_end` raises before it tells the
                # allocator, which then asks this graph about every allocation, and lets no other
                # have its pool ("already recording to mempool_id"). So others get a new one.
                self._broken.append(graph)
                self._pool = None
                raise
            held_bytes = max(0, free_before - torch.cuda.mem_get_info()[0])
        return _CudaGraph(graph, results, held_bytes)

    def forget(self, graph: _CudaGraph) -> None:
        """Wait for the device, then give the memory back to the pool."""
        torch.cuda.synchronize(self._device)
        graph.graph.reset()


@dataclass(frozen=True, slots=True)
class _CudaGraph:
    graph: torch.cuda.CUDAGraph
    results: tuple[Tensor, ...]  # kept, so that no other graph is given their memory
    held_bytes: int

    def replay(self) -> tuple[Tensor, ...]:
        """Launch on the current stream."""
        self.graph.replay()
        return self.results


@dataclass(frozen=True, slots=True)
class _CudaTicket:
    """Results on their way to page-locked memory."""

    done: torch.cuda.Event
    results: tuple[Tensor, ...]

    def wait(self) -> tuple[Tensor, ...]:
        """Block until the copies have arrived."""
        self.done.synchronize()
        return self.results


def count() -> int:
    """Visible devices; 0 without a driver."""
    return torch.cuda.device_count() if torch.cuda.is_available() else 0
