"""The engine under test: started once a configuration, watched, and started again when it dies."""

from __future__ import annotations

import dataclasses

from experiments.errors import ExperimentError, SkipRequestedError, TargetError
from experiments.forecast import Forecast
from experiments.records import FailureKind, TrialRecord, TrialState
from experiments.retries import ATTEMPTS, failure_kind
from experiments.space import PlannedTrial
from experiments.targets.base import Target, TargetFactory
from experiments.trial import Bench, failed_record, run_trial
from experiments.watch import Activity, CurrentTrial, Event, Watch
from experiments.watched import watched

CANCELLED = "cancelled: interrupted while it was measured"


class EngineSession:
    """Measures trials; one engine runs at a time, for as long as its configuration is asked for.

    Not thread-safe. `close()` stops the engine.
    """

    def __init__(
        self, target_factory: TargetFactory, bench: Bench, watch: Watch, forecast: Forecast
    ) -> None:
        self._target_factory = target_factory
        self._bench = bench
        self._watch = watch
        self._forecast = forecast
        self._target: Target | None = None
        self._engine_key: str | None = None

    def is_up(self, trial: PlannedTrial) -> bool:
        """Whether the trial needs no engine start."""
        return self._target is not None and self._engine_key == trial.engine_key

    def measure(self, trial: PlannedTrial) -> TrialRecord:
        """A record, whatever happens to the engine.

        A failure is tried again as `ATTEMPTS` says. KeyboardInterrupt gives a CANCELLED record;
        the engine is closed then.
        """
        log = ""
        attempt = 0
        while True:
            attempt += 1
            record = self._attempt(trial, attempt)
            if record.failure is None or attempt >= ATTEMPTS[record.failure]:
                return dataclasses.replace(
                    record, attempts=attempt, engine_log=log + record.engine_log
                )
            log += f"attempt {attempt}: {record.reason}\n{record.engine_log}\n"
            self._say(trial, f"{record.reason}; tried again on a fresh engine")

    def close(self) -> None:
        """Stop the engine, if one runs."""
        target, self._target = self._target, None
        if target is not None:
            target.close()

    def _attempt(self, trial: PlannedTrial, attempt: int) -> TrialRecord:
        if not self.is_up(trial):
            self.close()
        starting = self._target is None
        self._watch.begins(self._current(trial, attempt, starting=starting))
        try:
            target = self._opened(trial)
            starting = False
            self._watch.serves()
            eyed = watched(target, trial.trial_id, self._watch, self._bench.clock)
            record = run_trial(trial, eyed, self._bench)
            return dataclasses.replace(record, engine_log=target.log_tail())
        except KeyboardInterrupt:
            return self._given_up(trial, TargetError(CANCELLED), TrialState.CANCELLED)
        except SkipRequestedError as error:
            return self._given_up(trial, error, TrialState.SKIPPED)
        except ExperimentError as error:
            kind = failure_kind(error, starting=starting)
            return self._given_up(trial, error, TrialState.FAILED, kind)

    def _opened(self, trial: PlannedTrial) -> Target:
        if self._target is None:
            clock = self._bench.clock
            began_ns = clock.now_ns()
            self._target = self._target_factory()
            self._engine_key = trial.engine_key
            self._target.open(trial.point.engine)
            self._forecast.learn_start((clock.now_ns() - began_ns) / 1e9)
        return self._target

    def _given_up(
        self,
        trial: PlannedTrial,
        error: Exception,
        state: TrialState,
        failure: FailureKind | None = None,
    ) -> TrialRecord:
        """No engine outlives a trial that did not end: requests may still be in flight on it."""
        log = self._target.log_tail() if self._target is not None else ""
        self.close()
        record = failed_record(trial, self._bench, error, log, state)
        return dataclasses.replace(record, failure=failure)

    def _current(self, trial: PlannedTrial, attempt: int, *, starting: bool) -> CurrentTrial:
        start_s = self._forecast.start_s() if starting else 0.0
        return CurrentTrial(
            trial_id=trial.trial_id,
            axes=trial.point.axes,
            repeat=trial.repeat,
            attempt=attempt,
            started_utc=self._bench.clock.utc().isoformat(timespec="microseconds"),
            activity=Activity.STARTING if starting else Activity.SERVING,
            forecast_s=self._forecast.trial_s(trial) + start_s,
        )

    def _say(self, trial: PlannedTrial, words: str) -> None:
        time_utc = self._bench.clock.utc().isoformat(timespec="microseconds")
        self._watch.tells(Event(time_utc=time_utc, words=words, trial_id=trial.trial_id))
