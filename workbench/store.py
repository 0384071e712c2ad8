"""The results folder: runs and their trials, append-only. results/README.md is its format.

<store>/<run>/run.json                 the locked plan and provenance, written once
<store>/<run>/trials/<trial>/...       one immutable folder a trial
<store>/<run>/writer.lock              who writes now, and the heartbeat
<store>/index.sqlite                   a rebuildable index
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from experiments.records import TrialRecord
from workbench.errors import StoreError
from workbench.files import copy_folder, explained, remove_leftovers, to_json, write_folder
from workbench.index import Index
from workbench.lock import SILENCE_S, one_at_a_time, utc_now
from workbench.run_writer import RunWriter
from workbench.stored_run import Run, RunSummary
from workbench.trial_files import FORMAT_VERSION, contents, document

__all__ = ["Run", "RunFacts", "RunSummary", "RunWriter", "Store"]


@dataclass(frozen=True, kw_only=True)
class RunFacts:
    """What is known of a run before its first trial: the fixed part of run.json."""

    name: str
    question: str
    plan: Mapping[str, object]  # locked: with every default filled in
    planned: int  # trials
    environment: Mapping[str, object]
    code_version: str
    checkpoint_fingerprint: str | None
    engine: str  # which target served: "in_process", "simulated"
    accelerator: str
    model: str
    parent: str | None = None  # the run whose points are measured again
    origin: Mapping[str, object] | None = None  # of an imported run: tool, version, files, notes


class Store:
    """The runs under folder `path`. Reading never writes; a missing folder is an empty store."""

    def __init__(
        self, path: str | Path = "results", *, now: Callable[[], datetime] = utc_now
    ) -> None:
        self.path = Path(path)
        self._now = now

    def run_ids(self) -> list[str]:
        """The id of every run folder, readable or not; reads no trial."""
        return sorted(folder.name for folder in self._folders())

    def runs(self) -> list[RunSummary]:
        """Every readable run, newest first. `unreadable()` tells of the others."""
        return self._survey()[0]

    def unreadable(self) -> list[StoreError]:
        """Why each run that `runs()` leaves out cannot be read."""
        return self._survey()[1]

    def run(self, run_id: str) -> Run:
        """The run whose id is `run_id` or begins with it; StoreError when none or several do."""
        names = [folder.name for folder in self._folders()]
        found = [run_id] if run_id in names else [n for n in names if n.startswith(run_id)]
        if len(found) == 1:
            return Run(self.path / found[0], now=self._now)
        if found:
            what, remedy = f"fits several runs: {', '.join(sorted(found))}.", "Give more of the id."
        else:
            what, remedy = "is no run of this store.", "`workbench ls` lists the runs."
        raise StoreError(f"{run_id!r} {what}", where=str(self.path), remedy=remedy)

    def create(self, facts: RunFacts) -> RunWriter:
        """Make a new run folder with its run.json and open it for writing."""
        run_id = self._begun(facts, {})
        return self.writer(run_id)

    def add(self, facts: RunFacts, records: Sequence[TrialRecord]) -> Run:
        """Store a run whose trials are all known: it is there whole, or not at all.

        DiskFullError without room, StoreError where it cannot be written; nothing is left then.
        """
        files = {f"trials/{record.trial_id}/{name}": content
                 for record in records for name, content in contents(record).items()}  # fmt: skip
        run_id = self._begun(facts, files)
        with suppress(StoreError):  # the run is stored; an index that lags is allowed for
            Index(self.path).add(run_id, [document(record) for record in records])
        return self.run(run_id)

    def take(self, folder: Path) -> Run:
        """Copy a run that lies elsewhere, whole and under its own id.

        StoreError for a folder that holds no run, one that is being measured, or an id that this
        store has; DiskFullError without room.
        """
        if Run(folder, now=self._now).summary.state == "running":
            raise StoreError(
                "is being measured.", where=str(folder), remedy="Wait until it has ended."
            )
        Index(self.path).check()
        with explained(self.path):
            self.path.mkdir(parents=True, exist_ok=True)
        copy_folder(folder, self.path / folder.name)
        run = self.run(folder.name)
        with suppress(StoreError):  # as in `add`
            Index(self.path).add(run.run_id, run.documents())
        return run

    def _begun(self, facts: RunFacts, files: Mapping[str, bytes]) -> str:
        """The id of a new run folder with its run.json and `files`."""
        Index(self.path).check()
        started = self._now()
        run_id = _new_run_id(facts.name, started)
        found = {
            "format_version": FORMAT_VERSION,
            "run_id": run_id,
            "started_utc": started.isoformat(timespec="milliseconds"),
            **{name: getattr(facts, name) for name in facts.__dataclass_fields__},
        }
        with explained(self.path):
            self.path.mkdir(parents=True, exist_ok=True)
        write_folder(self.path / run_id, {"run.json": to_json(found).encode(), **files})
        return run_id

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Wait until no other process adds what it first looks for; removes what killed ones left.

        StoreError where the store cannot be written.
        """
        with one_at_a_time(self.path, "import"):
            remove_leftovers(self.path, before=self._now() - timedelta(seconds=SILENCE_S))
            yield

    def writer(self, run_id: str) -> RunWriter:
        """Open a stored run to add trials; RunLockedError while another process does."""
        return RunWriter(self.run(run_id), Index(self.path))

    def reindex(self) -> int:
        """Rebuild index.sqlite from the folders; the number of trials indexed."""
        index = Index(self.path)
        index.check()
        index.remove()
        runs = [self.run(summary.run_id) for summary in self.runs()]
        for run in runs:
            index.add(run.run_id, run.documents())
        return sum(len(run.documents()) for run in runs)

    def _folders(self) -> list[Path]:
        """Run folders: visible ones with a run.json."""
        try:
            if not self.path.exists():
                return []
            found = list(self.path.iterdir())
        except OSError as error:
            raise StoreError(
                f"is no folder that can be read ({error.strerror}).",
                where=str(self.path),
                remedy="Check its owner and permissions, or choose another --store.",
            ) from error
        return [f for f in found if not f.name.startswith(".") and _is_run(f)]

    def _survey(self) -> tuple[list[RunSummary], list[StoreError]]:
        summaries, errors = [], []
        for folder in self._folders():
            try:
                summaries.append(Run(folder, now=self._now).summary)
            except StoreError as error:
                errors.append(error)
        summaries.sort(key=lambda summary: (summary.started_utc, summary.run_id), reverse=True)
        return summaries, errors


def _is_run(folder: Path) -> bool:
    """Whether there is a run.json; a folder that cannot be looked into is taken for a run."""
    try:
        return (folder / "run.json").is_file()
    except OSError:
        return True


def _new_run_id(name: str, started: datetime) -> str:
    """`20261129-142501-<name>-<4 hex>`: sorts by time, safe as a folder and in a URL."""
    slug = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:40] or "run"
    return f"{started:%Y%m%d-%H%M%S}-{slug}-{secrets.token_hex(2)}"
