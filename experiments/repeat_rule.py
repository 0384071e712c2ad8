"""How often a point is measured: so many times, or until its mean is known well enough."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Self

from pydantic import Field, model_validator

from experiments.border import Border
from experiments.resampling import t_quantile


class StopRule(Border):
    """Stop once half the 95 % t-interval of the mean is at most `rel_ci` of the mean."""

    metric: str = "output_tok_s"
    rel_ci: float = Field(default=0.02, gt=0, lt=1)


class RepeatRule(Border):
    """At least `min` repeats; then on until `stop` holds, but never more than `max`."""

    min: int = Field(default=3, ge=1)
    max: int = Field(default=8, ge=1)
    stop: StopRule | None = None

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.max < self.min:
            raise ValueError(f"max {self.max} is below min {self.min}")
        if self.stop is None and self.max != self.min:
            raise ValueError("min and max differ and no stop rule says when to stop")
        if self.stop is not None and self.min < 2:
            raise ValueError("a stop rule needs min 2: one repeat has no interval")
        return self

    def settled(self, measured: int, values: Sequence[float]) -> bool:
        """True where a point needs no further repeat.

        `measured` repeats were tried and `values` came of those that are sound. A point none of
        whose first `min` repeats is sound is given up: more of the same show nothing.
        """
        if measured >= self.max:
            return True
        if self.stop is None or measured < self.min:
            return False
        if len(values) < 2:
            return not values
        return relative_half_width(values) <= self.stop.rel_ci


def as_repeat_rule(value: object) -> object:
    """A plain number of repeats as the rule that it means."""
    if type(value) is int:
        return {"min": value, "max": value}
    if isinstance(value, Mapping) and "max" not in value and type(value.get("min")) is int:
        return {**value, "max": max(int(value["min"]), 8)}
    return value


def relative_half_width(values: Sequence[float]) -> float:
    """Half the 95 % t-interval of the mean of two values or more, as a share of that mean."""
    count, mean = len(values), math.fsum(values) / len(values)
    variance = math.fsum((value - mean) ** 2 for value in values) / (count - 1)
    half = t_quantile(0.975, count - 1) * math.sqrt(variance / count)
    if half == 0:
        return 0.0
    return half / abs(mean) if mean else math.inf
