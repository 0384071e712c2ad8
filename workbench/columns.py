"""A column of a table in words, each value asked once: tables have few values and many rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from workbench.figures_text import value_text

if TYPE_CHECKING:
    import pandas as pd


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
