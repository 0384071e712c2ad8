"""An engine of another package in a process of its own, or in another Python: the far end.

`python -m experiments.targets.peer_worker SOCKET`. It imports nothing that the engine's own
environment may lack but pydantic.
"""

from __future__ import annotations

import logging
import socket
import sys
from multiprocessing.connection import Connection
from typing import cast

from engine.request import Request, RequestId
from experiments.records import AxisValue
from experiments.targets.peer_configs import config_of
from experiments.targets.peer_engines import PeerEngine, start_engine

IDLE_S = 0.5  # of waiting for an ask while nothing is in flight
BUSY_S = 0.002  # of waiting for tokens before asks are looked at again


def serve(pipe: Connection) -> None:
    """Answer until the near end closes its side; then let the engine go."""
    worker = _Worker(pipe)
    try:
        worker.run()
    except (EOFError, ConnectionError):
        worker.close()
    except BaseException as error:
        pipe.send(("error", (type(error).__name__, _told(error))))
        raise


def _told(error: BaseException) -> str:
    """The error, and the first of those that it says it came from."""
    root = error
    while root.__cause__ is not None:
        root = root.__cause__
    words = f"{type(error).__name__}: {error}"
    return words if root is error else f"{words}; it came from {type(root).__name__}: {root}"


class _Worker:
    """One engine, asked by messages."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe
        self._engine: PeerEngine | None = None
        self._in_flight: set[RequestId] = set()

    def run(self) -> None:
        """Until the pipe ends."""
        while True:
            if self._in_flight and self._engine is not None:
                self._deliver(self._engine)
            while self._pipe.poll(0.0 if self._in_flight else IDLE_S):
                self._obey(*self._pipe.recv())

    def close(self) -> None:
        """Let the engine go."""
        if self._engine is not None:
            self._engine.close()

    def _deliver(self, engine: PeerEngine) -> None:
        outputs = list(engine.poll(BUSY_S))
        self._in_flight -= {one.request_id for one in outputs if one.finished}
        if outputs:
            self._pipe.send(("outputs", outputs))

    def _obey(self, ask: str, told: object) -> None:
        if ask == "open":
            kind, fields = cast("tuple[str, dict[str, AxisValue]]", told)
            self._engine = start_engine(config_of(kind, fields))
            self._pipe.send((ask, None))
            return
        engine = self._engine
        assert engine is not None, "open comes first"
        if ask == "submit":
            assert isinstance(told, Request)
            engine.submit(told)
            self._in_flight.add(told.request_id)
        elif ask == "abort":
            engine.abort(RequestId(str(told)))
        elif ask == "stats":
            self._pipe.send((ask, engine.stats()))


def main() -> None:
    """The far end: what the engine writes goes to the log of the near end."""
    logging.basicConfig(level=logging.INFO)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connected:
        connected.connect(sys.argv[1])
        serve(Connection(connected.detach()))


if __name__ == "__main__":
    main()
