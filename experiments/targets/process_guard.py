"""Runs one command and ends its whole process group when whoever asked for it is gone.

`python process_guard.py STOP_S COMMAND...`: standard input is a pipe whose other end the caller
holds. When that closes, and be it because the caller was killed, the group gets SIGTERM and
after STOP_S seconds SIGKILL. Needs the standard library alone, so that any Python runs it.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable

POLL_S = 0.05
KILLED_S = 2.0  # a killed process may take a moment to be gone


def main() -> int:
    """The exit code of the command, or minus the signal that ended it, as a shell tells it."""
    stop_s, command = float(sys.argv[1]), sys.argv[2:]
    try:
        child = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True)
    except OSError as error:
        sys.stderr.write(f"cannot be started: {error}\n")
        return 127

    def end(*_: object) -> None:
        threading.Thread(target=_end, args=(child, stop_s), daemon=True).start()

    for name in (signal.SIGTERM, signal.SIGINT):
        signal.signal(name, end)
    threading.Thread(target=_end_with_caller, args=(end,), daemon=True).start()
    code = child.wait()
    _signal_group(child, signal.SIGKILL)  # what the command left behind
    until = time.monotonic() + KILLED_S
    while _has_group(child) and time.monotonic() < until:
        time.sleep(POLL_S)
    return code if code >= 0 else 128 - code


def _end_with_caller(end: Callable[[], None]) -> None:
    while os.read(0, 4096):
        pass
    end()


def _end(child: subprocess.Popen[bytes], stop_s: float) -> None:
    _signal_group(child, signal.SIGTERM)
    until = time.monotonic() + stop_s
    while time.monotonic() < until and child.poll() is None:
        time.sleep(POLL_S)
    _signal_group(child, signal.SIGKILL)


def _has_group(child: subprocess.Popen[bytes]) -> bool:
    """Whether any process of the group is left; one that nobody has reaped counts."""
    try:
        os.killpg(child.pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def _signal_group(child: subprocess.Popen[bytes], number: signal.Signals) -> None:
    """The child leads its group, which may outlive it."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, number)


if __name__ == "__main__":
    sys.exit(main())
