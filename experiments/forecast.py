"""How long trials and engine starts take: a guess, until some were measured."""

from __future__ import annotations

import statistics
from collections import defaultdict, deque
from dataclasses import dataclass

from experiments.agenda import Agenda
from experiments.plan import Plan
from experiments.space import PlannedTrial

TRIAL_OVERHEAD_S = 1.0  # warm-up, drain and arithmetic of a quick trial
START_S = 5.0  # of a small engine; a large checkpoint takes as long as its disk
_KEPT = 100


@dataclass(frozen=True, kw_only=True)
class Pace:
    """What trials and engine starts of one kind have taken. Seconds; None: not known."""

    trial_s: float | None = None
    start_s: float | None = None


class Forecast:
    """Learns from every trial of the sweep; before that, from `pace` or from the protocol."""

    def __init__(self, plan: Plan, pace: Pace | None = None) -> None:
        known = pace if pace is not None else Pace()
        guess_s = plan.protocol.measured_s + TRIAL_OVERHEAD_S
        self._trial_s = known.trial_s if known.trial_s is not None else guess_s
        self._start_s = known.start_s if known.start_s is not None else START_S
        self._all: deque[float] = deque(maxlen=_KEPT)
        self._of_cell: dict[str, deque[float]] = defaultdict(lambda: deque(maxlen=_KEPT))
        self._starts: deque[float] = deque(maxlen=_KEPT)

    def learn(self, trial: PlannedTrial, duration_s: float) -> None:
        """A trial was measured; what took no time (it failed at once) teaches nothing."""
        if duration_s > 0:
            self._all.append(duration_s)
            self._of_cell[_cell(trial)].append(duration_s)

    def learn_start(self, duration_s: float) -> None:
        """An engine was started."""
        self._starts.append(duration_s)

    def trial_s(self, trial: PlannedTrial | None = None) -> float:
        """Of this trial: as its own repeats took, else as the sweep's trials did."""
        own = self._of_cell.get(_cell(trial)) if trial is not None else None
        return statistics.median(own or self._all or [self._trial_s])

    def start_s(self) -> float:
        """Of one engine."""
        return statistics.median(self._starts or [self._start_s])

    def total_s(self, agenda: Agenda, done: int = 0) -> float:
        """Of everything that an agenda may still ask for when `done` of it are over."""
        left = max(0, agenda.at_most - done)
        return left * self.trial_s() + agenda.engine_starts * left / agenda.at_most * self.start_s()


def _cell(trial: PlannedTrial) -> str:
    return f"{trial.engine_key} {sorted(trial.point.axes.items())}"
