"""How a plan writes its axes: lists, ranges and doublings, together or on a condition."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Self

from pydantic import BeforeValidator, model_validator

from experiments.border import Border, brief
from experiments.records import AxisValue

MAX_VALUES = 100_000
"""Values of one axis, and points of one plan, above which a plan is refused."""


def _spread(value: object) -> object:
    """`{range: [first, last, step]}` and `{log2: [first, last]}` as the list that they mean.

    Both ends belong to it, the last where a step reaches it.
    """
    if not isinstance(value, Mapping):
        return value
    if set(value) == {"range"}:
        return _stepped(_numbers(value["range"], "range", (2, 3)))
    if set(value) == {"log2"}:
        return _doubled(_numbers(value["log2"], "log2", (2,)))
    raise ValueError(f"needs a list, range or log2, got {brief(value)}")


def _numbers(value: object, name: str, lengths: tuple[int, ...]) -> list[int | float]:
    wanted = " or ".join(str(length) for length in lengths)
    if not isinstance(value, list | tuple) or len(value) not in lengths:
        raise ValueError(f"{name} needs {wanted} numbers, got {brief(value)}")
    for one in value:
        if isinstance(one, bool) or not isinstance(one, int | float) or not math.isfinite(one):
            raise ValueError(f"{name} needs {wanted} numbers, got {brief(value)}")
    return list(value)


def _stepped(ends: list[int | float]) -> list[int | float]:
    first, last, step = ends if len(ends) == 3 else (*ends, 1)
    if step <= 0 or last < first:
        raise ValueError(f"range goes upwards: first <= last and step > 0, got {brief(ends)}")
    count = _bounded((last - first) / step + 1e-9) + 1
    whole = all(isinstance(one, int) for one in (first, step))
    return [first + i * step if whole else round(first + i * step, 12) for i in range(count)]


def _doubled(ends: list[int | float]) -> list[int | float]:
    first, last = ends
    if first <= 0 or last < first:
        raise ValueError(f"log2 doubles from first > 0 up to last, got {brief(ends)}")
    return [first * 2**i for i in range(_bounded(math.log2(last / first) + 1e-9) + 1)]


def _bounded(steps: float) -> int:
    """Refused before it takes any memory."""
    if steps >= MAX_VALUES:
        raise ValueError(f"has {steps:.3g} values, more than {MAX_VALUES}")
    return math.floor(steps)


AxisValues = Annotated[list[AxisValue], BeforeValidator(_spread)]


class AxisBlock(Border):
    """Axes that vary together: every combination (`product`) or side by side (`zip`).

    With `when`, only in the points that meet it; the others keep what the plan gives otherwise.
    """

    product: dict[str, AxisValues] | None = None
    zip: dict[str, AxisValues] | None = None
    when: str | None = None

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        if (self.product is None) == (self.zip is None):
            raise ValueError("needs exactly one of product and zip")
        for name, values in self.axes.items():
            if not values:
                raise ValueError(f"axis {name} has no value")
            if self.product and len({(type(v), v) for v in values}) < len(values):
                raise ValueError(f"axis {name} names a value twice")
        lengths = {name: len(values) for name, values in self.axes.items()}
        if self.zip is not None and len(set(lengths.values())) > 1:
            raise ValueError(f"zip needs lists of one length, got {lengths}")
        if not lengths:
            raise ValueError("names no axis")
        return self

    @property
    def axes(self) -> dict[str, list[AxisValue]]:
        """The lists by axis name, of either kind."""
        return (self.product if self.product is not None else self.zip) or {}
