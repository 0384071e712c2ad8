"""Commands of one step, side by side, each with a log, all within a time."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import psutil

from experiments.targets.server_process import GUARD
from workbench.evidence.steps import ROOT, Command

POLL_S = 0.1
GRACE_S = 5.0  # from SIGTERM to SIGKILL
HEAD_BYTES, TAIL_BYTES = 20_000, 180_000  # of a log that are kept


@dataclass(frozen=True, kw_only=True)
class Ended:
    """How a command ended. `exit_code` None: it was cut."""

    name: str
    exit_code: int | None
    seconds: float


@dataclass(frozen=True, kw_only=True)
class _Child:
    name: str
    process: subprocess.Popen[bytes]
    log: IO[bytes]
    begun_s: float


def run_side_by_side(
    commands: Sequence[Command], out: Path, *, jobs: int, limit_s: float
) -> list[Ended]:
    """Run them, at most `jobs` at once; what has not ended in time is ended with its children."""
    deadline_s = time.monotonic() + limit_s
    waiting, running, ended = list(commands), list[_Child](), list[Ended]()
    try:
        while (waiting or running) and time.monotonic() < deadline_s:
            while waiting and len(running) < jobs:
                left_s = deadline_s - time.monotonic()
                running.append(_started(waiting.pop(0), out, left_s))
            ended += [_ended(one) for one in running if one.process.poll() is not None]
            running = [one for one in running if one.process.returncode is None]
            time.sleep(POLL_S)
    finally:
        ended += _cut(running)
    return ended + [Ended(name=one.name, exit_code=None, seconds=0.0) for one in waiting]


def documents_of(command: Command, out: Path) -> list[Path]:
    """What the command wrote here, the oldest first."""
    found = [out / f"{command.name}.json", *out.glob(f"{command.name}.[0-9]*.json")]
    return sorted((path for path in found if path.is_file()), key=lambda path: len(path.name))


def _started(command: Command, out: Path, limit_s: float) -> _Child:
    limit = f"{max(1.0, limit_s - GRACE_S):.0f}"
    words = [word.replace("{limit}", limit).replace("{out}", str(out)) for word in command.words]
    if command.is_told:
        before = documents_of(command, out)
        number = f".{len(before) + 1}" if before else ""
        words += ["--json", str(out / f"{command.name}{number}.json")]
        words += [word for path in before for word in ("--beside", str(path))]
    log = (out / f"{command.name}.log").open("ab")
    process = subprocess.Popen(
        [sys.executable, str(GUARD), str(GRACE_S), *words],
        cwd=ROOT,
        env={**psutil.Process().environ(), "PYTHONUNBUFFERED": "1", **command.environment},
        stdin=subprocess.PIPE,  # its end is held here: the guard ends all when it closes
        stdout=log,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    return _Child(name=command.name, process=process, log=log, begun_s=time.monotonic())


def _ended(child: _Child, *, is_cut: bool = False) -> Ended:
    child.log.close()
    _shorten(Path(child.log.name))
    return Ended(
        name=child.name,
        exit_code=None if is_cut else child.process.returncode,
        seconds=time.monotonic() - child.begun_s,
    )


def _cut(running: Sequence[_Child]) -> list[Ended]:
    """End processes with all that they started."""
    for child in running:
        assert child.process.stdin is not None
        with contextlib.suppress(OSError):
            child.process.stdin.close()
    for child in running:
        child.process.wait()
    return [_ended(child, is_cut=True) for child in running]


def _shorten(path: Path) -> None:
    """Keep the beginning and the end of a long log."""
    held = path.read_bytes()
    if len(held) > HEAD_BYTES + TAIL_BYTES:
        gap = b"\n... %d bytes are left out ...\n" % (len(held) - HEAD_BYTES - TAIL_BYTES)
        path.write_bytes(held[:HEAD_BYTES] + gap + held[-TAIL_BYTES:])
