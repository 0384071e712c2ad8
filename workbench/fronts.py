"""The Pareto front of stored points: who may compete, with whom, and who is left.

Only valid points with finite values and n > 0 compete. Points of different models, numerics
or workloads never share a front: each such kind is a group of its own, inside those asked for.
"""

from __future__ import annotations

import difflib
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from workbench.errors import ComparisonError
from workbench.pareto import Axis, Mask, Values, front_mask, staircase

if TYPE_CHECKING:
    import pandas as pd

NUMERICS = ("engine.model", "engine.dtype", "engine.cache_format", "engine.accelerator")
LOAD_FIELDS = frozenset({"load", "batch_size", "rate", "time_scale", "path", "seed"})
"""Workload fields that say how hard the engine is pressed, or where a file lies."""


@dataclass(frozen=True, kw_only=True)
class Front:
    """What nothing beats, one front a group. Trial ids are in the order of the points."""

    x: Axis
    y: Axis
    members: tuple[str, ...]  # trial ids on the front of their group
    excluded: dict[str, str]  # trial id -> why it does not compete
    groups: dict[str, tuple[str, ...]]  # group -> the trial ids on its front
    on_front: Mask  # [points] aligned with the rows of the table
    vertices: dict[str, Values]  # group -> [members, 2] values of x and y

    def staircase(self, group: str | None = None) -> tuple[Values, Values]:
        """x and y of the steps of one group's front; the only group when None."""
        if group is None and len(self.vertices) <= 1:
            group = next(iter(self.vertices), None)
        if group is None and not self.vertices:
            return np.empty(0), np.empty(0)
        if group not in self.vertices:
            raise ComparisonError(
                f"{group!r} is no group of this front.",
                remedy=f"Choose one of {', '.join(map(repr, self.vertices))}.",
            )
        return staircase(self.vertices[group], self.x.direction)


def pareto(points: pd.DataFrame, x: Axis, y: Axis, by: str | Sequence[str] | None = None) -> Front:
    """The fronts of `points` (from `Run.points()`), one for each value of the columns `by`.

    ComparisonError for a metric or column that the points do not have; points that may not be
    compared with each other get groups of their own.
    """
    asked = [by] if isinstance(by, str) else list(by or ())
    points = _with_columns(points, [x.metric, y.metric, *asked])
    why_not = exclusions(points, [x.metric, y.metric])
    eligible = np.array([reason is None for reason in why_not], dtype=bool)
    names = _group_names(points, eligible, asked)
    ids = [str(name) for name in points["trial_id"]]
    values = points[[x.metric, y.metric]].to_numpy(dtype=float, na_value=np.nan)
    on_front = np.zeros(len(points), dtype=bool)
    groups: dict[str, tuple[str, ...]] = {}
    vertices: dict[str, Values] = {}
    for group in sorted({names[row] for row in np.flatnonzero(eligible)}):
        rows = np.array([row for row in np.flatnonzero(eligible) if names[row] == group])
        best = rows[front_mask(values[rows], (x.direction, y.direction))]
        on_front[best] = True
        groups[group] = tuple(ids[row] for row in best)
        vertices[group] = values[best]
    return Front(
        x=x,
        y=y,
        members=tuple(ids[row] for row in np.flatnonzero(on_front)),
        excluded={ids[row]: reason for row, reason in enumerate(why_not) if reason is not None},
        groups=groups,
        on_front=on_front,
        vertices=vertices,
    )


def exclusions(points: pd.DataFrame, metrics: Sequence[str]) -> list[str | None]:
    """For each point why it may not compete on `metrics`; None where it may."""
    columns = {
        name: (points[name], points.get(f"{name}.n"), points.get(f"{name}.reason"))
        for name in metrics
    }
    found: list[str | None] = []
    for row in range(len(points)):
        reason = None if points["valid"].iat[row] else _invalid(points, row)
        for name, (value, n, why) in columns.items():
            if reason is None and not _is_number(value.iat[row]):
                told = why.iat[row] if why is not None else None
                reason = f"{name} is missing: {told if isinstance(told, str) else 'not measured'}"
            elif reason is None and n is not None and not n.iat[row] > 0:
                reason = f"{name} rests on no sample (n=0)"
        found.append(reason)
    return found


def _invalid(points: pd.DataFrame, row: int) -> str:
    reason = points["reason"].iat[row]
    return f"{points['state'].iat[row]}: {reason if isinstance(reason, str) else 'no reason kept'}"


def _is_number(value: object) -> bool:
    try:
        return bool(np.isfinite(float(str(value))))
    except ValueError:
        return False


def _group_names(points: pd.DataFrame, eligible: Mask, asked: list[str]) -> list[str]:
    """The group of each row: the columns asked for, then what forbids comparing."""
    competing = points[eligible]
    apart = [
        name
        for name in points.columns
        if _forbids(name) and name not in asked and _distinct(competing[name]) > 1
    ]
    columns = [(name, points[name]) for name in (*asked, *apart)]
    return [
        ", ".join(f"{name.partition('.')[2] or name}={column.iat[row]}" for name, column in columns)
        or "all"
        for row in range(len(points))
    ]


def _forbids(column: str) -> bool:
    """True for a column whose values must agree on one front."""
    if column in NUMERICS:
        return True
    return column.startswith("workload.") and column.partition(".")[2] not in LOAD_FIELDS


def _distinct(column: pd.Series) -> int:
    """How many different values there are; lists and missing values count as themselves."""
    cells: set[Hashable] = {repr(value) for value in column}
    return len(cells)


def _with_columns(points: pd.DataFrame, names: Sequence[str]) -> pd.DataFrame:
    """The points with every column of `names`; ComparisonError where sound points lack one.

    A run in which nothing was measured has no metric columns: they are missing, not wrong.
    """
    absent = [name for name in names if name not in points.columns]
    if absent and points["valid"].any():
        near = difflib.get_close_matches(absent[0], [str(name) for name in points.columns], n=1)
        raise ComparisonError(
            f"the points have no column {absent[0]!r}.",
            remedy=f"Did you mean {near[0]!r}?" if near else "`workbench show` lists them.",
        )
    return points.assign(**dict.fromkeys(absent, np.nan))
