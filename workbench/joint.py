"""Points of several runs in one table, so that one picture can hold ours beside those of others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import pandas as pd

    from workbench.stored_run import Run

TOTAL = "total_tok_s_device"
DEVICES = "cost.devices"


def joint(runs: Sequence[Run]) -> pd.DataFrame:
    """The points of all runs; `total_tok_s_device` is derived where only the whole rate is told.

    That is all that is derived, and only beside a run of another tool that reports it.
    """
    points = together([run.points() for run in runs])
    return _with_totals(points) if TOTAL in points else points


def together(tables: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """The rows of all tables; a column that one lacks is missing there."""
    import pandas as pd

    filled = [table for table in tables if len(table)] or list(tables[:1])
    return filled[0] if len(filled) == 1 else pd.concat(filled, ignore_index=True).copy()


def _with_totals(points: pd.DataFrame) -> pd.DataFrame:
    if "total_tok_s" not in points or DEVICES not in points:
        return points
    devices = points[DEVICES].to_numpy(dtype=float, na_value=np.nan)
    lacking = (
        points[TOTAL].isna() & points["total_tok_s"].notna() & np.isfinite(devices)
    ).to_numpy()
    found = points.copy()
    for part in ("", ".low", ".high"):
        rates = points[f"total_tok_s{part}"].to_numpy(dtype=float, na_value=np.nan)
        cells = points[f"{TOTAL}{part}"].to_numpy(dtype=float, na_value=np.nan, copy=True)
        cells[lacking] = rates[lacking] / devices[lacking]
        found[TOTAL + part] = cells
    for part in (".n", ".reason"):
        found[TOTAL + part] = points[TOTAL + part].where(~lacking, points[f"total_tok_s{part}"])
    return found
