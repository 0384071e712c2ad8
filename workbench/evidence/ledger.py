"""What became of each step, as evidence.json beside what the steps wrote."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path

from workbench.errors import EvidenceError
from workbench.evidence.children import Ended
from workbench.lock import utc_now

NAME = "evidence.json"
FORMAT = "evidence"
EXIT_PARTIAL = 4  # of the program, and of a step that its time cut


class State(StrEnum):
    """Of a step."""

    DONE = "done"
    FAILED = "failed"  # it ran to its end, and something in it did not pass
    CUT = "cut"  # its time was up, or the program was ended
    LEFT_OUT = "left out"  # it cannot run here
    WAITING = "waiting"


AGAIN = (State.WAITING, State.CUT, State.FAILED, State.LEFT_OUT)
"""States of steps that are still run, in this order."""


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One step: its newest attempt."""

    state: State = State.WAITING
    seconds: float = 0.0  # of all attempts
    attempts: int = 0
    why: str | None = None
    ended_utc: str | None = None
    commands: tuple[dict[str, object], ...] = ()

    def after(self, ended: Sequence[Ended], seconds: float) -> Entry:
        """The entry once its commands have ended."""
        cut = [one.name for one in ended if one.exit_code is None]
        failed = [f"{one.name} ended with {one.exit_code}" for one in ended if one.exit_code]
        state = State.CUT if cut else State.FAILED if failed else State.DONE
        told = [f"out of time: {', '.join(cut)}"] if cut else []
        return Entry(
            state=state,
            seconds=self.seconds + seconds,
            attempts=self.attempts + 1,
            why="; ".join([*told, *failed]) or None,
            ended_utc=utc_now().isoformat(timespec="seconds"),
            commands=tuple(asdict(one) for one in ended),
        )


class Ledger:
    """The entries of a folder; on the disk after each change."""

    def __init__(self, out: Path) -> None:
        """Read what is there. EvidenceError where that is no ledger."""
        self._path = out / NAME
        self._entries = _read(self._path) if self._path.is_file() else {}

    def entry(self, name: str) -> Entry:
        """Of a step; waiting where nothing is known of it."""
        return self._entries.get(name, Entry())

    def put(self, name: str, entry: Entry) -> None:
        """Note it."""
        self._entries[name] = entry
        document = {
            "format": FORMAT,
            "version": 1,
            "steps": {name: asdict(entry) for name, entry in self._entries.items()},
        }
        beside = self._path.with_suffix(".new")
        beside.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
        beside.replace(self._path)


def _read(path: Path) -> dict[str, Entry]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        return {
            name: Entry(**{**entry, "state": State(entry["state"])})
            for name, entry in found["steps"].items()
        }
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise EvidenceError(
            f"is no ledger of evidence: {error}.", where=str(path), remedy="Use another folder."
        ) from error
