"""Runs a plan: a generator of records, so that each is stored before the next is measured."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from collections.abc import Set as AbstractSet

from experiments.clock import Clock, SystemClock
from experiments.errors import ExperimentError, TargetCapacityError, TargetError
from experiments.observe import HostObserver, Observer
from experiments.plan import Plan
from experiments.records import TrialId, TrialRecord, TrialState
from experiments.space import PlannedTrial, engine_starts, expand
from experiments.targets.base import Target, TargetFactory
from experiments.trial import Bench, failed_record, run_trial

__all__ = ["PlannedTrial", "engine_starts", "estimate_s", "planned", "run"]

_TRIAL_OVERHEAD_S = 1.0  # warm-up, drain and arithmetic of a quick trial
_START_S = 5.0  # of a small engine; a large checkpoint takes as long as its disk


def planned(
    plan: Plan, target_factory: TargetFactory, *, code_version: str = "unknown"
) -> list[PlannedTrial]:
    """Every trial in the order in which `run` measures it, `done` ones included.

    Everything that is wrong with the plan, its workloads or its checkpoints is raised here,
    before anything runs. `code_version` is part of every trial id.
    """
    return expand(plan, target_factory(), code_version=code_version)


def estimate_s(plan: Plan, trials: list[PlannedTrial]) -> float:
    """A rough forecast of the time that the trials take."""
    each_s = plan.protocol.measured_s + _TRIAL_OVERHEAD_S
    return len(trials) * each_s + engine_starts(trials) * _START_S


def run(
    plan: Plan,
    target_factory: TargetFactory,
    *,
    done: AbstractSet[TrialId] = frozenset(),
    clock: Clock | None = None,
    code_version: str = "unknown",
    observer: Observer | None = None,
) -> Iterator[TrialRecord]:
    """Yield one record a trial that is not in `done`; the next one starts when it is asked for.

    The engine starts once a configuration, and again after a failure. A trial whose engine
    fails is a FAILED record; after one that found no room, trials of the same configuration
    with a larger batch are SKIPPED. `clock` None is the system's, `observer` None watches the
    host. Closing the generator (or KeyboardInterrupt inside it) stops the engine.
    """
    bench = Bench(
        plan=plan,
        clock=clock if clock is not None else SystemClock(),
        observer=observer if observer is not None else HostObserver(),
    )
    trials = [
        trial
        for trial in planned(plan, target_factory, code_version=code_version)
        if trial.trial_id not in done
    ]
    for _, block in itertools.groupby(trials, key=lambda trial: trial.engine_key):
        yield from _run_block(list(block), target_factory, bench)


def _run_block(
    block: list[PlannedTrial], target_factory: TargetFactory, bench: Bench
) -> Iterator[TrialRecord]:
    """The trials of one engine configuration, on one engine for as long as it lives."""
    session = _Session(target_factory, bench)
    try:
        for trial in block:
            yield session.measure(trial)
    finally:
        session.close()


class _Session:
    """An engine configuration under test: its engine, and what is known not to work."""

    def __init__(self, target_factory: TargetFactory, bench: Bench) -> None:
        self._target_factory = target_factory
        self._bench = bench
        self._target: Target | None = None
        self._start_failure: ExperimentError | None = None
        self._start_log = ""
        self._full_from: int | None = None  # the smallest batch that found no room

    def measure(self, trial: PlannedTrial) -> TrialRecord:
        """A record, whatever happens."""
        if self._start_failure is not None:
            return self._failed(trial, self._start_failure, self._start_log)
        if self._too_large(trial):
            reason = TargetError(
                f"batch size {self._full_from} of this configuration already found no room"
            )
            return failed_record(trial, self._bench, reason, "", TrialState.SKIPPED)
        target = self._opened(trial)
        if target is None:
            assert self._start_failure is not None
            return self._failed(trial, self._start_failure, self._start_log)
        try:
            return run_trial(trial, target, self._bench)
        except ExperimentError as error:
            log = target.log_tail()
            self.close()
            if isinstance(error, TargetCapacityError) and trial.batch_size is not None:
                self._full_from = min(trial.batch_size, self._full_from or trial.batch_size)
            return self._failed(trial, error, log)

    def close(self) -> None:
        """Stop the engine, if one runs."""
        target, self._target = self._target, None
        if target is not None:
            target.close()

    def _too_large(self, trial: PlannedTrial) -> bool:
        return (
            self._full_from is not None
            and trial.batch_size is not None
            and trial.batch_size >= self._full_from
        )

    def _opened(self, trial: PlannedTrial) -> Target | None:
        """The engine; None where it does not start. Starting is not tried again."""
        if self._target is not None:
            return self._target
        target = self._target_factory()
        try:
            target.open(trial.point.engine)
        except ExperimentError as error:
            self._start_failure = error
            self._start_log = target.log_tail()
            target.close()
            return None
        self._target = target
        return target

    def _failed(self, trial: PlannedTrial, error: ExperimentError, log: str) -> TrialRecord:
        return failed_record(trial, self._bench, error, log, TrialState.FAILED)
