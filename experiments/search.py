"""Adaptive search: the next point follows from what was measured, or stored, before."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Protocol

from engine.errors import EngineError
from experiments.agenda import Asking, check_metrics
from experiments.errors import ExperimentError, PlanError
from experiments.outcome import Outcome
from experiments.records import AxisValue, TrialId
from experiments.search_spec import SearchSpec
from experiments.space import PlannedTrial, Space

MOST_REPEATED = 20
"""Suggestions in a row that bring nothing new, after which a search has seen its space."""

Values = dict[str, AxisValue]


class Sampler(Protocol):
    """Suggests points and is told of each before it suggests the next. Deterministic."""

    def ask(self) -> Values | None:
        """The axis values to try; None: it has its answer."""
        ...

    def tell(self, outcome: Outcome | None) -> None:
        """How the newest suggestion ended; None: it could not be measured at all."""
        ...


class Search:
    """An agenda that asks where a sampler points; no point is measured twice.

    A suggestion that the engine, the workload or `where` refuses is told as failed and leaves no
    record; the first one must be measurable. The sampler is asked anew in every conversation, so
    that stored outcomes lead it to the same suggestions.
    """

    notes: tuple[str, ...] = ()

    def __init__(self, space: Space, spec: SearchSpec) -> None:
        check_metrics(spec.metrics, "search")
        self._space = space
        self._spec = spec
        self._trials: dict[str, PlannedTrial | None] = {}
        self._sampler()  # a missing package is told before anything runs
        self._check_fractions()
        self.known = [self._first()]
        self._check_choices()

    @property
    def at_most(self) -> int:
        """The cap of the search, or of the plan."""
        cap = self._space.plan.max_trials
        return self._spec.trials if cap is None else min(cap, self._spec.trials)

    @property
    def engine_starts(self) -> int:
        """Every trial may be another configuration."""
        return self.at_most

    def ask(self) -> Asking:
        """As long as the sampler has something new to try."""
        sampler = self._sampler()
        seen: dict[TrialId, Outcome] = {}
        repeated = 0
        while len(seen) < self.at_most and repeated < MOST_REPEATED:
            values = sampler.ask()
            if values is None:
                return
            trial = self._trial(values)
            if trial is None or trial.trial_id in seen:
                repeated += 1
                sampler.tell(None if trial is None else seen[trial.trial_id])
                continue
            repeated = 0
            seen[trial.trial_id] = outcome = yield trial
            sampler.tell(outcome)

    def _sampler(self) -> Sampler:
        if self._spec.method == "bisect":
            from experiments.search_bisect import BisectSampler

            return BisectSampler(self._spec)
        from experiments.search_optuna import OptunaSampler

        return OptunaSampler(self._spec, seed=self._space.plan.seed)

    def _check_fractions(self) -> None:
        """Refuse to look between whole numbers on an axis that takes nothing else."""
        for name, span in self._spec.over.items():
            if span.low is not None and span.high is not None and not span.whole:
                middle = span.low + (span.high - span.low) * 0.381966
                self._space.trial(self._space.cell({name: middle}))

    def _check_choices(self) -> None:
        """Refuse a choice that nothing takes, such as a name that is misspelt."""
        for name, span in self._spec.over.items():
            for choice in span.choices or ():
                self._corner({name: choice})

    def _first(self) -> PlannedTrial:
        """A trial of the corner that is asked first, or of the first corner that can be measured.

        PlanError where none can: then a wrong name or value is the likely reason.
        """
        found = self._corner({})
        if found is None:
            raise PlanError("no corner of the search meets `where`", where="search.over")
        return found

    def _corner(self, fixed: Values) -> PlannedTrial | None:
        """The first corner with those values that can be measured; None: `where` meets none.

        Where none can, the first refusal is raised.
        """
        spans = self._spec.over.items()
        ends = ([fixed[name]] if name in fixed else span.ends for name, span in spans)
        refused: Exception | None = None
        for corner in itertools.islice(itertools.product(*ends), 64):
            try:
                cell = self._space.cell(dict(zip(self._spec.over, corner, strict=True)))
                if self._space.meets(cell):
                    return self._space.trial(cell)
            except (ExperimentError, EngineError) as error:
                refused = refused or error
        if refused is not None:
            raise refused
        return None

    def _trial(self, values: Mapping[str, AxisValue]) -> PlannedTrial | None:
        key = repr(values)
        if key not in self._trials:
            try:
                cell = self._space.cell(dict(values))
                self._trials[key] = self._space.trial(cell) if self._space.meets(cell) else None
            except (ExperimentError, EngineError):
                self._trials[key] = None
        return self._trials[key]
