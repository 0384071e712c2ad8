"""One writer a run: a kernel lock on `writer.lock`, with the writer's name and heartbeat in it.

The kernel drops the lock of a killed process, so a stale one is taken over at once. The file
stays; empty means that nobody writes. Its modification time is the heartbeat, which also tells
hosts apart that share the folder but not the lock.
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import psutil

from workbench.errors import RunLockedError
from workbench.files import explained

LOCK_NAME = "writer.lock"
HEARTBEAT_S = 5.0
_PIDS = 1 << 31  # process ids are positive 32-bit numbers
SILENCE_S = 60.0  # another host that was silent for longer is taken for dead


def utc_now() -> datetime:
    """The wall clock, with its zone."""
    return datetime.now(UTC)


class WriterLock:
    """Held from construction to `release()`; RunLockedError when another writer is alive.

    StoreError when the lock file cannot be written.
    """

    def __init__(self, run_folder: Path, *, now: Callable[[], datetime] = utc_now) -> None:
        self.path = run_folder / LOCK_NAME
        with explained(run_folder):
            self._descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            with explained(run_folder):
                self._take(now())
        except BaseException:
            os.close(self._descriptor)
            raise
        self._released = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="run-heartbeat", daemon=True)
        self._thread.start()

    def release(self) -> None:
        """Let the next writer in. Safe to call twice."""
        if self._released.is_set():
            return
        self._released.set()
        self._thread.join()
        os.ftruncate(self._descriptor, 0)
        os.close(self._descriptor)

    def _take(self, now: datetime) -> None:
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise self._refusal(holder(self.path)) from error
        other = holder(self.path)
        if other and other["host"] != socket.gethostname() and _age_s(self.path, now) < SILENCE_S:
            raise self._refusal(other)
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, json.dumps(_self_description()).encode(), 0)

    def _refusal(self, other: dict[str, object] | None) -> RunLockedError:
        who = f"process {other['pid']} on {other['host']}" if other else "another process"
        return RunLockedError(
            f"is being written by {who}.",
            where=str(self.path.parent),
            remedy="Wait for it to finish, or stop it, then run `workbench resume`.",
        )

    def _beat(self) -> None:
        while not self._released.wait(HEARTBEAT_S):
            os.utime(self._descriptor)


@contextmanager
def one_at_a_time(folder: Path, name: str) -> Iterator[None]:
    """Wait until no other process is in here for `folder` and `name`; the kernel ends a dead one's.

    StoreError when the lock file, a hidden one in `folder`, cannot be written.
    """
    with explained(folder):
        folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(folder / f".{name}.lock", os.O_RDWR | os.O_CREAT, 0o644)
    try:
        with explained(folder):
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def is_writing(run_folder: Path, *, now: Callable[[], datetime] = utc_now) -> bool:
    """True while a live process writes the run. Reads only."""
    path = run_folder / LOCK_NAME
    other = holder(path)
    if other is None:
        return False
    if other["host"] != socket.gethostname():
        return _age_s(path, now()) < SILENCE_S
    return _process_lives(other)


def holder(path: Path) -> dict[str, object] | None:
    """Who holds the lock file: pid, process_started, host; None when nobody does.

    A lock file of any other content names nobody.
    """
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) and _names_a_process(found) else None


def _names_a_process(found: dict[str, object]) -> bool:
    pid, started = found.get("pid"), found.get("process_started")
    whole = type(pid) is int and 0 < pid < _PIDS
    return whole and isinstance(started, int | float) and isinstance(found.get("host"), str)


def _self_description() -> dict[str, object]:
    pid = os.getpid()
    started = psutil.Process(pid).create_time()
    return {"pid": pid, "process_started": started, "host": socket.gethostname()}


def _process_lives(other: dict[str, object]) -> bool:
    """False for a dead process and for a stranger that was given its number."""
    try:
        process = psutil.Process(int(str(other["pid"])))
        same = abs(process.create_time() - float(str(other["process_started"]))) < 1.0
        return same and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


def _age_s(path: Path, now: datetime) -> float:
    return now.timestamp() - path.stat().st_mtime
