"""The Pareto front of stored points: who may compete, with whom, and who is left.

Only valid points with finite values and n > 0 compete. Points of different models, numerics
or workloads never share a front: each such kind is a group of its own, inside those asked for.
"""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from workbench.errors import ComparisonError
from workbench.figures_text import MISSING
from workbench.pareto import Axis, Mask, Values, front_mask, staircase

if TYPE_CHECKING:
    import pandas as pd

MODEL = "model"
"""The key of a checkpoint: its content where that is known, not the path it was read from."""
NUMERICS = ("engine.dtype", "engine.cache_format", "engine.accelerator")
LOAD_FIELDS = frozenset({"load", "batch_size", "rate", "time_scale", "path", "seed"})
"""Workload fields that say how hard the engine is pressed, or where a file lies."""


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
    _refuse_facts(points, [x.metric, y.metric])
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
        groups=groups,
        on_front=on_front,
        excluded=tuple(why_not),
        group_of=tuple(n if fit else None for n, fit in zip(names, eligible, strict=True)),
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


def comparison_groups(points: pd.DataFrame) -> list[str]:
    """The name of the group of each row: rows of two groups may not be compared."""
    return _group_names(points, np.ones(len(points), dtype=bool), [])


def _group_names(points: pd.DataFrame, eligible: Mask, asked: list[str]) -> list[str]:
    """The group of each row: the columns asked for, then what forbids comparing.

    A name holds no more columns than tell the groups apart: two files of one workload's name
    are told by their content, two workloads by their names alone.
    """
    columns = {name: points[name].map(_text) for name in asked}
    columns |= {name: texts for name, texts in _apart(points).items() if name not in asked}
    told = [""] * len(points)
    kept: list[str] = []
    for name, texts in columns.items():
        finer = [f"{before}|{text}" for before, text in zip(told, texts, strict=True)]
        if name in asked or len(_among(finer, eligible)) > len(_among(told, eligible)):
            told, kept = finer, [*kept, name]
    return [
        ", ".join(f"{name.partition('.')[2] or name}={columns[name].iat[row]}" for name in kept)
        or "all"
        for row in range(len(points))
    ]


def _among(names: list[str], eligible: Mask) -> set[str]:
    return {name for name, fit in zip(names, eligible, strict=True) if fit}


def _apart(points: pd.DataFrame) -> dict[str, pd.Series]:
    """What must agree on one front, as texts by column; the best known name comes first."""
    names = [str(name) for name in points.columns]
    workload = [name for name in names if _forbids(name)]
    workload.sort(key=lambda name: name != "workload.name")
    columns = [name for name in (*NUMERICS, *workload) if name in names]
    return {MODEL: _models(points), **{name: points[name].map(_text) for name in columns}}


def _models(points: pd.DataFrame) -> pd.Series:
    """Name of each row's model; two contents of one name are told by their fingerprints."""
    import pandas as pd

    paths = points.get("engine.model", pd.Series("", index=points.index)).map(_text)
    contents = points.get("checkpoint", pd.Series(None, index=points.index)).map(_text)
    named: dict[str, str] = {}  # content -> the first name it went by
    for path, content in zip(paths, contents, strict=True):
        named.setdefault(content, Path(path).name)
    taken = Counter(named.values())
    return pd.Series(
        [
            path
            if content == MISSING
            else named[content] + (f" ({content[:8]})" if taken[named[content]] > 1 else "")
            for path, content in zip(paths, contents, strict=True)
        ],
        index=points.index,
        dtype=object,
    )


def _text(value: object) -> str:
    """A cell as a name shows it; missing values and lists count as themselves."""
    return MISSING if value is None or value != value else str(value)


def _forbids(column: str) -> bool:
    """True for a workload column whose values must agree on one front."""
    return column.startswith("workload.") and column.partition(".")[2] not in LOAD_FIELDS


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
