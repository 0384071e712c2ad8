"""Repeats of one point as one point: the mean of its valid repeats, and how many there are.

The interval of a mean is not known from the intervals within its repeats, so it has none yet.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import pandas as pd

REPEATS = "repeats"
IDENTITY = ("axis.", "engine.", "workload.")


def pooled(trials: pd.DataFrame) -> pd.DataFrame:
    """One row a point, in the order of first repeats; `trials` has one row a trial.

    The column `repeats` counts the repeats that the numbers of a row rest on; its trial_id is
    that of the first of them. A point with a valid repeat is valid, and its reason names the
    repeats that were left out. A number that one of the valid repeats lacks is missing.
    """
    import pandas as pd
    from pandas.api.types import is_object_dtype

    table = trials.assign(**{REPEATS: 1})
    keys = _keys(trials)
    if keys.is_unique:
        return table
    metrics = [str(name) for name in trials.columns if f"{name}.n" in trials.columns]
    rows = [
        _pooled(group, metrics) if len(group) > 1 else group.iloc[0].to_dict()
        for _, group in table.groupby(keys, sort=False)
    ]
    found = pd.DataFrame({name: [row[name] for row in rows] for name in table.columns})
    kinds = {name: kind for name, kind in table.dtypes.items() if not is_object_dtype(kind)}
    return found.astype(kinds).copy()  # in one piece


def _keys(trials: pd.DataFrame) -> pd.Series:
    """What a point is: its run and everything that was chosen, as one text a row."""
    import pandas as pd

    names = [name for name in trials.columns if str(name).startswith(IDENTITY)]
    columns = [trials[name].map(repr) for name in ("run_id", "checkpoint", *names)]
    return pd.Series(
        ["\x00".join(cells) for cells in zip(*columns, strict=True)],
        index=trials.index,
        dtype=object,
    )


def _pooled(group: pd.DataFrame, metrics: list[str]) -> dict[str, object]:
    """One row for the repeats of one point."""
    sound = group[group["valid"].astype(bool)]
    if sound.empty:
        return group.iloc[0].to_dict()
    row = sound.iloc[0].to_dict()
    row[REPEATS] = len(sound)
    row["reason"] = "; ".join(_left_out(group)) or None
    row["labels"] = list(dict.fromkeys(label for labels in sound["labels"] for label in labels))
    row["duration_s"] = float(group["duration_s"].sum())
    for name in metrics:
        row |= _mean(sound, name)
    return row


def _mean(sound: pd.DataFrame, name: str) -> dict[str, object]:
    if len(sound) == 1:
        return {}
    values = sound[name].to_numpy(dtype=float, na_value=np.nan)
    lacking = int(np.isnan(values).sum())
    why = next((text for text in sound[f"{name}.reason"] if isinstance(text, str)), "not measured")
    if 0 < lacking < len(values):
        why = f"missing in {lacking} of {len(values)} repeats: {why}"
    return {
        name: np.nan if lacking else float(values.mean()),
        f"{name}.n": float(np.nansum(sound[f"{name}.n"].to_numpy(dtype=float))),
        f"{name}.low": np.nan,
        f"{name}.high": np.nan,
        f"{name}.reason": why if lacking else None,
    }


def _left_out(group: pd.DataFrame) -> Iterator[str]:
    for _, row in group[~group["valid"].astype(bool)].iterrows():
        yield f"repeat {row['repeat']} is left out, {row['state']}: {row['reason']}"
