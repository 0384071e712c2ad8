"""Dominance with explicit directions: which points nothing else beats.

p dominates q iff p is at least as good on every axis and better on one (tolerance 0). Equal
points do not dominate each other: both stay. O(n log n) for two axes; for k axes every point
is held against the front found so far.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from workbench.errors import UsageError

Direction = Literal["max", "min"]
Values = NDArray[np.float64]
Mask = NDArray[np.bool_]


@dataclass(frozen=True, kw_only=True)
class Axis:
    """One objective: a metric by name and which way is better, always said."""

    metric: str
    direction: Direction

    def __str__(self) -> str:
        return f"{self.metric}:{self.direction}"

    def __post_init__(self) -> None:
        if self.direction not in ("max", "min"):
            raise UsageError(
                f"the direction {self.direction!r} is neither 'max' nor 'min'.",
                where=self.metric,
                remedy="Say which way is better, such as max for tokens, min for seconds.",
            )


DEFAULT_X = Axis(metric="tok_s_user", direction="max")
DEFAULT_Y = Axis(metric="output_tok_s_device", direction="max")
"""The front that is shown unless another is asked for: speed of one user against throughput."""


def front_mask(values: Values, directions: Sequence[Direction]) -> Mask:
    """[points] True where no point dominates; values is [points, axes] and finite.

    Raises ValueError for a NaN or infinite value and for shapes that do not fit.
    """
    if values.ndim != 2 or values.shape[1] != len(directions) or not directions:
        raise ValueError(f"values {values.shape} do not fit {len(directions)} directions")
    if not np.isfinite(values).all():
        raise ValueError("a value is not finite: exclude such points before")
    gains = values * np.array([1.0 if way == "max" else -1.0 for way in directions])
    return _front_of_two(gains) if len(directions) == 2 else _front_of_many(gains)


def _front_of_two(gains: Values) -> Mask:
    """Sweep from the largest x down; a point stays iff its y beats all that have a larger x."""
    order = np.lexsort((-gains[:, 1], -gains[:, 0]))
    x, y = gains[order, 0], gains[order, 1]
    starts = np.flatnonzero(np.append(True, x[1:] != x[:-1])[: len(x)])  # of equal x
    tops = y[starts]  # the largest y of each x
    beaten = np.append(-np.inf, np.maximum.accumulate(tops)[:-1])[: len(tops)]
    group = np.repeat(np.arange(len(starts)), np.diff(np.append(starts, len(x))))
    kept = np.zeros(len(x), dtype=np.bool_)
    kept[order] = (y == tops[group]) & (y > beaten[group])
    return kept


def _front_of_many(gains: Values) -> Mask:
    """In descending lexicographic order no later point dominates an earlier one."""
    order = np.lexsort(tuple(-gains[:, k] for k in reversed(range(gains.shape[1]))))
    front = np.empty_like(gains)
    size = 0
    kept = np.zeros(len(gains), dtype=np.bool_)
    for row in order:
        rivals = front[:size]
        as_good = (rivals >= gains[row]).all(axis=1)
        if not (as_good & (rivals > gains[row]).any(axis=1)).any():
            front[size] = gains[row]
            size += 1
            kept[row] = True
    return kept


def staircase(values: Values, x_direction: Direction) -> tuple[Values, Values]:
    """The corners (x, y) of what a two-axis front attains, by ascending x.

    values is [points, 2], all on one front. With x to be maximised, y at some x is that of the
    next point to the right; with x to be minimised, of the next to the left.
    """
    steps = np.unique(values, axis=0)  # sorted by x; one vertex for equal points
    if not len(steps):
        return np.empty(0), np.empty(0)
    x, y = np.repeat(steps[:, 0], 2), np.repeat(steps[:, 1], 2)
    return (x[:-1], y[1:]) if x_direction == "max" else (x[1:], y[:-1])
