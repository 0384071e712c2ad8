"""The questions that the engine asks of a device, whoever built it."""

from __future__ import annotations

from typing import Protocol

from engine.choices import AcceleratorKind
from kernels.target import Target


class Accelerator(Protocol):
    """One device. Nothing here touches the device before it is asked."""

    kind: AcceleratorKind
    device: str  # as torch spells it

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

    def synchronize(self) -> None:
        """Wait until the device has done all it was given."""
        ...
