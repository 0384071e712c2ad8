"""One stored run, read only: its plan, its trials as a table, and the rows behind each."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from experiments.records import TrialId, TrialRecord, TrialState
from workbench.errors import StoreError, UsageError
from workbench.files import read_json, read_parquet, unreadable
from workbench.index import Index
from workbench.lock import is_writing, utc_now
from workbench.progress import Progress, read_progress
from workbench.run_document import labels_of, part_of, planned_count
from workbench.trial_files import check_version, read_document, read_record

if TYPE_CHECKING:
    import pandas as pd

    from experiments.pooling import PooledQuantile
    from workbench.prices import Prices

MOST_READ = 1000  # trials whose requests a table of points reads: some ten seconds
RETRY = re.compile(r"(.+)\.retry([1-9][0-9]*)")


def attempt(trial_id: str) -> tuple[TrialId, int]:
    """The trial that a stored id is an attempt at, and how many retries came before it.

    A retried trial is stored as `<trial>.retry1`, `.retry2` and so on, beside what failed.
    """
    found = RETRY.fullmatch(trial_id)
    return (TrialId(found[1]), int(found[2])) if found else (TrialId(trial_id), 0)


@dataclass(frozen=True, kw_only=True)
class RunSummary:
    """One line about a run. `state`: running | complete | partial | interrupted.

    complete: every planned trial is stored and none failed or was skipped; partial: every one
    is stored, some failed or were skipped; interrupted: some are missing, or were cancelled,
    and nobody writes.
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


class Run:
    """One stored run, read only. What is read is kept until `refresh()`.

    StoreError at construction when run.json is absent, damaged or of a newer format.
    """

    def __init__(self, folder: Path, *, now: Callable[[], datetime] = utc_now) -> None:
        self.folder = folder
        self._now = now
        self._facts = read_json(folder / "run.json")
        check_version(self._facts, folder / "run.json")
        self._planned = planned_count(self._facts, folder / "run.json")
        self._documents: dict[str, dict[str, object]] = {}
        self._judged: dict[str, dict[str, object]] | None = None
        self._quantiles: dict[tuple[str, ...], Mapping[str, PooledQuantile] | None] = {}
        self._numbers: pd.DataFrame | None = None
        self.refresh()

    @property
    def run_id(self) -> str:
        """The name of the run's folder."""
        return self.folder.name

    @property
    def plan(self) -> dict[str, object]:
        """The locked plan: every default filled in."""
        return dict(part_of(self._facts, "plan"))

    @property
    def environment(self) -> dict[str, object]:
        """The environment manifest taken when the run began (workbench.provenance)."""
        return dict(part_of(self._facts, "environment"))

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
    def parent(self) -> str | None:
        """The run whose points this one measured again; None for a run of its own."""
        found = self._facts.get("parent")
        return None if found is None else str(found)

    @property
    def origin(self) -> Mapping[str, object] | None:
        """Whose result this is: tool, tool_version, format, files, notes; None: measured here."""
        found = self._facts.get("origin")
        return found if isinstance(found, Mapping) else None

    def check_measured_here(self) -> None:
        """UsageError for an imported run: it has no plan that anything could be measured by."""
        if self.origin is not None:
            raise UsageError(
                f"was imported from {self.origin.get('tool')}, so there is nothing to measure by.",
                where=self.run_id,
                remedy="Measure with a plan of your own: `workbench init`, `workbench run`.",
            )

    @property
    def planned(self) -> int:
        """How many trials the plan asks for: at most, until a stop rule or search has ended."""
        found = self.progress()
        ended = found.ended_trials if found is not None else None
        return self._planned if ended is None else ended

    def progress(self) -> Progress | None:
        """What measures this run now, or what last did; read anew. None: it never said."""
        return read_progress(self.folder)

    @property
    def summary(self) -> RunSummary:
        """The run in one line, as of the last `refresh()`; `state` is as of now."""
        newest = self.judged()
        counts = Counter(str(found.get("state")) for found in newest)
        labels: dict[str, None] = {}
        for found in newest:
            labels.update(dict.fromkeys(labels_of(found)))
        texts = {
            name: str(self._facts.get(name, ""))
            for name in ("name", "question", "started_utc", "engine", "accelerator", "model")
        }
        return RunSummary(
            run_id=self.run_id,
            state=self._state(counts, len(newest)),
            planned=self.planned,
            counts={state: counts[state] for state in TrialState},
            labels=tuple(labels),
            **texts,
        )

    def refresh(self) -> Run:
        """Read the trials that were stored since; returns this run."""
        names = self._stored_names()
        missing = names - self._documents.keys()
        if missing:
            self._judged = self._numbers = None
        indexed = Index(self.folder.parent).documents(self.run_id) if len(missing) > 1 else {}
        for name in missing:
            found = indexed.get(name)
            self._documents[name] = found or read_document(self.folder / "trials" / name)
        return self

    def trial_ids(self) -> set[TrialId]:
        """The ids of everything stored, with the attempts that were retried since."""
        return {TrialId(name) for name in self._documents}

    def documents(self) -> list[dict[str, object]]:
        """trial.json of every stored trial (its newest attempt), oldest first."""
        return sorted(
            self._newest(),
            key=lambda found: (str(found.get("started_utc")), str(found.get("trial_id"))),
        )

    def judged(self) -> list[dict[str, object]]:
        """The documents, corrected (`workbench.corrections`), with what the trials of the run say
        of each other (`workbench.judged`).
        """
        return list(self._judged_by_id().values())

    def points(
        self, *, most_read: int | None = MOST_READ, prices: Prices | None = None
    ) -> pd.DataFrame:
        """One row a point: its valid repeats as one, with intervals (`workbench.repeats`).

        Costs are by `prices`; None: the store's own table, or the one that ships. Quantiles of
        several repeats need the requests of each: they are read once, of at most `most_read`
        trials (None: of all), and missing beyond.
        """
        from workbench.repeats import pooled

        room = len(self._documents) if most_read is None else most_read

        def read(trial_ids: tuple[str, ...]) -> Mapping[str, PooledQuantile] | None:
            nonlocal room
            if trial_ids not in self._quantiles:
                room -= len(trial_ids)
            return self.quantiles(trial_ids) if room >= 0 else None

        return self._with_cost(pooled(self._trials(), read), prices)

    def quantiles(self, trial_ids: tuple[str, ...]) -> Mapping[str, PooledQuantile] | None:
        """The quantiles of all requests of these trials together; kept, for trials never change.

        None where the requests of one of them are not stored.
        """
        from workbench.trial_columns import quantiles_of

        if trial_ids not in self._quantiles:
            trials = [(self._trial_folder(name), self._documents[name]) for name in trial_ids]
            self._quantiles[trial_ids] = quantiles_of(trials)
        return self._quantiles[trial_ids]

    def trials(self, *, prices: Prices | None = None) -> pd.DataFrame:
        """One row per stored trial, with the columns of `workbench.points` and `workbench.cost`."""
        return self._with_cost(self._trials(), prices)

    def _trials(self) -> pd.DataFrame:
        from workbench.points import points_table

        return points_table(self.run_id, self.judged())

    def _with_cost(self, table: pd.DataFrame, prices: Prices | None) -> pd.DataFrame:
        from workbench.cost import Host, with_cost

        return with_cost(table, Host.of(self.environment, self.plan), prices, self.folder.parent)

    def metric(self, trial_id: str, name: str) -> float | None:
        """One number of one trial, derived ones included; None where the trial lacks it."""
        if self._numbers is None:
            self._numbers = self.trials().set_index("trial_id")
        if name not in self._numbers.columns or trial_id not in self._numbers.index:
            return None
        value = float(self._numbers.at[trial_id, name])
        return None if value != value else value

    def requests(self, trial_id: str) -> pd.DataFrame:
        """requests.parquet of one trial: one row a request."""
        return read_parquet(self._trial_folder(trial_id) / "requests.parquet")

    def telemetry(self, trial_id: str) -> pd.DataFrame:
        """telemetry.parquet of one trial: one row a sample."""
        return read_parquet(self._trial_folder(trial_id) / "telemetry.parquet")

    def trial(self, trial_id: str) -> TrialRecord:
        """The whole record of one trial, its state as `judged` tells it."""
        from workbench.judged import judged_record

        record = read_record(self._trial_folder(trial_id))
        found = self._judged_by_id().get(trial_id)
        return record if found is None else judged_record(record, found)

    def files(self, trial_id: str) -> dict[str, Path]:
        """The files of one trial by name."""
        return {path.name: path for path in sorted(self._trial_folder(trial_id).iterdir())}

    def _judged_by_id(self) -> dict[str, dict[str, object]]:
        from workbench.corrections import corrected, corrections_of
        from workbench.judged import judged, kept_outputs

        if self._judged is None:
            told = corrected(self.documents(), corrections_of(self.folder))
            found = judged(told, self.plan, lambda name: kept_outputs(self._trial_folder(name)))
            self._judged = {str(one["trial_id"]): one for one in found}
        return self._judged

    def _stored_names(self) -> set[str]:
        trials = self.folder / "trials"
        try:
            if not trials.is_dir():
                return set()
            return {path.name for path in trials.iterdir() if not path.name.startswith(".")}
        except OSError as error:
            raise unreadable(trials, error) from error

    def _newest(self) -> list[dict[str, object]]:
        """The stored documents without those that were retried since."""
        names = {attempt(name)[0]: name for name in sorted(self._documents, key=attempt)}
        return [self._documents[name] for name in names.values()]

    def _state(self, counts: Counter[str], stored: int) -> str:
        if is_writing(self.folder, now=self._now):
            return "running"
        if stored < self.planned or counts["cancelled"]:
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
