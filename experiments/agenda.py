"""What a sweep measures next: a conversation that stored outcomes can be read back into.

`ask()` yields a trial and is sent its outcome. Every decision is a pure function of the plan and
of the outcomes so far, so that a resumed sweep, told what is stored, asks for the same rest.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Generator, Sequence
from typing import Protocol

from experiments.errors import PlanError
from experiments.metric_specs import METRICS
from experiments.outcome import Outcome, Told
from experiments.records import TrialId
from experiments.space import PlannedTrial, Space
from kernels.near_names import nearest

Asking = Generator[PlannedTrial, Outcome, None]
Pass = list[tuple[int, PlannedTrial]]
"""Trials with the number of their point."""


class Agenda(Protocol):
    """The trials of one plan, expanded once."""

    @property
    def known(self) -> Sequence[PlannedTrial]:
        """The trials that can be named beforehand, in order: of a search, its first one only."""
        ...

    @property
    def at_most(self) -> int:
        """How many trials are asked for, at most."""
        ...

    @property
    def notes(self) -> tuple[str, ...]:
        """What the expansion had to say."""
        ...

    @property
    def engine_starts(self) -> int:
        """How often an engine is started when nothing fails, at most."""
        ...

    def ask(self) -> Asking:
        """A new conversation from the first trial on."""
        ...


class Grid:
    """Every point of the axes, `repeats` times; at most `max_trials` trials.

    All points are measured once before any is measured again, so that a host that grows slower
    slows every point. One pass runs the trials of one engine configuration together. With a
    stop rule a pass leaves out the points that are settled. `order: engine_by_engine` gives the
    first up where engines take long to start: each starts once and makes all its passes.
    """

    def __init__(self, space: Space) -> None:
        self._plan = space.plan
        rule = self._plan.repeat_rule
        if rule.stop is not None:
            check_metrics([rule.stop.metric], "repeats.stop.metric")
        self._rule = rule
        firsts, self.notes = space.points()
        shuffler = random.Random(self._plan.seed)
        self._passes: list[Pass] = []
        for repeat in range(rule.max):
            once = [(cell, space.again(one, repeat)) for cell, one in enumerate(firsts)]
            blocked = self._plan.order == "blocked"
            self._passes.append(_blocked(once, shuffler) if blocked else once)

        if self._plan.order == "engine_by_engine":
            self._passes = _by_engine(self._passes)
        found = [trial for once in self._passes for _, trial in once]
        cap = self._plan.max_trials
        self.at_most = len(found) if cap is None else min(len(found), cap)
        self.known = found if rule.stop is not None else found[:cap]  # a rule may leave some out
        self.engine_starts = engine_starts(self.known)

    def ask(self) -> Asking:
        """Pass by pass."""
        values: dict[int, list[float]] = {}
        asked = 0
        for once in self._passes:
            for cell, trial in once:
                if asked == self.at_most:
                    return
                sound = values.setdefault(cell, [])
                if self._rule.settled(trial.repeat, sound):
                    continue
                outcome = yield trial
                asked += 1
                value = self._value(outcome)
                if value is not None:
                    sound.append(value)

    def _value(self, outcome: Outcome) -> float | None:
        if self._rule.stop is None or not outcome.sound:
            return None
        return outcome.values.get(self._rule.stop.metric)


def engine_starts(trials: Sequence[PlannedTrial]) -> int:
    """How often an engine is started to run the trials in their order."""
    return sum(1 for _ in itertools.groupby(trials, key=lambda trial: trial.engine_key))


def replayed(agenda: Agenda, told: Told) -> set[TrialId]:
    """The trials of `told` that the agenda asks for before it asks for another."""
    found: set[TrialId] = set()
    asking = agenda.ask()
    trial = next(asking, None)
    while trial is not None and trial.trial_id in told:
        found.add(trial.trial_id)
        try:
            trial = asking.send(told[trial.trial_id])
        except StopIteration:
            break
    return found


def check_metrics(names: Sequence[str], where: str) -> None:
    """PlanError for a metric that this bench does not know."""
    for name in names:
        if name not in METRICS:
            raise PlanError(f"{name!r} is no metric", where=where, remedy=nearest(name, METRICS))


def _by_engine(passes: list[Pass]) -> list[Pass]:
    """The trials of each engine configuration, all passes of it, in the order of its first."""
    engines: dict[str, Pass] = {}
    for once in passes:
        for cell, trial in once:
            engines.setdefault(trial.engine_key, []).append((cell, trial))
    return list(engines.values())


def _blocked(
    trials: list[tuple[int, PlannedTrial]], shuffler: random.Random
) -> list[tuple[int, PlannedTrial]]:
    """One block an engine configuration; blocks, and trials inside them, in seeded disorder."""
    blocks: dict[str, list[tuple[int, PlannedTrial]]] = {}
    for cell, trial in trials:
        blocks.setdefault(trial.engine_key, []).append((cell, trial))
    keys = list(blocks)
    shuffler.shuffle(keys)
    for key in keys:
        shuffler.shuffle(blocks[key])
    return [trial for key in keys for trial in blocks[key]]
