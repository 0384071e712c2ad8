"""What one knob does: ratios between its levels over points that are alike in all other axes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pandas as pd

from workbench.columns import words_of
from workbench.figures_text import in_order

Ends = tuple[float, float, float]
"""A number with the ends of its interval, NaN where there is none."""
COLUMNS = ("level", "by", "ratio", "low", "high", "pairs", "base")


def levels(points: pd.DataFrame, column: str) -> list[str]:
    """The different values of a column in words, numbers in their order."""
    return in_order(words_of(points[column]).unique()) if column in points else []


def varied(points: pd.DataFrame) -> list[str]:
    """The axis columns that hold more than one value."""
    names = [str(name) for name in points if str(name).startswith("axis.")]
    return [name for name in names if len(levels(points, name)) > 1]


def usable(points: pd.DataFrame, metric: str) -> pd.DataFrame:
    """The valid points that have the metric."""
    if metric not in points:
        return points.iloc[:0]
    return points[points["valid"].astype(bool) & np.isfinite(points[metric].astype(float))]


def counted(points: pd.DataFrame, metric: str) -> tuple[float, float]:
    """Of a ratio metric over all valid points: the sum of its counts, and of its samples n."""
    found = usable(points, metric)
    if found.empty:
        return 0.0, 0.0
    samples = found[f"{metric}.n"].astype(float)
    return float((found[metric].astype(float) * samples).sum()), float(samples.sum())


def matched_ratios(
    points: pd.DataFrame, axis: str, metric: str, *, by: str | None = None
) -> pd.DataFrame:
    """COLUMNS, one row a level of `axis` beside the first (and a value of `by`).

    ratio: the geometric mean, over the `pairs` combinations of all other axes that have a valid
    point at both levels, of the metric at the level / at the first level. low and high: the
    points' own intervals carried through it as independent; NaN where one point has none.
    """
    rows = usable(points, metric)
    rows = rows[rows[metric].astype(float) > 0]
    names = levels(points, axis)
    others = [name for name in varied(points) if name != axis]
    cells: dict[str, dict[str, dict[tuple[str, ...], Ends]]] = {}
    texts = [words_of(rows[name]) for name in (axis, *others)]
    groups = words_of(rows[by]) if by is not None else [""] * len(rows)
    for group, ends, level, *key in zip(groups, _ends(rows, metric), *texts, strict=True):
        cells.setdefault(group, {}).setdefault(level, {})[tuple(key)] = ends
    found = [
        {"by": group, **ratio}
        for group in in_order(cells)
        for ratio in _ratios(cells[group], names)
    ]
    return pd.DataFrame(found, columns=list(COLUMNS))


def _ends(rows: pd.DataFrame, metric: str) -> Iterator[Ends]:
    parts = [
        rows[name].astype(float) if name in rows else [math.nan] * len(rows)
        for name in (metric, f"{metric}.low", f"{metric}.high")
    ]
    return zip(*parts, strict=True)


def _ratios(
    cells: Mapping[str, Mapping[tuple[str, ...], Ends]], names: Sequence[str]
) -> Iterator[dict[str, object]]:
    base = cells.get(names[0], {}) if names else {}
    for name in names[1:]:
        here = cells.get(name, {})
        pairs = [(ends, base[key]) for key, ends in here.items() if key in base]
        if pairs:
            yield {"level": name, "base": names[0], **_mean_ratio(pairs)}


def _mean_ratio(pairs: Sequence[tuple[Ends, Ends]]) -> dict[str, object]:
    mean = sum(math.log(above[0] / below[0]) for above, below in pairs) / len(pairs)
    up = sum(_reach(above, 2) ** 2 + _reach(below, 1) ** 2 for above, below in pairs)
    down = sum(_reach(above, 1) ** 2 + _reach(below, 2) ** 2 for above, below in pairs)
    return {
        "ratio": math.exp(mean),
        "low": math.exp(mean - math.sqrt(down) / len(pairs)),
        "high": math.exp(mean + math.sqrt(up) / len(pairs)),
        "pairs": len(pairs),
    }


def _reach(ends: Ends, end: int) -> float:
    """How far an end of the interval is from the value, as a logarithm; NaN without one."""
    return math.log(ends[end] / ends[0]) if ends[end] > 0 else math.nan


def neighbour(points: pd.DataFrame, trial_id: str) -> pd.Series | None:
    """A valid point that differs from that trial's in one axis alone, drafts first; None: none."""
    axes = varied(points)
    texts = pd.DataFrame({name: words_of(points[name]) for name in axes}, index=points.index)
    own = points.index[points["trial_id"] == trial_id]
    if not len(own) or not axes:
        return None
    differs = texts.ne(texts.loc[own[0]])
    close = points[differs.sum(axis=1).eq(1) & points["valid"].astype(bool)]
    for name in sorted(axes, key=lambda axis: axis != "axis.draft_length"):
        found = close[differs.loc[close.index, name]]
        if len(found):
            return found.iloc[0]
    return None


def best_rows(
    points: pd.DataFrame, columns: Sequence[str], metric: str, direction: str
) -> dict[tuple[str, ...], pd.Series]:
    """Values of `columns` in words -> the best valid point there; cells without one are absent."""
    rows = usable(points, metric)
    if rows.empty:
        return {}
    keys = pd.Series(
        list(zip(*(words_of(rows[name]) for name in columns), strict=True)),
        index=rows.index,
        dtype=object,
    )
    order = rows[metric].sort_values(ascending=direction == "min", kind="stable").index
    first = keys.loc[order].drop_duplicates()
    return {key: rows.loc[place] for place, key in first.items()}


def kept(points: pd.DataFrame, wanted: Mapping[str, str]) -> pd.DataFrame:
    """The points whose columns have the wanted value in words."""
    for name, value in wanted.items():
        points = points[words_of(points[name]) == value]
    return points
