"""What a target does by another one, which it opened: requests go to it, and answers come of it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from engine.request import Request, RequestId
from experiments.targets.base import Received, Target


class HandsOn(ABC):
    """The part of a `Target` that needs it open."""

    @property
    @abstractmethod
    def _open(self) -> Target:
        """The one that serves; TargetError where none is open."""

    def submit(self, request: Request) -> None:
        """To the one that serves."""
        self._open.submit(request)

    def poll(self, timeout_s: float) -> Sequence[Received]:
        """From the one that serves."""
        return self._open.poll(timeout_s)

    def abort(self, request_id: RequestId) -> None:
        """In the one that serves."""
        self._open.abort(request_id)

    def reset(self) -> None:
        """Of the one that serves."""
        self._open.reset()

    def replica_of(self, request_id: RequestId) -> int | None:
        """As the one that serves says."""
        return self._open.replica_of(request_id)

    def stats(self) -> dict[str, float]:
        """Of the one that serves."""
        return self._open.stats()
