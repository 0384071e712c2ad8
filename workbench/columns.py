"""Columns of a table of points: their order, and their cells in words.

Each value is asked once: tables have few values and many rows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from workbench.figures_text import value_text

if TYPE_CHECKING:
    import pandas as pd


def by_axes(points: pd.DataFrame) -> pd.DataFrame:
    """The rows in the order of their axis values: numbers by size, then words, then none.

    Rows that are alike in all axes stay in their order; the index goes with its row.
    """
    names = [str(name) for name in points.columns if str(name).startswith("axis.")]
    keys = [[_order(cell) for cell in points[name].tolist()] for name in names]
    places = sorted(range(len(points)), key=lambda row: [column[row] for column in keys])
    return points.iloc[places]


def _order(cell: object) -> tuple[int, float, str]:
    if cell is None or cell != cell:
        return 2, 0.0, ""
    return (0, float(cell), "") if isinstance(cell, int | float) else (1, 0.0, str(cell))


def words_of(column: pd.Series) -> pd.Series:
    """Each cell as an axis value in words."""
    return worded(column, value_text)


def worded(column: pd.Series, words: Callable[[object], str]) -> pd.Series:
    """`words` of each cell, with the index of the column."""
    import pandas as pd

    if column.dtype == object:
        told = _told(column.tolist(), words)
    else:  # all of one type, so that equal cells read alike
        codes, values = pd.factorize(column, use_na_sentinel=False)
        told = np.array([words(value) for value in values.tolist()], dtype=object)[codes]
    return pd.Series(told, index=column.index, name=column.name, dtype=object)


def _told(cells: list[object], words: Callable[[object], str]) -> list[str]:
    """Equal cells of unlike types, as 1 and True are, are asked apart; lists every time."""
    known: dict[tuple[type, object], str] = {}
    told = []
    for cell in cells:
        try:
            key = (type(cell), cell)
            text = known.get(key)
            if text is None:
                text = known[key] = words(cell)
        except TypeError:
            text = words(cell)
        told.append(text)
    return told
