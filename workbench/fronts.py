"""The Pareto front of stored points: who may compete, with whom, and who is left.

Only valid points with finite values and n > 0 compete. Points of different models, numerics
or workloads never share a front: each such kind is a group of its own, inside those asked for.

    front = wb.pareto(run.points(), wb.DEFAULT_X, wb.DEFAULT_Y, by="axis.draft_length", runs=[run])
    front.probability                  # [points] chance to be on the front of its group, or NaN
    front.band("draft_length=5")       # Band: x, y, low, high, basis, exact
    front.at(50.0, "draft_length=5")   # Estimate: value, low, high, reason
    front.ranked_at(50.0, group)       # DataFrame: trial_id, x, y, reaches, best
    front.beats(a, b)                  # DataFrame: x, probability, ratio, low, high
    front.hypervolume((0.0, 0.0))      # Estimate, relative to the reference point that is given

A group may be left out where the front has one. `runs` are those that the points are of: with
them x and y are drawn together from repeats or requests, without them each from its interval.
Draws are made when first asked for: some 10 ms a group of repeats; single repeats have their
requests read, once, for the points that may be on the front.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from kernels.near_names import nearest
from workbench.bands import Band, Bands, Competitors, Draw, Estimate, Rows
from workbench.catalogue import METRICS
from workbench.errors import ComparisonError
from workbench.grouping import comparison_groups, group_names
from workbench.pareto import Axis, Mask, Values, front_mask, staircase

__all__ = ["Front", "comparison_groups", "exclusions", "pareto"]

if TYPE_CHECKING:
    import pandas as pd

    from workbench.point_draws import Drawn
    from workbench.stored_run import Run


@dataclass(frozen=True, kw_only=True)
class Front:
    """What nothing beats, one front a group. Trial ids are in the order of the points."""

    x: Axis
    y: Axis
    members: tuple[str, ...]  # trial ids on the front of their group
    groups: dict[str, tuple[str, ...]]  # group -> the trial ids on its front
    on_front: Mask  # [points] aligned with the rows of the table, as are the next two
    excluded: tuple[str | None, ...]  # why each point does not compete; None: it does
    group_of: tuple[str | None, ...]  # the group in which each point competes
    vertices: dict[str, Values]  # group -> [members, 2] values of x and y
    competitors: Competitors = field(repr=False)
    draw: Draw = field(repr=False)  # joint draws of rows of the table

    def staircase(self, group: str | None = None) -> tuple[Values, Values]:
        """x and y of the steps of one group's front; the only group when None."""
        if group is None and not self.vertices:
            return np.empty(0), np.empty(0)
        return staircase(self.vertices[self._named(group)], self.x.direction)

    @cached_property
    def probability(self) -> Values:
        """[points] `Bands.probability`."""
        return self._bands.probability

    def band(self, group: str | None = None) -> Band:
        """`Bands.band` of a group."""
        return self._bands.band(self._named(group))

    def at(self, x: float, group: str | None = None) -> Estimate:
        """`Bands.at` of a group."""
        return self._bands.at(x, self._named(group))

    def ranked_at(self, x: float, group: str | None = None) -> pd.DataFrame:
        """`Bands.ranked_at` of a group."""
        return self._bands.ranked_at(x, self._named(group))

    def beats(self, a: str, b: str, xs: Sequence[float] | None = None) -> pd.DataFrame:
        """`Bands.beats`: group a against group b."""
        return self._bands.beats(self._named(a), self._named(b), xs)

    def hypervolume(self, reference: tuple[float, float], group: str | None = None) -> Estimate:
        """`Bands.hypervolume` of a group."""
        return self._bands.hypervolume(reference, self._named(group))

    @cached_property
    def _bands(self) -> Bands:
        return Bands(self.competitors, self.draw)

    def _named(self, group: str | None) -> str:
        """The group; the only one for None. ComparisonError where there is no such group."""
        if group is None and len(self.vertices) == 1:
            return next(iter(self.vertices))
        if group not in self.vertices:
            raise ComparisonError(
                f"{group!r} is no group of this front.",
                remedy=f"Choose one of {', '.join(map(repr, self.vertices))}."
                if self.vertices
                else "No valid point was measured, so there is no front.",
            )
        return group


def pareto(
    points: pd.DataFrame,
    x: Axis,
    y: Axis,
    by: str | Sequence[str] | None = None,
    *,
    runs: Iterable[Run] = (),
) -> Front:
    """The fronts of `points` (from `Run.points()`), one for each value of the columns `by`.

    `runs` hold what is behind the points, for bands and chances. ComparisonError for a metric or
    column that the points do not have; what may not be compared gets groups of its own.
    """
    asked = [by] if isinstance(by, str) else list(by or ())
    _refuse_facts(points, [x.metric, y.metric])
    points = _with_columns(points, [x.metric, y.metric, *asked])
    why_not = exclusions(points, [x.metric, y.metric])
    eligible = np.array([reason is None for reason in why_not], dtype=bool)
    names = group_names(points, eligible, asked)
    competitors = _competitors(points, x, y, _rows_of(names, np.flatnonzero(eligible)))
    ids, values = competitors.ids, competitors.values
    best = {
        group: rows[front_mask(values[rows], competitors.directions)]
        for group, rows in competitors.groups.items()
    }
    on_front = np.zeros(len(points), dtype=bool)
    for rows in best.values():
        on_front[rows] = True
    return Front(
        x=x,
        y=y,
        members=tuple(ids[row] for row in np.flatnonzero(on_front)),
        groups={group: tuple(ids[row] for row in rows) for group, rows in best.items()},
        on_front=on_front,
        excluded=tuple(why_not),
        group_of=tuple(n if fit else None for n, fit in zip(names, eligible, strict=True)),
        vertices={group: values[rows] for group, rows in best.items()},
        competitors=competitors,
        draw=_draws(points, (x.metric, y.metric), list(runs)),
    )


def _rows_of(names: Sequence[str], competing: Rows) -> dict[str, Rows]:
    """Group -> those of its rows that compete, groups in the order of their names."""
    groups = sorted({names[row] for row in competing})
    return {g: np.array([row for row in competing if names[row] == g]) for g in groups}


def _competitors(points: pd.DataFrame, x: Axis, y: Axis, groups: dict[str, Rows]) -> Competitors:
    metrics = (x.metric, y.metric)
    return Competitors(
        values=points[list(metrics)].to_numpy(dtype=float, na_value=np.nan),
        bounds=_bounds(points, metrics),
        directions=(x.direction, y.direction),
        groups=groups,
        ids=[str(name) for name in points["trial_id"]],
        repeats=_repeats(points),
    )


def _draws(points: pd.DataFrame, metrics: tuple[str, str], runs: list[Run]) -> Draw:
    def draw(rows: Rows) -> Drawn:
        from workbench.point_draws import PointDraws

        return PointDraws(points, runs).of(rows, metrics)

    return draw


def _bounds(points: pd.DataFrame, metrics: tuple[str, str]) -> Values:
    """[points, 2, 2] low and high of both axes; NaN where there is no interval."""
    cells = [
        points[column].to_numpy(dtype=float, na_value=np.nan)
        if (column := f"{name}.{part}") in points.columns
        else np.full(len(points), np.nan)
        for name in metrics
        for part in ("low", "high")
    ]
    return np.stack(cells, axis=1).reshape(len(points), 2, 2)


def _repeats(points: pd.DataFrame) -> NDArray[np.int64]:
    if "repeats" not in points.columns:
        return np.ones(len(points), dtype=np.int64)
    return points["repeats"].to_numpy(dtype=np.int64)


def exclusions(points: pd.DataFrame, metrics: Sequence[str]) -> list[str | None]:
    """For each point why it may not compete on `metrics`; None where it may."""
    found = np.full(len(points), None, dtype=object)
    for name in reversed(metrics):  # what is told first overwrites what comes after it
        n, why = points.get(f"{name}.n"), points.get(f"{name}.reason")
        if n is not None:
            found[n.to_numpy(dtype=float, na_value=np.nan) <= 0] = (
                f"{name} rests on no sample (n=0)"
            )
        value = points[name].to_numpy(dtype=float, na_value=np.nan)
        reasons = why.tolist() if why is not None else [None] * len(points)
        for row in np.flatnonzero(~np.isfinite(value)):
            told = reasons[row]
            found[row] = f"{name} is missing: {told if isinstance(told, str) else 'not measured'}"
    invalid = ~points["valid"].to_numpy(dtype=bool)
    if invalid.any():
        cells = zip(points.loc[invalid, "state"], points.loc[invalid, "reason"], strict=True)
        found[invalid] = [_invalid(state, reason) for state, reason in cells]
    return found.tolist()


def _invalid(state: object, reason: object) -> str:
    return f"{state}: {reason if isinstance(reason, str) else 'no reason kept'}"


def _refuse_facts(points: pd.DataFrame, names: Sequence[str]) -> None:
    """Only a metric is better or worse: its column has a count of samples beside it."""
    for name in names:
        if name in points.columns and f"{name}.n" not in points.columns:
            raise ComparisonError(
                f"{name!r} is no metric, so no value of it is better than another.",
                where="the axes of the front",
                remedy="Use a metric, such as tok_s_user or output_tok_s_device.",
            )


def _with_columns(points: pd.DataFrame, names: Sequence[str]) -> pd.DataFrame:
    """The points with every column of `names`; ComparisonError where sound points lack one.

    A run in which nothing was measured has no metric columns: they are missing, not wrong. So is
    a known metric that another tool does not report.
    """
    absent = [name for name in names if name not in points.columns]
    if not METRICS.keys() >= set(absent) and points["valid"].any():
        metrics = [name for name in map(str, points.columns) if f"{name}.n" in points]
        raise ComparisonError(
            f"the points have no column {absent[0]!r}.",
            remedy=nearest(absent[0], metrics, otherwise="`workbench show` lists them."),
        )
    return points.assign(**dict.fromkeys(absent, np.nan))
