"""An engine of another package in a process of its own, or in another Python: the near end.

Messages are pickled tuples on a Unix socket in a folder that only this user can enter.
"""

from __future__ import annotations

import os
import re
import socket
import sys
import tempfile
from collections.abc import Sequence
from multiprocessing.connection import Connection
from pathlib import Path

from engine.request import Request, RequestId, RequestOutput
from experiments.errors import TargetCapacityError, TargetDiedError, TargetError, TargetRefusedError
from experiments.targets.peer_configs import PeerConfig
from experiments.targets.server_process import ServerProcess

CODE = Path(__file__).resolve().parents[2]
WAIT_S, STOP_S, CONNECT_S = 0.5, 20.0, 60.0
OUT_OF_MEMORY = ("OutOfMemoryError", "MemoryError")
SHOWN_CHARACTERS = 300
Told = tuple[str, object]
_ABOVE = "above"  # vLLM: "See stack trace (above) for the root cause"
_ERROR = re.compile(r"\b[A-Za-z_.]*(?:Error|Exception): .*").search


class WorkerEngine:
    """A `PeerEngine` whose engine is in a process of its own."""

    def __init__(self, kind: str, config: PeerConfig, python: Path) -> None:
        """Start it; TargetError where it does not come up within `config.start_s`."""
        self._folder = tempfile.TemporaryDirectory(prefix="iwb-")
        address = str(Path(self._folder.name) / "s")
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
            listener.bind(address)
            listener.listen(1)
            environment = _environment(config, python)
            argv = [str(python), "-m", "experiments.targets.peer_worker", address]
            self.process = ServerProcess(argv, environment, stop_s=STOP_S)
            self._pipe = self._accepted(listener)
        try:
            self._ask("open", (kind, config.as_mapping()), limit_s=config.start_s)
        except BaseException:
            self.close()
            raise

    def submit(self, request: Request) -> None:
        """Hand it over."""
        self._send("submit", request)

    def poll(self, timeout_s: float) -> Sequence[RequestOutput]:
        """What came over the socket."""
        found: list[RequestOutput] = []
        while self._pipe.poll(0.0 if found else timeout_s):
            kind, told = self._receive()
            if kind == "outputs":
                found += told  # type: ignore[arg-type]
        return found

    def abort(self, request_id: RequestId) -> None:
        """Hand it on."""
        self._send("abort", request_id)

    def stats(self) -> dict[str, float]:
        """As the engine has them; only between phases."""
        told = self._ask("stats", None, limit_s=CONNECT_S)
        assert isinstance(told, dict)
        return told  # type: ignore[return-value]

    def close(self) -> None:
        """End the process and everything that it started."""
        self._pipe.close()
        self.process.stop()
        self._folder.cleanup()

    def _accepted(self, listener: socket.socket) -> Connection:
        listener.settimeout(WAIT_S)
        for _ in range(round(CONNECT_S / WAIT_S)):
            try:
                return Connection(listener.accept()[0].detach())
            except TimeoutError:
                self.process.check_alive()
        self.process.stop()
        words = self.process.last_words()
        raise TargetError(f"the engine's process did not answer within {CONNECT_S:g} s{words}")

    def _send(self, kind: str, told: object) -> None:
        try:
            self._pipe.send((kind, told))
        except OSError as error:
            raise self._died() from error

    def _ask(self, kind: str, told: object, *, limit_s: float) -> object:
        """Outputs that come in between belong to requests that were given up."""
        self._send(kind, told)
        waited_s = 0.0
        while waited_s < limit_s:
            if not self._pipe.poll(WAIT_S):
                waited_s += WAIT_S
                continue
            answered, answer = self._receive()
            if answered == kind:
                return answer
        words = self.process.last_words()
        raise TargetError(f"the engine did not answer {kind!r} within {limit_s:g} s{words}")

    def _receive(self) -> Told:
        try:
            kind, told = self._pipe.recv()
        except (EOFError, OSError) as error:
            raise self._died() from error
        if kind == "error":
            name, message = told
            self.process.wait_end(WAIT_S)  # so that its log is whole
            raise _ERRORS.get(name, TargetError)(message + self._told_above(message))
        return kind, told

    def _told_above(self, message: str) -> str:
        """The newest other error in the log, where the message says that the cause stands there."""
        if _ABOVE not in message:
            return ""
        lines = (found[0] for line in self.process.log().splitlines() if (found := _ERROR(line)))
        others = [line for line in lines if line not in message]
        return f"; its log says: {others[-1][:SHOWN_CHARACTERS]}" if others else ""

    def _died(self) -> TargetError:
        try:
            self.process.wait_end(WAIT_S)
            self.process.check_alive()
        except TargetDiedError as died:
            return died
        return TargetDiedError("the engine's process closed its socket")


def _environment(config: PeerConfig, python: Path) -> dict[str, str]:
    """The far end finds our code; in this interpreter it finds all that we find."""
    ours = sys.path if python == Path(sys.executable) else ()
    paths = [str(CODE), *(str(Path(one).absolute()) for one in ours if one)]
    threads = {} if config.num_threads is None else {"OMP_NUM_THREADS": str(config.num_threads)}
    return {**config.environment(), **threads, "PYTHONPATH": os.pathsep.join(paths)}


_ERRORS: dict[str, type[TargetError]] = {
    **dict.fromkeys(OUT_OF_MEMORY, TargetCapacityError),
    "TargetRefusedError": TargetRefusedError,
}
