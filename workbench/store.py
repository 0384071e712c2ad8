"""The results folder: runs and their trials, append-only. results/README.md is its format.

<store>/<run>/run.json                 the locked plan and provenance, written once
<store>/<run>/trials/<trial>/...       one immutable folder a trial
<store>/<run>/writer.lock              who writes now, and the heartbeat
<store>/index.sqlite                   a rebuildable index
"""

from __future__ import annotations

import re
import secrets
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from experiments.records import TrialId, TrialRecord, TrialState
from workbench.errors import StoreError
from workbench.files import explained, read_json, remove_leftovers, to_json, write_folder
from workbench.index import Index
from workbench.lock import WriterLock, is_writing, utc_now
from workbench.trial_files import (
    FORMAT_VERSION,
    check_version,
    contents,
    document,
    read_document,
    read_record,
)

if TYPE_CHECKING:
    import pandas as pd

SAFE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


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


@dataclass(frozen=True, kw_only=True)
class RunSummary:
    """One line about a run. `state`: running | complete | partial | interrupted.

    complete: every planned trial is stored and none failed or was skipped; partial: every one
    is stored, some failed or were skipped; interrupted: some are missing and nobody writes.
    """

    run_id: str
    name: str
    question: str
    state: str
    started_utc: str
    planned: int
    counts: dict[TrialState, int]
    engine: str
    accelerator: str
    model: str
    labels: tuple[str, ...]


class Store:
    """The runs under folder `path`. Reading never writes; a missing folder is an empty store."""

    def __init__(
        self, path: str | Path = "results", *, now: Callable[[], datetime] = utc_now
    ) -> None:
        self.path = Path(path)
        self._now = now

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
        Index(self.path).check()
        started = self._now()
        run_id = _new_run_id(facts.name, started)
        found = {
            "format_version": FORMAT_VERSION,
            "run_id": run_id,
            "started_utc": started.isoformat(timespec="seconds"),
            **{name: getattr(facts, name) for name in facts.__dataclass_fields__},
        }
        with explained(self.path):
            self.path.mkdir(parents=True, exist_ok=True)
        write_folder(self.path / run_id, {"run.json": to_json(found).encode()})
        return self.writer(run_id)

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
        return sum(len(run.trial_ids()) for run in runs)

    def _folders(self) -> list[Path]:
        """Run folders: visible ones with a run.json."""
        if not self.path.is_dir():
            return []
        return [
            folder
            for folder in self.path.iterdir()
            if not folder.name.startswith(".") and (folder / "run.json").is_file()
        ]

    def _survey(self) -> tuple[list[RunSummary], list[StoreError]]:
        summaries, errors = [], []
        for folder in self._folders():
            try:
                summaries.append(Run(folder, now=self._now).summary)
            except StoreError as error:
                errors.append(error)
        summaries.sort(key=lambda summary: (summary.started_utc, summary.run_id), reverse=True)
        return summaries, errors


class Run:
    """One stored run, read only. What is read is kept until `refresh()`.

    StoreError at construction when run.json is absent, damaged or of a newer format.
    """

    def __init__(self, folder: Path, *, now: Callable[[], datetime] = utc_now) -> None:
        self.folder = folder
        self._now = now
        self._facts = read_json(folder / "run.json")
        check_version(self._facts, folder / "run.json")
        self._documents: dict[str, dict[str, object]] = {}
        self.refresh()

    @property
    def run_id(self) -> str:
        """The name of the run's folder."""
        return self.folder.name

    @property
    def plan(self) -> dict[str, object]:
        """The locked plan: every default filled in."""
        return dict(_object(self._facts, "plan"))

    @property
    def environment(self) -> dict[str, object]:
        """The environment manifest taken when the run began (workbench.provenance)."""
        return dict(_object(self._facts, "environment"))

    @property
    def code_version(self) -> str:
        """The version of the code that the trial ids carry."""
        return str(self._facts.get("code_version"))

    @property
    def checkpoint_fingerprint(self) -> str | None:
        """The content identity of the checkpoint; None where the target has none."""
        found = self._facts.get("checkpoint_fingerprint")
        return None if found is None else str(found)

    @property
    def planned(self) -> int:
        """How many trials the plan asks for."""
        return int(str(self._facts.get("planned", 0)))

    @property
    def summary(self) -> RunSummary:
        """The run in one line, as of the last `refresh()`; `state` is as of now."""
        counts = Counter(str(found.get("state")) for found in self._documents.values())
        labels: dict[str, None] = {}
        for found in self._documents.values():
            labels.update(dict.fromkeys(_labels(found)))
        texts = {
            name: str(self._facts.get(name, ""))
            for name in ("name", "question", "started_utc", "engine", "accelerator", "model")
        }
        return RunSummary(
            run_id=self.run_id,
            state=self._state(counts),
            planned=self.planned,
            counts={state: counts[state] for state in TrialState},
            labels=tuple(labels),
            **texts,
        )

    def refresh(self) -> Run:
        """Read the trials that were stored since; returns this run."""
        names = self._stored_names()
        missing = names - self._documents.keys()
        indexed = Index(self.folder.parent).documents(self.run_id) if len(missing) > 1 else {}
        for name in missing:
            found = indexed.get(name)
            self._documents[name] = found or read_document(self.folder / "trials" / name)
        return self

    def trial_ids(self) -> set[TrialId]:
        """The ids of the stored trials."""
        return {TrialId(name) for name in self._documents}

    def documents(self) -> list[dict[str, object]]:
        """trial.json of every stored trial, oldest first."""
        return sorted(
            self._documents.values(),
            key=lambda found: (str(found.get("started_utc")), str(found.get("trial_id"))),
        )

    def points(self) -> pd.DataFrame:
        """One row per stored trial; the columns are those of `workbench.points`."""
        from workbench.points import points_table

        return points_table(self.run_id, self.documents())

    def requests(self, trial_id: str) -> pd.DataFrame:
        """requests.parquet of one trial: one row a request."""
        return _read_parquet(self._trial_folder(trial_id) / "requests.parquet")

    def telemetry(self, trial_id: str) -> pd.DataFrame:
        """telemetry.parquet of one trial: one row a sample."""
        return _read_parquet(self._trial_folder(trial_id) / "telemetry.parquet")

    def trial(self, trial_id: str) -> TrialRecord:
        """The whole record of one trial."""
        return read_record(self._trial_folder(trial_id))

    def files(self, trial_id: str) -> dict[str, Path]:
        """The files of one trial by name."""
        return {path.name: path for path in sorted(self._trial_folder(trial_id).iterdir())}

    def _stored_names(self) -> set[str]:
        trials = self.folder / "trials"
        if not trials.is_dir():
            return set()
        return {path.name for path in trials.iterdir() if not path.name.startswith(".")}

    def _state(self, counts: Counter[str]) -> str:
        if is_writing(self.folder, now=self._now):
            return "running"
        if len(self._documents) < self.planned:
            return "interrupted"
        return "partial" if counts["failed"] + counts["skipped"] else "complete"

    def _trial_folder(self, trial_id: str) -> Path:
        if trial_id not in self._documents:
            raise StoreError(
                f"{trial_id!r} is no stored trial of this run.",
                where=self.run_id,
                remedy=f"`workbench show {self.run_id}` lists its trials.",
            )
        return self.folder / "trials" / trial_id


class RunWriter:
    """Adds trials to one run. Holds the run's lock until `close()`; a context manager."""

    def __init__(self, run: Run, index: Index) -> None:
        index.check()
        self._lock = WriterLock(run.folder)
        self._index = index
        self._trials = run.folder / "trials"
        with explained(run.folder):
            self._trials.mkdir(exist_ok=True)
        remove_leftovers(self._trials)
        self.run = run.refresh()

    def append(self, record: TrialRecord) -> None:
        """Store one trial; it is on the disk when this returns.

        StoreError when the trial is stored already, DiskFullError without room.
        """
        if not SAFE_NAME.fullmatch(record.trial_id):
            raise StoreError(
                f"{record.trial_id!r} cannot name a folder.",
                where=self.run.run_id,
                remedy="A trial id is letters, digits, dots, dashes and underscores.",
            )
        write_folder(self._trials / record.trial_id, contents(record))
        self._index.add(self.run.run_id, [document(record)])

    def close(self) -> None:
        """Let the next writer in. Safe to call twice."""
        self._lock.release()

    def __enter__(self) -> RunWriter:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def _new_run_id(name: str, started: datetime) -> str:
    """`20261129-142501-<name>-<4 hex>`: sorts by time, safe as a folder and in a URL."""
    slug = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:40] or "run"
    return f"{started:%Y%m%d-%H%M%S}-{slug}-{secrets.token_hex(2)}"


def _object(found: Mapping[str, object], name: str) -> Mapping[str, object]:
    value = found.get(name)
    return value if isinstance(value, Mapping) else {}


def _labels(found: Mapping[str, object]) -> Sequence[str]:
    labels = found.get("labels")
    return [str(label) for label in labels] if isinstance(labels, list) else []


def _read_parquet(path: Path) -> pd.DataFrame:
    """One Parquet file as a table, through DuckDB where it is installed."""
    try:
        import duckdb
    except ImportError:
        import pandas as pd

        return pd.read_parquet(path)
    with duckdb.connect() as connection:
        return connection.read_parquet(str(path)).df()
