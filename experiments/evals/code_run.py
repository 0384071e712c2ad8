"""Runs a program that a model wrote, in a child process, and says whether it passed its test.

The child has nothing of our environment, a folder of its own that is deleted, and
limits of time, memory and file size; where the system allows it (`unshare`), no network and no
process that outlives it. That bounds accidents, not attacks: it can read what this user can read.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from functools import cache

from experiments.evals.questions import CodeTest

PASSED = 73  # an exit code that no program has by accident
REFUSED = "code is not run unless the plan says so (allow_code: true, --allow-code)"
_MOST_SAID = 300

_CHILD = """
import os, resource, sys
memory, passed, most = map(int, sys.argv[1:])
source = sys.stdin.buffer.read().decode()
report, nowhere = os.dup(2), os.open(os.devnull, os.O_RDWR)
for stream in (0, 1, 2):
    os.dup2(nowhere, stream)
for name, limit in (("AS", memory), ("FSIZE", 2**20), ("CORE", 0)):
    try:
        resource.setrlimit(getattr(resource, "RLIMIT_" + name), (limit, limit))
    except (ValueError, OSError):
        pass
try:
    exec(compile(source, "<answer>", "exec"), {"__name__": "__main__"})
except BaseException as error:
    os.write(report, (type(error).__name__ + ": " + str(error)).encode()[:most])
    os._exit(1)
os._exit(passed)
"""


@dataclass(frozen=True, kw_only=True)
class CodeLimits:
    """What one program may use."""

    wall_s: float = 10.0
    memory_bytes: int = 2**30


@dataclass(frozen=True, kw_only=True)
class CodeVerdict:
    """Whether the test passed; `reason` says what happened where it did not."""

    passed: bool
    reason: str | None = None


def program(test: CodeTest, answer: str) -> str:
    """The source to run: a whole function, or the rest of the one that the prompt begins."""
    head, mark, _ = test.prompt.partition(f"def {test.entry_point}(")
    begun = head if mark and f"def {test.entry_point}(" in answer else test.prompt
    return f"{begun}{answer}\n\n{test.source}\n\ncheck({test.entry_point})\n"


def run_program(source: str, limits: CodeLimits | None = None) -> CodeVerdict:
    """Run a whole program; it passed where it came to its end without an exception."""
    limits = limits or CodeLimits()
    told = [str(n) for n in (limits.memory_bytes, PASSED, _MOST_SAID)]
    command = [*_apart(), sys.executable, "-I", "-c", _CHILD, *told]
    with tempfile.TemporaryDirectory() as folder:
        child = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            cwd=folder,
            env={},
            start_new_session=True,
        )
        try:
            _, said = child.communicate(source.encode("utf-8", "replace"), limits.wall_s)
        except subprocess.TimeoutExpired:
            return CodeVerdict(passed=False, reason=f"ran longer than {limits.wall_s:g} s")
        finally:
            _end(child)
    return _verdict(child.returncode, said.decode("utf-8", "replace").strip()[:_MOST_SAID])


def _verdict(code: int, said: str) -> CodeVerdict:
    if code == PASSED:
        return CodeVerdict(passed=True)
    if said:
        return CodeVerdict(passed=False, reason=said)
    number = -code if code < 0 else code - 128
    if number in list(signal.Signals):
        return CodeVerdict(passed=False, reason=f"was ended by {signal.Signals(number).name}")
    return CodeVerdict(passed=False, reason=f"left its test with exit code {code}")


def _end(child: subprocess.Popen[bytes]) -> None:
    """Kill what is left of it and of its children."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()
    if child.stderr is not None:
        child.stderr.close()


@cache
def _apart() -> tuple[str, ...]:
    """A command that starts another without network; () where this system refuses it."""
    found = shutil.which("unshare")
    if found is None:
        return ()
    command = (found, "--user", "--map-root-user", "--net", "--pid", "--fork", "--kill-child")
    tried = subprocess.run([*command, "true"], capture_output=True, check=False, timeout=10)
    return command if tried.returncode == 0 else ()
