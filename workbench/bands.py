"""How sure a front is: bands, chances of points to be on it, and of one group to beat another.

All of it is read off joint draws of the points (`workbench.point_draws`): in each draw the front
is found anew. A band is pointwise: at each x it holds the true front in 95 of 100 studies.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from workbench.attainment import area, attained, bounds, finite_or_nan, on_front
from workbench.errors import ComparisonError
from workbench.pareto import Direction, Values, front_mask
from workbench.point_draws import Drawn

if TYPE_CHECKING:
    import pandas as pd

GRID = 80  # places along x at which a band is given, besides the measured ones
WIDE_RANGE = 30.0  # a range of x from which the places are spread logarithmically
Rows = NDArray[np.intp]
Draw = Callable[[Rows], Drawn]


@dataclass(frozen=True, kw_only=True)
class Band:
    """What a group attains along x. NaN: no measured point reaches so far, or not surely enough.

    `y` is that of the measured values; `low` and `high` bound the truth at each x, one x at a
    time, in 95 of 100 studies. `exact` counts points that have no interval and were taken as
    exact: with any, the band is too narrow.
    """

    x: Values
    y: Values
    low: Values
    high: Values
    basis: str  # what the bounds cover: `within-run`, `over 3 repeats`
    exact: int


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """One number about a front with its 95 % interval; None with the reason where there is none."""

    value: float | None
    low: float | None = None
    high: float | None = None
    reason: str | None = None


@dataclass(frozen=True, kw_only=True)
class _Cloud:
    """The points of one group that may be on its front. More is better in every gain."""

    rows: Rows  # [candidates] in the table
    gains: Values  # [candidates, 2] measured
    draws: Values  # [draws, candidates, 2]
    known: NDArray[np.bool_]  # [candidates] whether its uncertainty is known
    basis: str


@dataclass(frozen=True, kw_only=True)
class Competitors:
    """The points of one table that compete, as the fronts of their groups see them."""

    values: Values  # [points, 2]
    bounds: Values  # [points, 2, 2] low and high of each; NaN where it has no interval
    directions: tuple[Direction, Direction]
    groups: Mapping[str, Rows]
    ids: Sequence[str]  # [points] trial ids
    repeats: NDArray[np.int64]  # [points]


class Bands:
    """What draws of the points say of the fronts of `Competitors`; each group when first asked."""

    def __init__(self, points: Competitors, draw: Draw) -> None:
        self._points = points
        self._draw = draw
        self._signs = np.array([1.0 if way == "max" else -1.0 for way in points.directions])
        self._clouds: dict[str, _Cloud] = {}

    @property
    def probability(self) -> Values:
        """[points] the chance to be on the front of its group; NaN where it cannot be told.

        NaN: the point does not compete, or no interval of it is known.
        """
        found = np.full(len(self._points.values), np.nan)
        for group, rows in self._points.groups.items():
            cloud = self._cloud(group)
            untold = np.isnan(self._points.bounds[rows]).all(axis=(1, 2))
            found[rows] = np.where(untold, np.nan, 0.0)
            share = on_front(cloud.draws).mean(axis=0)
            found[cloud.rows] = np.where(cloud.known, share, np.nan)
        return found

    def band(self, group: str) -> Band:
        """The attained y along x with its bounds, from the least x of the group to its largest."""
        cloud = self._cloud(group)
        grid = self._grid(self._points.groups[group])
        low, high = bounds(attained(cloud.draws, grid * self._signs[0]))
        y = attained(cloud.gains[None], grid * self._signs[0])[0]
        low, y, high = (finite_or_nan(part) * self._signs[1] for part in (low, y, high))
        if self._signs[1] < 0:
            low, high = high, low
        exact = int((~cloud.known).sum())
        return Band(x=grid, y=y, low=low, high=high, basis=cloud.basis, exact=exact)

    def at(self, x: float, group: str) -> Estimate:
        """The y that the group attains at `x`, with its interval."""
        cloud = self._cloud(group)
        place = np.array([x * self._signs[0]])
        y = float(attained(cloud.gains[None], place)[0, 0])
        if not np.isfinite(y):
            return Estimate(value=None, reason=f"no measured point reaches {x:g}")
        draws = attained(cloud.draws, place)
        return _estimate(y, draws[:, 0], sign=float(self._signs[1]))

    def ranked_at(self, x: float, group: str) -> pd.DataFrame:
        """The points that may serve `x`, best first: trial_id, x, y, reaches, best.

        `reaches` is the chance that the point reaches x, `best` that it gives the best y of all
        that do.
        """
        import pandas as pd

        cloud = self._cloud(group)
        reaches = cloud.draws[..., 0] >= x * self._signs[0]
        y = np.where(reaches, cloud.draws[..., 1], -np.inf)
        best = (y == y.max(axis=1, keepdims=True)) & reaches
        served = best.any(axis=1)
        shares = (best / np.maximum(best.sum(axis=1, keepdims=True), 1))[served].sum(axis=0)
        values = self._points.values[cloud.rows]
        table = pd.DataFrame(
            {
                "trial_id": [self._points.ids[row] for row in cloud.rows],
                "x": values[:, 0],
                "y": values[:, 1],
                "reaches": reaches.mean(axis=0),
                "best": shares / len(best),
            }
        )
        return table[table["reaches"] > 0].sort_values("best", ascending=False, kind="stable")

    def beats(self, a: str, b: str, xs: Sequence[float] | None = None) -> pd.DataFrame:
        """Group a against group b along x: x, probability, ratio, low, high.

        `probability` that a attains a better y than b, ties counting half; `ratio` of y, a over
        b, with its interval. Only where both were measured: `xs` outside the common range are
        left out. ComparisonError where the two have no x in common.
        """
        import pandas as pd

        places = self._common(a, b, xs)
        clouds = (self._cloud(a), self._cloud(b))
        measured, drawn = ([], [])
        for cloud in clouds:
            measured.append(attained(cloud.gains[None], places * self._signs[0])[0])
            drawn.append(attained(cloud.draws, places * self._signs[0]))
        ours, theirs = drawn
        better = (ours > theirs).mean(axis=0) + (ours == theirs).mean(axis=0) / 2
        with np.errstate(divide="ignore", invalid="ignore"):
            ratios = ours / theirs  # of gains: the signs cancel
            ratio = measured[0] / measured[1]
        both = np.isfinite(ratios)
        low, high = bounds(np.where(both, ratios, np.nan))
        return pd.DataFrame(
            {
                "x": places,
                "probability": better,
                "ratio": finite_or_nan(ratio),
                "low": low,
                "high": high,
            }
        )

    def hypervolume(self, reference: tuple[float, float], group: str) -> Estimate:
        """The area that the group's front dominates, bounded by a declared reference point.

        Points that do not beat the reference on both axes add nothing.
        """
        cloud = self._cloud(group)
        origin = np.array(reference) * self._signs
        value = area(cloud.gains, origin)
        return _estimate(value, np.array([area(one, origin) for one in cloud.draws]), sign=1.0)

    def _cloud(self, group: str) -> _Cloud:
        if group not in self._points.groups:
            raise ComparisonError(
                f"{group!r} is no group of this front.",
                remedy=f"Choose one of {', '.join(map(repr, self._points.groups))}.",
            )
        if group not in self._clouds:
            rows = self._points.groups[group]
            rows = rows[self._may_be_on_front(rows)]
            drawn = self._draw(rows)
            self._clouds[group] = _Cloud(
                rows=rows,
                gains=self._points.values[rows] * self._signs,
                draws=drawn.values * self._signs,
                known=drawn.known,
                basis=_basis(self._points.repeats[rows]),
            )
        return self._clouds[group]

    def _may_be_on_front(self, rows: Rows) -> NDArray[np.bool_]:
        """False for points that are beaten even with both intervals doubled in its favour."""
        values = self._points.values[rows]
        bounds = np.where(
            np.isnan(self._points.bounds[rows]), values[..., None], self._points.bounds[rows]
        )
        reach = 2 * np.abs(bounds - values[..., None]).max(axis=2)
        best, worst = values * self._signs + reach, values * self._signs - reach
        order = np.argsort(worst[:, 0])
        tops = np.maximum.accumulate(worst[order, 1][::-1])[::-1]  # of all whose x is larger
        place = np.searchsorted(worst[order, 0], best[:, 0], side="right")
        rival = np.append(tops, -np.inf)[place]
        return rival < best[:, 1]

    def _grid(self, rows: Rows) -> Values:
        """Places along x: evenly spread over what was measured, and the measured ones."""
        x = self._points.values[rows, 0]
        low, high = float(x.min()), float(x.max())
        wide = low > 0 and high / low > WIDE_RANGE
        even = np.geomspace(low, high, GRID) if wide else np.linspace(low, high, GRID)
        values = self._points.values[rows]
        measured = values[front_mask(values, self._points.directions), 0]
        return np.unique(np.clip(np.append(even, measured), low, high))

    def _common(self, a: str, b: str, xs: Sequence[float] | None) -> Values:
        for group in (a, b):
            self._cloud(group)
        x = [self._points.values[self._points.groups[group], 0] for group in (a, b)]
        low, high = max(float(one.min()) for one in x), min(float(one.max()) for one in x)
        if low > high:
            raise ComparisonError(
                f"{a!r} and {b!r} were measured at no common x.",
                where="the ratio of two fronts",
                remedy="Sweep both over the same loads; fronts are never drawn beyond their ends.",
            )
        if xs is None:
            return np.linspace(low, high, GRID)
        asked = np.array(xs, dtype=float)
        return asked[(asked >= low) & (asked <= high)]


def _estimate(value: float, draws: Values, *, sign: float) -> Estimate:
    low, high = (float(part[0]) * sign for part in bounds(draws[:, None]))
    low, high = min(low, high), max(low, high)
    return Estimate(
        value=value * sign,
        low=low if np.isfinite(low) else None,
        high=high if np.isfinite(high) else None,
    )


def _basis(repeats: NDArray[np.int64]) -> str:
    from workbench.repeats import basis_words

    least, most = int(repeats.min()), int(repeats.max())
    return basis_words(most) if least == most else f"over {least} to {most} repeats"
