"""Runs: measure a plan and store each trial before the next begins."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, cast, get_args

from experiments.observe import HostObserver
from experiments.outcome import Outcome
from experiments.records import AxisValue, TrialId, TrialRecord
from experiments.watch import Event, Stopped, Watch
from workbench.errors import StoreError
from workbench.files import explained
from workbench.lock import utc_now
from workbench.pace import StoredPace, stored_pace
from workbench.preflight import check_room
from workbench.progress import Progress
from workbench.provenance import accelerator_name, code_version, manifest, processor_name
from workbench.reporter import Reporter
from workbench.store import Run, RunFacts, RunWriter, Store

if TYPE_CHECKING:
    from engine.make_checkpoint import Kind
    from experiments.agenda import Agenda
    from experiments.forecast import Forecast
    from experiments.plan import Plan
    from experiments.space import PlannedTrial

TRIAL_BYTES = 60_000  # a generous guess of one stored trial
CHECKPOINTS = ".checkpoints"
DRIFTED = "code, checkpoint, torch or accelerator changed during this run"


@dataclass(frozen=True, kw_only=True)
class Outlook:
    """A plan expanded against its checkpoint, once: what a run of it would do."""

    plan: Plan  # locked; the model still has its short name
    runnable: Plan  # the model is a directory
    from_environment: Mapping[str, str]  # engine field -> the variable that gave its value
    agenda: Agenda
    code_version: str
    pace: StoredPace

    @property
    def trials(self) -> list[PlannedTrial]:
        """Those that can be named beforehand; of a search only the first."""
        return list(self.agenda.known)

    @property
    def engine_starts(self) -> int:
        """How often an engine is started, at most."""
        return self.agenda.engine_starts

    @property
    def estimate_s(self) -> float:
        """A forecast of the time that all of it takes."""
        return self.forecast().total_s(self.agenda)

    @property
    def estimate_bytes(self) -> int:
        """What the run adds to the store: as stored trials weigh, or a generous guess."""
        each = self.pace.trial_bytes
        return round((TRIAL_BYTES if each is None else each) * self.agenda.at_most)

    @property
    def fingerprint(self) -> str | None:
        """The content identity of every checkpoint used; None for a simulated target."""
        found = {t.facts.fingerprint for t in self.trials if not t.facts.simulated}
        return " ".join(sorted(name for name in found if name is not None)) or None

    def forecast(self) -> Forecast:
        """One that begins with what is stored and learns from what is measured."""
        from experiments.forecast import Forecast

        return Forecast(self.runnable, self.pace.pace)


def outlook(plan: Plan, store: Store) -> Outlook:
    """Expand `plan` without starting anything; makes a named random checkpoint if missing.

    What DEEPINFER_* variables give is written into the plan, unless it is locked already.
    PlanError, WorkloadError, ConfigError or CheckpointError say what cannot be run.
    """
    from experiments.environment import given_by, locked
    from experiments.sweep import expanded
    from experiments.targets.factory import target_factory

    given = given_by(plan)
    plan = locked(plan)
    runnable = with_checkpoint(plan, store)
    version = code_version()
    return Outlook(
        plan=plan,
        runnable=runnable,
        from_environment=given,
        agenda=expanded(runnable, target_factory(runnable), code_version=version),
        code_version=version,
        pace=stored_pace(plan, store),
    )


def with_checkpoint(plan: Plan, store: Store) -> Plan:
    """The plan with `model: toy` or `small` turned into a directory, made once under the store.

    A directory of that name in the current folder wins, as for every other model.
    """
    if plan.target == "simulated":
        return plan
    from engine.make_checkpoint import Kind

    name = str(plan.engine.get("model"))
    if name not in get_args(Kind) or Path(name).is_dir():
        return plan
    return plan.with_engine(model=str(random_checkpoint(cast("Kind", name), store)))


def random_checkpoint(kind: Kind, store: Store, *, seed: int = 0) -> Path:
    """The random checkpoint of that kind and seed, in the store's own cache."""
    directory = store.path.absolute() / CHECKPOINTS / f"{kind}-seed-{seed}"
    if not directory.is_dir():
        from engine.errors import CheckpointError
        from engine.make_checkpoint import make_checkpoint

        with explained(directory.parent):
            directory.parent.mkdir(parents=True, exist_ok=True)
        try:
            make_checkpoint(kind, seed=seed, directory=directory)
        except CheckpointError:
            if not directory.is_dir():
                raise
            # Another process finished the same checkpoint first; directories appear whole.
    return directory


@dataclass(kw_only=True)
class Job:
    """A run that is being written. Holds the run's lock until `close()`."""

    outlook: Outlook
    writer: RunWriter
    told: Mapping[TrialId, Outcome] = field(default_factory=dict)  # stored, not measured again
    retried: Mapping[TrialId, TrialId] = field(default_factory=dict)  # trial -> stored as
    drifted: bool = False
    budget_s: float | None = None  # of wall time, from the first trial on
    states: Counter[str] = field(default_factory=Counter)  # of the trials stored by this job
    watch: Watch = field(default_factory=Watch)
    _observer: HostObserver = field(default_factory=HostObserver)
    _deadline: float | None = None  # on the wall clock, for the report only

    @property
    def remaining(self) -> int:
        """Trials that may still be measured, at most."""
        if self.watch.snapshot().stopped is Stopped.FINISHED:
            return 0
        return max(0, self.outlook.agenda.at_most - self.stored)

    @property
    def stored(self) -> int:
        """Trials of the run that are on the disk."""
        return len(self.told) + sum(self.states.values())

    @property
    def estimate_s(self) -> float:
        """What the trials that this job may measure take."""
        return self.outlook.forecast().total_s(self.outlook.agenda, len(self.told))

    def records(self) -> Iterator[TrialRecord]:
        """Measure what is missing; each record is on the disk before it is yielded.

        progress.json tells of it meanwhile. Closing the iterator stops the engine. DiskFullError
        ends it; what is stored stays.
        """
        from experiments.clock import SystemClock
        from experiments.sweep import Supervision, measure
        from experiments.targets.factory import target_factory
        from experiments.trial import Bench
        from workbench.surroundings import Surroundings

        plan = self.outlook.runnable
        changes = None if plan.target == "simulated" else Surroundings().changes
        found = measure(
            self.outlook.agenda,
            target_factory(plan),
            Bench(plan=plan, clock=SystemClock(), observer=self._observer, changes=changes),
            told=self.told,
            supervision=Supervision(
                forecast=self.outlook.forecast(), watch=self.watch, budget_s=self.budget_s
            ),
        )
        if self.budget_s is not None:
            self._deadline = utc_now().timestamp() + self.budget_s
        with Reporter(self.writer.run.folder, self.watch, self.progress), closing(found):  # type: ignore[type-var]
            for record in found:
                stored = self._named(self._labelled(record))
                self._keep(stored)
                self.states[record.state] += 1
                yield stored

    def progress(self) -> Progress:
        """What progress.json says now. Any thread."""
        now = utc_now()
        sweep = self.watch.snapshot(self._observer.latest())
        counts = Counter(str(outcome.state) for outcome in self.told.values()) + self.states
        left_s = None if self._deadline is None else max(0.0, self._deadline - now.timestamp())
        return Progress(
            written_utc=now.isoformat(timespec="milliseconds"),
            planned=self.outlook.agenda.at_most,
            stored=self.stored,
            counts=dict(counts),
            notes=self.outlook.agenda.notes,
            budget_left_s=left_s,
            sweep=sweep,
            ended_trials=self.stored if sweep.stopped is Stopped.FINISHED else None,
        )

    def close(self) -> Run:
        """Let go of the run; returns it as stored."""
        self.writer.close()
        return self.writer.run.refresh()

    def _keep(self, record: TrialRecord) -> None:
        """Store it; where that fails, progress.json says why, as far as there is room for it."""
        try:
            self.writer.append(record)
        except StoreError as error:
            time_utc = utc_now().isoformat(timespec="milliseconds")
            self.watch.tells(Event(time_utc=time_utc, words=str(error), trial_id=record.trial_id))
            self.watch.stops(Stopped.ERROR)
            raise

    def _named(self, record: TrialRecord) -> TrialRecord:
        name = self.retried.get(record.trial_id, record.trial_id)
        return dataclasses.replace(record, trial_id=name)

    def _labelled(self, record: TrialRecord) -> TrialRecord:
        if not self.drifted:
            return record
        return dataclasses.replace(record, labels=(*record.labels, DRIFTED))


def begin(
    found: Outlook, store: Store, *, budget_s: float | None = None, parent: str | None = None
) -> Job:
    """Make a run folder for the plan and open it; `parent` is the run that it confirms.

    DiskFullError or MemoryTooSmallError where it cannot fit; nothing is written then.
    """
    check_room(found, store)
    first = found.trials[0]
    environment = manifest(
        settings=_settings(found),
        tokenizers=sorted({str(trial.facts.tokenizer_hash) for trial in found.trials}),
        folder=store.path,
    )
    facts = RunFacts(
        name=found.plan.name,
        question=found.plan.question,
        plan=found.plan.document(),
        planned=found.agenda.at_most,
        environment=environment,
        code_version=found.code_version,
        checkpoint_fingerprint=found.fingerprint,
        engine=found.plan.target,
        accelerator=accelerator_of(found, environment),
        model=Path(str(first.facts.model)).name or "unnamed",
        parent=parent,
    )
    return Job(outlook=found, writer=store.create(facts), budget_s=budget_s)


def _settings(found: Outlook) -> dict[str, object]:
    """Engine settings of the run; of what a search varies, the ends or choices it looks among."""
    settings = _distinct([trial.point.engine for trial in found.trials])
    over = found.plan.search.over if found.plan.search is not None else {}
    return settings | {name: span.between for name, span in over.items() if name in settings}


def _distinct(configurations: list[dict[str, AxisValue]]) -> dict[str, object]:
    """Engine settings of all configurations of a run: a list where they differ."""
    found: dict[str, list[AxisValue]] = {}
    for configuration in configurations:
        for name, value in configuration.items():
            values = found.setdefault(name, [])
            if value not in values:
                values.append(value)
    return {name: values[0] if len(values) == 1 else values for name, values in found.items()}


def accelerator_of(found: Outlook, environment: Mapping[str, object]) -> str:
    """What serves, in words: a CPU target on a host with devices does not run on them."""
    if found.trials[0].facts.simulated:
        return "simulated"
    kinds = {trial.facts.accelerator for trial in found.trials}
    return processor_name(environment) if kinds == {"cpu"} else accelerator_name(environment)
