"""Several engines behind one target: the field `arm` of a configuration says which one is meant."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from experiments.arms import ARM_AXIS
from experiments.clients import ClientPool
from experiments.errors import PlanError, TargetError
from experiments.records import AxisValue, Calibration
from experiments.targets.base import Decodes, Target, TargetFactory, TargetFacts
from experiments.targets.handing_on import HandsOn

Engine = Mapping[str, AxisValue]


class ArmsTarget(HandsOn):
    """A `Target` that hands everything to the target of one arm; one of them is open at most."""

    def __init__(self, factories: Mapping[str, TargetFactory]) -> None:
        self._factories = factories
        self._targets: dict[str, Target] = {}
        self._opened: Target | None = None
        self._log = ""

    @property
    def clients(self) -> ClientPool | None:
        """Of the open arm; None where it sends by itself."""
        return getattr(self._opened, "clients", None)

    @property
    def calibrations(self) -> dict[str, Calibration]:
        """Of the open arm's clients."""
        return getattr(self._opened, "calibrations", {})

    def settings(self, engine: Engine) -> dict[str, AxisValue]:
        """The arm's own, and its name."""
        name, own = _split(engine)
        return {ARM_AXIS: name, **self._arm(name).settings(own)}

    def describe(self, engine: Engine) -> TargetFacts:
        """As the arm describes it; its name is part of the configuration."""
        name, own = _split(engine)
        return _of_arm(name, self._arm(name).describe(own))

    def encode(self, engine: Engine, text: str) -> list[int]:
        """By the arm's tokenizer."""
        name, own = _split(engine)
        return self._arm(name).encode(own, text)

    def decode(self, engine: Engine, ids: Sequence[int]) -> str:
        """By the arm's tokenizer; PlanError where it has none."""
        name, own = _split(engine)
        target = self._arm(name)
        if not isinstance(target, Decodes):
            raise PlanError("answers in text alone", where=f"arms.{name}")
        return target.decode(own, ids)

    def open(self, engine: Engine) -> TargetFacts:
        """Start the engine of that arm."""
        name, own = _split(engine)
        self.close()
        self._opened = self._factories[name]()
        return _of_arm(name, self._opened.open(own))

    def log_tail(self) -> str:
        """Of the arm that is, or was last, open."""
        return self._opened.log_tail() if self._opened is not None else self._log

    def close(self) -> None:
        """Stop the open arm."""
        opened, self._opened = self._opened, None
        if opened is not None:
            opened.close()
            self._log = opened.log_tail()

    @property
    def _open(self) -> Target:
        if self._opened is None:
            raise TargetError("no arm is open")
        return self._opened

    def _arm(self, name: str) -> Target:
        """The target that answers for an arm that is not started."""
        if name not in self._targets:
            self._targets[name] = self._factories[name]()
        return self._targets[name]


def _split(engine: Engine) -> tuple[str, dict[str, AxisValue]]:
    return str(engine[ARM_AXIS]), {k: v for k, v in engine.items() if k != ARM_AXIS}


def _of_arm(name: str, facts: TargetFacts) -> TargetFacts:
    """The facts with the arm's name in their configuration."""
    return replace(facts, configuration={ARM_AXIS: name, **facts.configuration})
