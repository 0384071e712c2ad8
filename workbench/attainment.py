"""What sets of points attain, many sets at once: more is better on both axes of a gain."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from workbench.pareto import Values, front_mask

TAIL = 0.025


def on_front(draws: Values) -> NDArray[np.bool_]:
    """[draws, candidates] who is on the front of each draw [draws, candidates, 2]."""
    kept = [front_mask(one, ("max", "max")) for one in draws]
    return np.array(kept, dtype=bool).reshape(draws.shape[:2])


def attained(draws: Values, places: Values) -> Values:
    """[draws, places] the best second gain of points whose first is at least the place."""
    found = np.empty((len(draws), len(places)))
    for k, place in enumerate(places):
        reached = np.where(draws[..., 0] >= place, draws[..., 1], -np.inf)
        found[:, k] = reached.max(axis=1, initial=-np.inf)
    return found


def bounds(draws: Values) -> tuple[Values, Values]:
    """The 95 % bounds of each column by its order statistics; NaN draws are left out."""
    ordered = np.sort(draws, axis=0)  # NaN last
    counts = (~np.isnan(ordered)).sum(axis=0)
    last = np.maximum(counts - 1, 0)
    columns = np.arange(draws.shape[1])
    low = ordered[np.floor(TAIL * last).astype(int), columns]
    high = ordered[np.ceil((1 - TAIL) * last).astype(int), columns]
    return low, high


def finite_or_nan(values: Values) -> Values:
    """NaN in place of what nobody attains."""
    return np.where(np.isfinite(values), values, np.nan)


def area(gains: Values, origin: Values) -> float:
    """The area between a front and `origin`, by steps from the largest first gain down."""
    inside = gains[(gains > origin).all(axis=1)]
    if not len(inside):
        return 0.0
    inside = inside[np.argsort(-inside[:, 0])]
    tops = np.maximum.accumulate(inside[:, 1])
    widths = inside[:, 0] - np.append(inside[1:, 0], origin[0])
    return float((widths * (tops - origin[1])).sum())
