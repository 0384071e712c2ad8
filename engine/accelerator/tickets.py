"""Work that was done when it was submitted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

    from engine.accelerator.interface import Work


@dataclass(frozen=True, slots=True)
class DoneTicket:
    """What the work returned, or what it raised."""

    results: tuple[Tensor, ...] = ()
    error: Exception | None = None

    def wait(self) -> tuple[Tensor, ...]:
        """Nothing is pending."""
        if self.error is not None:
            raise self.error
        return self.results


def run_now(work: Work) -> DoneTicket:
    """Do the work before returning."""
    try:
        return DoneTicket(work())
    except Exception as error:  # noqa: BLE001  raised again by `wait`, where it can be handled
        return DoneTicket(error=error)
