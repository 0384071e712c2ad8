"""Which points may be compared with each other: the same model, numerics and workload."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from workbench.columns import worded
from workbench.figures_text import MISSING
from workbench.pareto import Mask

if TYPE_CHECKING:
    import pandas as pd

MODEL = "model"
"""The key of a checkpoint: its content where that is known, not the path it was read from."""
FORMAT = "engine.cache_format"
NUMERICS = ("engine.dtype", FORMAT, "engine.accelerator")
UNTOLD = "not told"  # by the engine that was measured, or by the file of another tool
LOAD_FIELDS = frozenset(
    {
        *("load", "batch_size", "concurrency", "max_concurrency", "token_budget"),
        *("rate", "shape", "rate_from", "ramp_s", "time_scale", "path", "seed"),
    }
)
"""Workload fields that say how hard the engine is pressed, or where a file lies."""


def comparison_groups(points: pd.DataFrame) -> list[str]:
    """The name of the group of each row: rows of two groups may not be compared."""
    return group_names(points, np.ones(len(points), dtype=bool), [])


def group_names(points: pd.DataFrame, eligible: Mask, asked: list[str]) -> list[str]:
    """The group of each row: the columns asked for, then what forbids comparing.

    A name holds no more columns than tell the groups apart: two files of one workload's name
    are told by their content, two workloads by their names alone. A format of the cache that is
    not told is taken to be the one that all others have which agree in everything else.
    """
    import pandas as pd

    columns = {name: worded(points[name], _text) for name in asked}
    columns |= {name: texts for name, texts in _apart(points).items() if name not in asked}
    told = np.zeros(len(points), dtype=np.int64)  # [points] the number of each row's group
    kept: list[str] = []
    for name, texts in columns.items():
        codes, values = pd.factorize(texts)
        if name not in asked and len(values) < 2:
            continue
        finer, _ = pd.factorize(told * len(values) + codes)
        if name in asked or _count(finer[eligible]) > _count(told[eligible]):
            told, kept = finer, [*kept, name]
    _, firsts, places = np.unique(told, return_index=True, return_inverse=True)
    names = [
        ", ".join(f"{name.partition('.')[2] or name}={columns[name].iat[row]}" for name in kept)
        or "all"
        for row in firsts
    ]
    return [names[place] for place in places]


def _count(codes: NDArray[np.int64]) -> int:
    return len(np.unique(codes))


def _apart(points: pd.DataFrame) -> dict[str, pd.Series]:
    """What must agree on one front, as texts by column; the best known name comes first."""
    names = [str(name) for name in points.columns]
    workload = [name for name in names if _forbids(name)]
    workload.sort(key=lambda name: (name != "workload.name", name.endswith("_hash")))
    columns = [name for name in (*NUMERICS, *workload) if name in names]
    found = {MODEL: _models(points), **{name: worded(points[name], _text) for name in columns}}
    for name in {*NUMERICS} & {*columns}:
        found[name] = found[name].replace(MISSING, UNTOLD)
    if FORMAT in found:
        others = [texts for name, texts in found.items() if name != FORMAT]
        found[FORMAT] = _with_likely(found[FORMAT], others)
    return found


def _with_likely(formats: pd.Series, others: Sequence[pd.Series]) -> pd.Series:
    """`formats`; one that is not told is that of rows with the same `others`, if they have one."""
    if UNTOLD not in (told := set(formats)) or len(told) == 1:
        return formats
    keys = list(zip(*others, strict=True))
    known: dict[tuple[str, ...], set[str]] = {}
    for key, text in zip(keys, formats, strict=True):
        known.setdefault(key, set()).update({text} - {UNTOLD})
    likely = [next(iter(known[key])) if len(known[key]) == 1 else UNTOLD for key in keys]
    return formats.where(formats != UNTOLD, likely)


def _models(points: pd.DataFrame) -> pd.Series:
    """Name of each row's model; two contents of one name are told by their fingerprints."""
    import pandas as pd

    paths = worded(points.get("engine.model", pd.Series("", index=points.index)), _text)
    contents = worded(points.get("checkpoint", pd.Series(None, index=points.index)), _text)
    pairs = list(zip(paths, contents, strict=True))
    named: dict[str, str] = {}  # content -> the first name it went by
    for path, content in dict.fromkeys(pairs):
        named.setdefault(content, Path(path).name)
    taken = Counter(named.values())
    told = {
        (path, content): path
        if content == MISSING
        else named[content] + (f" ({content[:8]})" if taken[named[content]] > 1 else "")
        for path, content in dict.fromkeys(pairs)
    }
    return pd.Series([told[pair] for pair in pairs], index=points.index, dtype=object)


def _text(value: object) -> str:
    """A cell as a name shows it; missing values and lists count as themselves."""
    return MISSING if value is None or value != value else str(value)


def _forbids(column: str) -> bool:
    """True for a workload column whose values must agree on one front."""
    return column.startswith("workload.") and column.partition(".")[2] not in LOAD_FIELDS
