"""What one knob does: ratios between its levels over points that are alike in all other axes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pandas as pd

from workbench.figures_text import in_order, value_text

COLUMNS = ("level", "by", "ratio", "low", "high", "pairs", "base")


def levels(points: pd.DataFrame, column: str) -> list[str]:
    """The different values of a column in words, numbers in their order."""
    return in_order(points[column].map(value_text).unique()) if column in points else []


def varied(points: pd.DataFrame) -> list[str]:
    """The axis columns that hold more than one value."""
    names = [str(name) for name in points if str(name).startswith("axis.")]
    return [name for name in names if len(levels(points, name)) > 1]


def usable(points: pd.DataFrame, metric: str) -> pd.DataFrame:
    """The valid points that have the metric."""
    if metric not in points:
        return points.iloc[:0]
    return points[points["valid"].astype(bool) & np.isfinite(points[metric].astype(float))]


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
    others = [name for name in varied(points) if name != axis]
    found = [
        {"by": value, **ratio}
        for value, part in _parts(rows, by)
        for ratio in _ratios(part, axis, metric, others, levels(points, axis))
    ]
    return pd.DataFrame(found, columns=list(COLUMNS))


def _parts(rows: pd.DataFrame, by: str | None) -> Iterator[tuple[str, pd.DataFrame]]:
    if by is None:
        yield "", rows
        return
    for value in levels(rows, by):
        yield value, rows[rows[by].map(value_text) == value]


def _ratios(
    rows: pd.DataFrame, axis: str, metric: str, others: Sequence[str], names: Sequence[str]
) -> Iterator[dict[str, object]]:
    if not names:
        return
    cells = {name: _cells(rows[rows[axis].map(value_text) == name], others) for name in names}
    base = cells[names[0]]
    for name in names[1:]:
        keys = [key for key in cells[name] if key in base]
        pairs = [(rows.loc[cells[name][key]], rows.loc[base[key]]) for key in keys]
        if pairs:
            yield {"level": name, "base": names[0], **_mean_ratio(pairs, metric)}


def _cells(rows: pd.DataFrame, others: Sequence[str]) -> dict[tuple[str, ...], object]:
    """Values of the other axes -> the row's index."""
    texts = [rows[name].map(value_text).tolist() for name in others]
    keys = list(zip(*texts, strict=True)) if others else [()] * len(rows)
    return dict(zip(keys, rows.index, strict=True))


def _mean_ratio(pairs: Sequence[tuple[pd.Series, pd.Series]], metric: str) -> dict[str, object]:
    logs = [math.log(above[metric] / below[metric]) for above, below in pairs]
    up = [_reach(above, "high", metric) ** 2 + _reach(below, "low", metric) ** 2
          for above, below in pairs]  # fmt: skip
    down = [_reach(above, "low", metric) ** 2 + _reach(below, "high", metric) ** 2
            for above, below in pairs]  # fmt: skip
    mean, n = sum(logs) / len(logs), len(logs)
    return {
        "ratio": math.exp(mean),
        "low": math.exp(mean - math.sqrt(sum(down)) / n),
        "high": math.exp(mean + math.sqrt(sum(up)) / n),
        "pairs": n,
    }


def _reach(row: pd.Series, end: str, metric: str) -> float:
    """How far an end of the interval is from the value, as a logarithm; NaN without one."""
    found = row.get(f"{metric}.{end}")
    if found is None or not np.isfinite(found) or found <= 0:
        return math.nan
    return math.log(found / row[metric])


def best_rows(
    points: pd.DataFrame, columns: Sequence[str], metric: str, direction: str
) -> dict[tuple[str, ...], pd.Series]:
    """Values of `columns` in words -> the best valid point there; cells without one are absent."""
    rows = usable(points, metric)
    if rows.empty:
        return {}
    keys = pd.Series(
        list(zip(*(rows[name].map(value_text) for name in columns), strict=True)),
        index=rows.index,
        dtype=object,
    )
    ordered = rows.assign(_key=keys).sort_values(
        metric, ascending=direction == "min", kind="stable"
    )
    first = ordered.drop_duplicates("_key")
    return {row["_key"]: row for _, row in first.iterrows()}


def kept(points: pd.DataFrame, wanted: Mapping[str, str]) -> pd.DataFrame:
    """The points whose columns have the wanted value in words."""
    for name, value in wanted.items():
        points = points[points[name].map(value_text) == value]
    return points
