"""Finds the largest value of one axis that still meets every limit."""

from __future__ import annotations

from experiments.outcome import Outcome
from experiments.records import AxisValue
from experiments.search_spec import SearchSpec


class BisectSampler:
    """Both ends first, then the middle of what is still open, until two neighbours differ.

    What cannot be measured counts as beyond the limits.
    """

    def __init__(self, spec: SearchSpec) -> None:
        self._spec = spec
        ((self._name, span),) = spec.over.items()
        low, high = span.ends
        assert isinstance(low, int) and isinstance(high, int), "checked by SearchSpec"
        self._low, self._high = low, high
        self._good: int | None = None  # the largest that is known to meet the limits
        self._bad: int | None = None  # the smallest that is known not to
        self._asked = low

    def ask(self) -> dict[str, AxisValue] | None:
        """None once the answer stands: the largest good value, or that there is none."""
        value = self._next()
        if value is None:
            return None
        self._asked = value
        return {self._name: value}

    def tell(self, outcome: Outcome | None) -> None:
        """Narrows what is open."""
        limits = self._spec.limits
        met = outcome is not None and outcome.sound
        if outcome is not None:
            met = met and all(one.holds(outcome.values.get(one.metric)) for one in limits)
        if met:
            self._good = self._asked
        else:
            self._bad = self._asked

    def _next(self) -> int | None:
        if self._good is None:
            return self._low if self._bad is None else None
        if self._bad is None:
            return self._high if self._good < self._high else None
        return (self._good + self._bad) // 2 if self._bad - self._good > 1 else None
