"""progress.json: what the process that measures a run is doing, for whoever looks meanwhile.

<run>/progress.json      written by that process about once a second, and once when it ends
<run>/orders/stop        what others ask of it: end after the trial in flight
<run>/orders/skip-<id>   give this trial up

The file holds nothing that the trials do not, except `ended_trials`: how many trials a plan
came to whose number is only known at its end (a stop rule, a search).
"""

from __future__ import annotations

import dataclasses
import json
import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from experiments.records import TrialId
from experiments.watch import Snapshot, Stopped
from workbench.errors import UsageError
from workbench.files import explained, to_json
from workbench.lock import is_writing

if TYPE_CHECKING:
    from pydantic import TypeAdapter

PROGRESS = "progress.json"
ORDERS = "orders"
_STOP, _SKIP = "stop", "skip-"
_TRIAL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Progress:
    """One writing of progress.json."""

    format_version: int = 1
    written_utc: str
    planned: int  # trials that the plan asks for, at most
    stored: int  # of them, those that are on the disk
    counts: dict[str, int]  # the stored ones by state
    notes: tuple[str, ...] = ()  # what the plan's expansion had to say
    budget_left_s: float | None = None  # None: no budget was given
    sweep: Snapshot  # the current trial, the newest events, the time left, why it stopped
    ended_trials: int | None = None  # trials of the whole run, once none is left to measure

    @property
    def finished(self) -> bool:
        """Nothing is left to measure."""
        return self.sweep.stopped is Stopped.FINISHED


def read_progress(folder: Path) -> Progress | None:
    """What the newest process that measured the run last said; None where it said nothing.

    A file that cannot be read, or is of another format, says nothing: it is no result.
    """
    try:
        found = json.loads((folder / PROGRESS).read_text(encoding="utf-8"))
        return _adapter().validate_python(found)
    except (OSError, ValueError, RecursionError):
        return None


def progress_text(progress: Progress) -> str:
    """The content of progress.json."""
    return to_json(dataclasses.asdict(progress))


@cache
def _adapter() -> TypeAdapter[Progress]:
    from pydantic import TypeAdapter

    return TypeAdapter(Progress)


def order_stop(folder: Path) -> None:
    """Ask whoever measures the run to end after the trial in flight. UsageError if nobody does."""
    _order(folder, _STOP)


def order_skip(folder: Path, trial_id: str | None = None) -> TrialId:
    """Ask that a trial be given up, the current one if none is named; returns its id.

    UsageError where nobody measures the run, or no trial is in flight.
    """
    if trial_id is None:
        progress = read_progress(folder)
        current = progress.sweep.current if progress else None
        trial_id = current.trial_id if current else None
    if trial_id is None or not _TRIAL.fullmatch(trial_id):
        raise UsageError(
            "no trial is in flight." if trial_id is None else f"{trial_id!r} is no trial id.",
            where=folder.name,
            remedy="`workbench status` shows what is being measured.",
        )
    _order(folder, f"{_SKIP}{trial_id}")
    return TrialId(trial_id)


def _order(folder: Path, name: str) -> None:
    if not is_writing(folder):
        raise UsageError(
            "is measured by nobody now, so there is nothing to stop or skip.",
            where=folder.name,
            remedy="`workbench ls` shows which runs are running.",
        )
    with explained(folder):
        (folder / ORDERS).mkdir(exist_ok=True)
        (folder / ORDERS / name).touch()


def take_orders(folder: Path) -> tuple[bool, list[TrialId]]:
    """Whether a stop was asked for, and the trials to skip; the orders are removed."""
    found = [path for path in sorted((folder / ORDERS).glob("[!.]*")) if path.is_file()]
    for path in found:
        path.unlink(missing_ok=True)
    names = [path.name for path in found]
    skips = [TrialId(name.removeprefix(_SKIP)) for name in names if name.startswith(_SKIP)]
    return _STOP in names, skips
