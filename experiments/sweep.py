"""Runs a plan: a generator of records, so that each is stored before the next is measured."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import dataclass, field, replace

from experiments.agenda import Agenda, Grid, engine_starts
from experiments.casebook import Casebook
from experiments.clock import Clock, SystemClock
from experiments.engine_session import EngineSession
from experiments.errors import TargetError
from experiments.forecast import Forecast
from experiments.observe import HostObserver, Observer
from experiments.outcome import Outcome, Told, outcome_of
from experiments.plan import Plan
from experiments.records import TrialRecord, TrialState
from experiments.search import Search
from experiments.space import PlannedTrial, Space
from experiments.targets.base import TargetFactory
from experiments.trial import Bench, failed_record
from experiments.watch import Event, Stopped, Watch

__all__ = ["PlannedTrial", "Supervision", "engine_starts", "expanded", "measure", "planned", "run"]


@dataclass(frozen=True, kw_only=True)
class Supervision:
    """What watches over a sweep, and bounds it."""

    forecast: Forecast
    watch: Watch = field(default_factory=Watch)
    budget_s: float | None = None  # no trial is begun that is not expected to end within it


def expanded(plan: Plan, target_factory: TargetFactory, *, code_version: str) -> Agenda:
    """The plan expanded, once: `measure` runs it.

    Everything that is wrong with the plan, its workloads or its checkpoints is raised here,
    before anything runs. `code_version` is part of every trial id.
    """
    space = Space(plan, target_factory(), code_version)
    return Grid(space) if plan.search is None else Search(space, plan.search)


def planned(
    plan: Plan, target_factory: TargetFactory, *, code_version: str = "unknown"
) -> list[PlannedTrial]:
    """The trials of `expanded` that can be named beforehand, in the order of their measurement."""
    return list(expanded(plan, target_factory, code_version=code_version).known)


def run(
    plan: Plan,
    target_factory: TargetFactory,
    *,
    done: Told | None = None,
    clock: Clock | None = None,
    observer: Observer | None = None,
    code_version: str = "unknown",
) -> Iterator[TrialRecord]:
    """`expanded` and `measure` in one. `clock` None is the system's, `observer` None the host's."""
    bench = Bench(
        plan=plan,
        clock=clock if clock is not None else SystemClock(),
        observer=observer if observer is not None else HostObserver(),
    )
    asked = expanded(plan, target_factory, code_version=code_version)
    return measure(asked, target_factory, bench, told=done or {})


def measure(
    agenda: Agenda,
    target_factory: TargetFactory,
    bench: Bench,
    *,
    told: Told,
    supervision: Supervision | None = None,
) -> Iterator[TrialRecord]:
    """Yield one record a trial that `told` does not know; the next starts when it is asked for.

    An engine starts once a configuration, and again after a failure. A trial whose engine fails
    is a FAILED record; what the casebook knows not to work is SKIPPED. Closing the generator
    stops the engine. KeyboardInterrupt during a trial yields it as CANCELLED and is raised when
    the next one is asked for. Why it ended stands in `supervision.watch`.
    """
    found = supervision or Supervision(forecast=Forecast(bench.plan))
    return _Sweep(agenda, bench, found, told).records(target_factory)


class _Sweep:
    """One run of an agenda."""

    def __init__(self, agenda: Agenda, bench: Bench, supervision: Supervision, told: Told) -> None:
        self._agenda = agenda
        self._bench = bench
        self._told = told
        self._watch = supervision.watch
        self._forecast = supervision.forecast
        self._budget_s = supervision.budget_s
        self._casebook = Casebook()
        self._began_ns = bench.clock.now_ns()
        self._over = 0

    def records(self, target_factory: TargetFactory) -> Generator[TrialRecord]:
        session = EngineSession(target_factory, self._bench, self._watch, self._forecast)
        try:
            self._watch.stops((yield from self._conversation(session)))
        except KeyboardInterrupt:
            self._watch.stops(Stopped.INTERRUPT)
            raise
        except GeneratorExit:
            self._watch.stops(Stopped.REQUEST)
            raise
        except Exception:
            self._watch.stops(Stopped.ERROR)
            raise
        finally:
            session.close()

    def _conversation(self, session: EngineSession) -> Generator[TrialRecord, None, Stopped]:
        """Ask the agenda for trials and tell it their outcomes, stored or measured."""
        asking = self._agenda.ask()
        trial = next(asking, None)
        while trial is not None:
            outcome = self._told.get(trial.trial_id)
            if outcome is None:
                stopped = self._reason_to_stop(trial, session)
                if stopped is not None:
                    return stopped
                self._watch.expects(self._forecast.total_s(self._agenda, self._over))
                record = self._record(trial, session)
                outcome = outcome_of(record)
                self._note(record)
                yield record
                if record.state is TrialState.CANCELLED:
                    raise KeyboardInterrupt
            self._learn(trial, outcome)
            try:
                trial = asking.send(outcome)
            except StopIteration:
                trial = None
        self._watch.expects(0.0)
        return Stopped.FINISHED

    def _record(self, trial: PlannedTrial, session: EngineSession) -> TrialRecord:
        if self._watch.skip_asked(trial.trial_id):
            error = TargetError("skipped on request before it began")
            return failed_record(trial, self._bench, error, "", TrialState.SKIPPED)
        refusal = self._casebook.refusal(trial)
        if refusal is None:
            return session.measure(trial)
        record = failed_record(trial, self._bench, TargetError(refusal.reason), "", refusal.state)
        return replace(record, failure=refusal.failure)

    def _reason_to_stop(self, trial: PlannedTrial, session: EngineSession) -> Stopped | None:
        if self._watch.stop_asked is not None:
            return self._watch.stop_asked
        if self._budget_s is None:
            return None
        spent_s = (self._bench.clock.now_ns() - self._began_ns) / 1e9
        start_s = 0.0 if session.is_up(trial) else self._forecast.start_s()
        fits = spent_s + start_s + self._forecast.trial_s(trial) <= self._budget_s
        return None if fits else Stopped.BUDGET

    def _learn(self, trial: PlannedTrial, outcome: Outcome) -> None:
        self._over += 1
        self._casebook.learn(trial, outcome)
        self._forecast.learn(trial, outcome.duration_s)

    def _note(self, record: TrialRecord) -> None:
        reason = f": {record.reason}" if record.reason else ""
        event = Event(
            time_utc=self._bench.clock.utc().isoformat(timespec="microseconds"),
            words=f"{record.state}{reason}",
            trial_id=record.trial_id,
        )
        self._watch.ends(event)
