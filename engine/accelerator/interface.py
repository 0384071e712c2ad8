"""The questions that the engine asks of a device, whoever built it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from engine.choices import AcceleratorKind
from kernels.target import Target

if TYPE_CHECKING:
    from torch import Tensor

Work = Callable[[], "tuple[Tensor, ...]"]
"""Operations on one device, without waiting for any; returns what the host wants to read."""


class Ticket(Protocol):
    """Work that was submitted."""

    def wait(self) -> tuple[Tensor, ...]:
        """Block until it is done; its results in host memory. Raises what the work raised."""
        ...


class Mark(Protocol):
    """A moment in the order of a device's work."""

    def seconds_since(self, earlier: Mark) -> float:
        """Time on the device between two marks that it has passed."""
        ...


class RecordedGraph(Protocol):
    """Work that was recorded, as one thing to launch."""

    held_bytes: int  # of the device

    def replay(self) -> tuple[Tensor, ...]:
        """Do the work again, where it was recorded; its results lie where they always do."""
        ...


class GraphRecorder(Protocol):
    """Records work on one device."""

    def budget_bytes(self) -> int:
        """Memory that graphs may hold."""
        ...

    def record(self, work: Work) -> RecordedGraph:
        """Take down the operations of `work`, which are not done yet.

        The same work must have been done before, so that nothing is left to compile.
        RuntimeError when the device cannot.
        """
        ...

    def forget(self, graph: RecordedGraph) -> None:
        """Let go of a graph, once the device is done with it."""
        ...


class Accelerator(Protocol):
    """One device. Nothing here touches the device before it is asked."""

    kind: AcceleratorKind
    device: str  # as torch spells it
    runs_ahead: bool  # whether work goes on after `submit` has returned
    recorder: GraphRecorder | None  # None: work cannot be recorded

    def name(self) -> str:
        """Product name for people."""
        ...

    def uuid(self) -> str | None:
        """Identity of the device for the driver's own tools; None where there is none."""
        ...

    def target(self) -> Target:
        """What kernels may know of it."""
        ...

    def memory_free_bytes(self) -> int:
        """Memory that can still be taken."""
        ...

    def zeros_on_host(self, like: Tensor) -> Tensor:
        """Zeros in host memory, shaped `like`, where the device's copies need not wait.

        RuntimeError or MemoryError when there is no room.
        """
        ...

    def synchronize(self) -> None:
        """Wait until the device has done all it was given."""
        ...

    def submit(self, work: Work) -> Ticket:
        """Start work after all that was submitted before. Never raises what the work raises."""
        ...
