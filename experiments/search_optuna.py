"""A seeded TPE sampler of optuna behind `Sampler`: ask-and-tell, kept in memory."""

from __future__ import annotations

import importlib
import json
import warnings
from types import ModuleType
from typing import TYPE_CHECKING

from experiments.errors import MissingPackageError
from experiments.outcome import Outcome
from experiments.records import AxisValue
from experiments.search_spec import SearchSpec, Span

if TYPE_CHECKING:
    import optuna

_EXCESS = "excess"
_UNKNOWN_EXCESS = 1e6
"""How far beyond a limit a point counts whose number is missing: as far as can be."""


class OptunaSampler:
    """The low corner of the space first, which is the likeliest to meet limits on latency.

    The same seed and the same outcomes give the same suggestions. MissingPackageError where
    optuna is not installed.
    """

    def __init__(self, spec: SearchSpec, *, seed: int) -> None:
        self._spec = spec
        self._optuna = _package()
        self._study = self._made(seed)
        self._study.enqueue_trial({name: _coded(s, s.ends[0]) for name, s in spec.over.items()})
        self._trial: optuna.Trial | None = None

    def ask(self) -> dict[str, AxisValue]:
        """Never ends by itself."""
        self._trial = trial = self._study.ask()
        return {name: self._suggested(trial, name, span) for name, span in self._spec.over.items()}

    def tell(self, outcome: Outcome | None) -> None:
        """A point without a sound value of the goal is told as failed."""
        assert self._trial is not None, "ask comes before tell"
        goal = outcome.values.get(self._spec.goal) if outcome is not None else None
        if outcome is None or not outcome.sound or goal is None:
            self._study.tell(self._trial, state=self._optuna.trial.TrialState.FAIL)
            return
        self._trial.set_user_attr(_EXCESS, self._excess(outcome))
        self._study.tell(self._trial, goal)

    def _excess(self, outcome: Outcome) -> list[float]:
        """One number a limit, above 0 where it is not met."""
        found = []
        for limit in self._spec.limits:
            value = outcome.values.get(limit.metric)
            excess = _UNKNOWN_EXCESS if value is None else limit.excess(value)
            found.append(excess if not limit.holds(value) else min(excess, 0.0))
        return found

    def _made(self, seed: int) -> optuna.Study:
        direction = "maximize" if self._spec.maximize is not None else "minimize"
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # constraints are marked experimental
            sampler = self._optuna.samplers.TPESampler(
                seed=seed,
                n_startup_trials=min(10, max(3, self._spec.trials // 3)),
                constraints_func=_told_excess if self._spec.limits else None,
            )
            return self._optuna.create_study(direction=direction, sampler=sampler)

    @staticmethod
    def _suggested(trial: optuna.Trial, name: str, span: Span) -> AxisValue:
        if span.choices is not None:
            return json.loads(trial.suggest_categorical(name, [*map(json.dumps, span.choices)]))
        low, high = span.low, span.high
        assert low is not None and high is not None, "checked by Span"
        if span.whole:
            return trial.suggest_int(name, int(low), int(high), log=span.by_ratio)
        return trial.suggest_float(name, low, high, log=span.by_ratio)


def _coded(span: Span, value: AxisValue) -> AxisValue:
    """Choices are told apart by their JSON: True and 1 are two of them."""
    return json.dumps(value) if span.choices is not None else value


def _told_excess(trial: optuna.trial.FrozenTrial) -> list[float]:
    return trial.user_attrs[_EXCESS]


def _package() -> ModuleType:
    try:
        found = importlib.import_module("optuna")
    except ImportError as error:
        raise MissingPackageError(
            "needs optuna, which is not installed here",
            where="search.method: optuna",
            remedy="Install it with `pip install -e '.[search]'` in the project's folder, or use "
            "bisect for one axis.",
        ) from error
    found.logging.set_verbosity(found.logging.ERROR)
    return found
