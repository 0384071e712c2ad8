"""The whole evidence of a device in one command: `python -m workbench.evidence --out DIR`.

Steps run in order of their worth, each in processes of its own with a log, until `--limit-s` is
up. What a step finds is in DIR as soon as there is anything. Run again with the same DIR it goes
on: done steps are skipped, others leave out what is in DIR already. `workbench import DIR` stores
all of it. Needs neither typer, rich, streamlit, plotly nor duckdb. `--tiny` runs a small form of
each step on a processor.

Exit code 0: every step is done; 1: something failed; 4: steps were cut or did not begin.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import FrameType

from kernels.interrupt import quiet_imports

with quiet_imports(__name__):
    import torch

    from kernels.program import ended, positive_count, seconds
    from workbench.errors import EvidenceError
    from workbench.evidence.children import run_side_by_side
    from workbench.evidence.ledger import AGAIN, EXIT_PARTIAL, Ledger, State
    from workbench.evidence.steps import Step, steps_of

LEAST_S = 10.0  # that a step is begun with


def collect(steps: Sequence[Step], out: Path, *, jobs: int, limit_s: float) -> None:
    """Run what is not done, in order, those that never began first; ends at the limit."""
    deadline_s = time.monotonic() + limit_s
    ledger = Ledger(out)
    due = [one for one in steps if ledger.entry(one.name).state in AGAIN]
    for step in sorted(due, key=lambda one: AGAIN.index(ledger.entry(one.name).state)):
        entry = ledger.entry(step.name)
        if step.lacking is not None:
            ledger.put(step.name, replace(entry, state=State.LEFT_OUT, why=step.lacking))
            continue
        left_s = deadline_s - time.monotonic()
        if left_s < LEAST_S:
            _say(f"no step begins with less than {LEAST_S:.0f} s left")
            break
        limit = min(step.limit_s, left_s)
        _say(f"{step.name}: {step.question} (at most {limit:.0f} s)")
        ledger.put(step.name, replace(entry, state=State.CUT, why="the program was ended"))
        begun_s = time.monotonic()
        ended = run_side_by_side(step.commands, out, jobs=jobs, limit_s=limit)
        found = entry.after(ended, time.monotonic() - begun_s)
        ledger.put(step.name, found)
        _say(f"{step.name}: {found.state} after {found.seconds:.0f} s{_because(found.why)}")


def table(steps: Sequence[Step], out: Path | None) -> list[str]:
    """A line a step: its state and seconds where there is a folder, else its question."""
    if out is None:
        return [f"{one.name:14} at most {one.limit_s:4.0f} s, {len(one.commands):2} processes  "
                f"{one.question}{_because(one.lacking)}" for one in steps]  # fmt: skip
    ledger = Ledger(out)
    entries = [(one.name, ledger.entry(one.name)) for one in steps]
    return [
        f"{name:14} {entry.state:9} {entry.seconds:6.0f} s in {entry.attempts}{_because(entry.why)}"
        for name, entry in entries
    ]


def exit_code(steps: Sequence[Step], out: Path) -> int:
    """As the module says."""
    states = {Ledger(out).entry(one.name).state for one in steps}
    if State.FAILED in states:
        return 1
    return EXIT_PARTIAL if states - {State.DONE} else 0


def _because(why: str | None) -> str:
    return f": {why}" if why else ""


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m workbench.evidence", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("--out", type=Path, metavar="DIR", help="where everything is written")
    parser.add_argument("--limit-s", type=seconds, default=540.0, help="for all of it")
    parser.add_argument("--only", nargs="+", metavar="STEP", help="these steps alone")
    parser.add_argument(
        "--jobs", type=positive_count, default=os.cpu_count() or 1, help="processes at once"
    )
    parser.add_argument("--list", action="store_true", help="say what there is, and run nothing")
    parser.add_argument("--tiny", action="store_true", help="on a processor, in seconds")
    return parser


def _chosen(steps: Sequence[Step], names: Sequence[str] | None) -> list[Step]:
    known = [one.name for one in steps]
    for name in names or ():
        if name not in known:
            raise EvidenceError(
                f"{name!r} is no step.", where="--only", remedy=f"There are {', '.join(known)}."
            )
    return [one for one in steps if names is None or one.name in names]


def run(arguments: Sequence[str] | None = None) -> int:
    """The command; EvidenceError for a choice that cannot be run."""
    options = _parser().parse_args(arguments)
    steps = _chosen(steps_of(jobs=options.jobs, is_tiny=options.tiny), options.only)
    if options.list:
        _say("\n".join(table(steps, options.out)))
        return 0
    if options.out is None:
        raise EvidenceError("is missing.", where="--out", remedy="Name a folder.")
    if not options.tiny and not torch.accelerator.is_available():
        raise EvidenceError(
            "there is no device here.", where=sys.argv[0],
            remedy="Run it where torch finds one; `--tiny` runs a small form on a processor.",
        )  # fmt: skip
    out = options.out.absolute()
    out.mkdir(parents=True, exist_ok=True)
    collect(steps, out, jobs=options.jobs, limit_s=options.limit_s)
    _say("\n".join(table(steps, out)))
    return exit_code(steps, out)


def _end(_signal: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def main() -> int:
    """The command, with errors in words; a signal ends the children and leaves what there is."""
    signal.signal(signal.SIGTERM, _end)
    return ended(run, interrupted="run it again with the same --out to go on")


if __name__ == "__main__":
    sys.exit(main())
