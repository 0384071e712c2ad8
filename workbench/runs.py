"""Runs: measure a plan and store each trial before the next begins."""

from __future__ import annotations

import dataclasses
import signal
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, cast, get_args

from experiments.records import AxisValue, TrialId, TrialRecord
from workbench.errors import DiskFullError
from workbench.files import explained, free_bytes
from workbench.provenance import accelerator_name, code_version, manifest, processor_name
from workbench.store import Run, RunFacts, RunWriter, Store

if TYPE_CHECKING:
    from engine.make_checkpoint import Kind
    from experiments.plan import Plan
    from experiments.space import PlannedTrial

TRIAL_BYTES = 60_000  # a generous guess of one stored trial
CHECKPOINTS = ".checkpoints"
DRIFTED = "code, checkpoint, torch or accelerator changed during this run"


@dataclass(frozen=True, kw_only=True)
class Outlook:
    """A plan expanded against its checkpoint: what a run of it would do."""

    plan: Plan  # locked; the model still has its short name
    runnable: Plan  # the model is a directory
    from_environment: Mapping[str, str]  # engine field -> the variable that gave its value
    trials: list[PlannedTrial]
    code_version: str
    engine_starts: int
    estimate_s: float

    @property
    def estimate_bytes(self) -> int:
        """A generous guess of what the run adds to the store."""
        return TRIAL_BYTES * len(self.trials)

    @property
    def fingerprint(self) -> str | None:
        """The content identity of every checkpoint used; None for a simulated target."""
        found = {t.facts.fingerprint for t in self.trials if not t.facts.simulated}
        return " ".join(sorted(found)) or None


def outlook(plan: Plan, store: Store) -> Outlook:
    """Expand `plan` without starting anything; makes a named random checkpoint if missing.

    What DEEPINFER_* variables give is written into the plan, unless it is locked already.
    PlanError, WorkloadError, ConfigError or CheckpointError say what cannot be run.
    """
    from experiments.environment import given_by, locked
    from experiments.sweep import engine_starts, estimate_s, planned
    from experiments.targets.factory import target_factory

    given = given_by(plan)
    plan = locked(plan)
    runnable = with_checkpoint(plan, store)
    version = code_version()
    trials = planned(runnable, target_factory(runnable), code_version=version)
    return Outlook(
        plan=plan,
        runnable=runnable,
        from_environment=given,
        trials=trials,
        code_version=version,
        engine_starts=engine_starts(trials),
        estimate_s=estimate_s(runnable, trials),
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
    done: frozenset[TrialId]  # trials that are stored already and not measured again
    retried: Mapping[TrialId, TrialId] = field(default_factory=dict)  # trial -> stored as
    drifted: bool = False
    states: dict[str, int] = field(default_factory=dict)  # of the trials stored by this job

    @property
    def remaining(self) -> int:
        """Trials not stored yet."""
        return len(self.outlook.trials) - len(self.done) - sum(self.states.values())

    @property
    def estimate_s(self) -> float:
        """What the trials that this job measures take at least."""
        from experiments.sweep import estimate_s

        left = [trial for trial in self.outlook.trials if trial.trial_id not in self.done]
        return estimate_s(self.outlook.runnable, left)

    def records(self) -> Iterator[TrialRecord]:
        """Measure what is missing; each record is on the disk before it is yielded.

        Closing the iterator stops the engine. DiskFullError ends it; what is stored stays.
        """
        from experiments.sweep import run
        from experiments.targets.factory import target_factory

        plan = self.outlook.runnable
        found = run(
            plan, target_factory(plan), done=self.done, code_version=self.outlook.code_version
        )
        with closing(found):  # type: ignore[type-var]
            for record in found:
                stored = self._named(self._labelled(record))
                self.writer.append(stored)
                self.states[record.state] = self.states.get(record.state, 0) + 1
                yield stored

    def close(self) -> Run:
        """Let go of the run; returns it as stored."""
        self.writer.close()
        return self.writer.run.refresh()

    def _named(self, record: TrialRecord) -> TrialRecord:
        name = self.retried.get(record.trial_id, record.trial_id)
        return dataclasses.replace(record, trial_id=name)

    def _labelled(self, record: TrialRecord) -> TrialRecord:
        if not self.drifted:
            return record
        return dataclasses.replace(record, labels=(*record.labels, DRIFTED))


def begin(found: Outlook, store: Store) -> Job:
    """Make a run folder for the plan and open it. DiskFullError where the guess does not fit."""
    free = free_bytes(store.path)
    if free is not None and free < found.estimate_bytes:
        raise DiskFullError(
            f"{free:,} bytes are free and the run may need {found.estimate_bytes:,}. "
            "Nothing was written.",
            where=str(store.path),
            remedy="Free some space, or choose another --store.",
        )
    first = found.trials[0]
    environment = manifest(
        settings=_distinct([trial.point.engine for trial in found.trials]),
        tokenizers=sorted({str(trial.facts.tokenizer_hash) for trial in found.trials}),
        folder=store.path,
    )
    facts = RunFacts(
        name=found.plan.name,
        question=found.plan.question,
        plan=found.plan.document(),
        planned=len(found.trials),
        environment=environment,
        code_version=found.code_version,
        checkpoint_fingerprint=found.fingerprint,
        engine=found.plan.target,
        accelerator=accelerator_of(found, environment),
        model=Path(str(first.facts.model)).name or "unnamed",
    )
    return Job(outlook=found, writer=store.create(facts), done=frozenset())


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


class StopRequest:
    """Whether the user asked to stop after the trial in flight."""

    asked = False


@contextmanager
def stop_on_interrupt() -> Iterator[StopRequest]:
    """SIGINT once asks to stop after the running trial; a second one interrupts it."""
    request = StopRequest()

    def note(_signal: int, _frame: FrameType | None) -> None:
        request.asked = True
        signal.signal(signal.SIGINT, signal.default_int_handler)

    before = signal.signal(signal.SIGINT, note)
    try:
        yield request
    finally:
        signal.signal(signal.SIGINT, before)
