"""A server process of our own: its start, its log, its end."""

from __future__ import annotations

import collections
import contextlib
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

import psutil

from experiments.errors import TargetDiedError, TargetError
from experiments.targets.launchers import HOST

FIRST_LINES, LAST_LINES, LINE_CHARACTERS = 100, 200, 2000
PROBE_S, PROBE_TIMEOUT_S = 0.1, 5.0
GUARD = Path(__file__).with_name("process_guard.py")
NOT_PASSED_ON = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "PYTHONSTARTUP")
"""Variables of this process that would put our packages into another engine's Python."""


class ServerProcess:
    """One command in a process group of its own. It does not outlive this process.

    `log()` keeps the first and the newest lines, however much is written.
    """

    def __init__(
        self, argv: Sequence[str], environment: Mapping[str, str], *, stop_s: float
    ) -> None:
        self._stop_s = stop_s
        self._log = _Log()
        inherited = {k: v for k, v in psutil.Process().environ().items() if k not in NOT_PASSED_ON}
        self._process = subprocess.Popen(
            [sys.executable, str(GUARD), str(stop_s), *argv],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={**inherited, "PYTHONUNBUFFERED": "1", **environment},
            cwd=Path(argv[0]).parent if Path(argv[0]).is_absolute() else None,
            start_new_session=True,  # an interrupt at the keyboard is ours to handle
        )
        assert self._process.stdout is not None
        self._reader = threading.Thread(
            target=self._log.read, args=(self._process.stdout,), daemon=True
        )
        self._reader.start()

    @property
    def exit_code(self) -> int | None:
        """None while it runs."""
        return self._process.poll()

    def log(self) -> str:
        """What it has written."""
        return self._log.text()

    def last_words(self) -> str:
        """The newest line that says something, as the end of a sentence."""
        return self._log.last_words()

    def wait_end(self, limit_s: float) -> None:
        """Return when it has ended and its log is whole, and at the latest after `limit_s`."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(limit_s)
            self._reader.join(limit_s)

    def check_alive(self) -> None:
        """TargetDiedError where it has ended."""
        code = self.exit_code
        if code is not None:
            self._reader.join(1.0)
            raise TargetDiedError(f"the server ended with code {code}{self._log.last_words()}")

    def wait_ready(self, url: str, limit_s: float) -> None:
        """Return when `url` answers with success.

        TargetDiedError where the process ends before, TargetError after `limit_s`.
        """
        import httpx  # here, since engines that are no servers need no HTTP client

        until = time.monotonic() + limit_s
        with httpx.Client(timeout=PROBE_TIMEOUT_S, trust_env=False) as client:
            while time.monotonic() < until:
                self.check_alive()
                with contextlib.suppress(httpx.HTTPError):
                    if client.get(url).is_success:
                        return
                time.sleep(PROBE_S)
        raise TargetError(
            f"the server was not ready after {limit_s:g} s{self._log.last_words()}",
            where=url,
            remedy="Raise server.start_s, or read the engine log of the trial.",
        )

    def stop(self) -> None:
        """SIGTERM to the whole group, SIGKILL after `stop_s`. Harmless when it has ended."""
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()  # the guard ends the group
        try:
            self._process.wait(self._stop_s + 10.0)
        except subprocess.TimeoutExpired:  # the guard itself hangs
            self._process.kill()
            self._process.wait()
        self._reader.join(1.0)


class _Log:
    """The first and the newest lines of a stream, each cut to a bound."""

    def __init__(self) -> None:
        self._first: list[str] = []
        self._last: collections.deque[str] = collections.deque(maxlen=LAST_LINES)
        self._lines = 0

    def read(self, stream: IO[bytes]) -> None:
        """Take everything until the stream ends; runs in a thread of its own."""
        while part := stream.readline(LINE_CHARACTERS):
            self._add(part.decode("utf-8", errors="replace").rstrip("\r\n"))

    def _add(self, line: str) -> None:
        self._lines += 1
        if len(self._first) < FIRST_LINES:
            self._first.append(line)
        else:
            self._last.append(line)

    def text(self) -> str:
        """The kept lines, and how many are missing between them."""
        first, last = list(self._first), list(self._last)
        missing = self._lines - len(first) - len(last)
        gap = [f"... {missing} lines left out ..."] if missing > 0 else []
        return "\n".join([*first, *gap, *last])

    def last_words(self) -> str:
        """The last line that says something, for a message."""
        lines = [line.strip() for line in (*self._first, *self._last) if line.strip()]
        return f"; its last words: {lines[-1][:300]}" if lines else "; it wrote nothing"


def free_port() -> int:
    """A port of this host that nobody listens on just now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as found:
        found.bind((HOST, 0))
        return int(found.getsockname()[1])


def check_port(port: int) -> None:
    """TargetError where somebody listens on it: a server of ours could not, and must not be it."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as found:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            found.bind((HOST, port))
        except OSError as error:
            raise TargetError(
                f"port {port} is taken: {error}",
                where="server.port",
                remedy="Leave the field out, and a free one is taken.",
            ) from error
