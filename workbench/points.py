"""Stored trials as one table: what every page, report and front reads."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import numpy as np

from workbench.errors import StoreError

if TYPE_CHECKING:
    import pandas as pd

PLAIN = ("trial_id", "repeat", "state", "reason", "started_utc", "duration_s", "labels", "gates")
FIRST_COLUMNS = (
    "run_id", *PLAIN[:4], "valid", "labels", "started_utc", "duration_s", "gates", "checkpoint",
)  # fmt: skip
GROUPS = (("axes", "axis"), ("engine", "engine"), ("workload", "workload"))
BASIS = "basis"  # of a metric: how another tool came by it; no column where none did
AGREEMENT = "agreement"  # of a judged document: whom the trial was held against


def points_table(run_id: str, documents: Iterable[Mapping[str, object]]) -> pd.DataFrame:
    """One row per trial document, in the order given.

    Columns: FIRST_COLUMNS, then axis.*, engine.*, workload.*, then agreement.reference,
    .first_difference and the same with off_ and arm_ where outputs were kept, then for each
    metric `<metric>`, `<metric>.n`, `.low`, `.high`, `.reason`, and `.basis` where another tool
    computed it. A missing number is NaN, with its reason.
    """
    import pandas as pd

    rows = [_row(run_id, found) for found in documents]
    columns: dict[str, None] = dict.fromkeys(FIRST_COLUMNS)
    for row in rows:
        columns.update(dict.fromkeys(row))
    cells: dict[str, object] = {}
    for name in columns:
        column = [row.get(name) for row in rows]
        if name.endswith((".n", ".low", ".high")) or f"{name}.n" in columns:
            cells[name] = pd.to_numeric(np.array(column, dtype=object), errors="coerce")
        else:
            cells[name] = column
    return pd.DataFrame(cells)


def _row(run_id: str, found: Mapping[str, object]) -> dict[str, object]:
    try:
        row: dict[str, object] = {"run_id": run_id, **{name: found[name] for name in PLAIN}}
        row["valid"] = found["state"] == "ok"
        point = _mapping(found["point"])
        row["checkpoint"] = point.get("checkpoint")
        for part, prefix in GROUPS:
            row |= {f"{prefix}.{name}": value for name, value in _mapping(point[part]).items()}
        told = _mapping(found.get(AGREEMENT, {}))
        row |= {f"{AGREEMENT}.{name}": value for name, value in told.items()}
        for name, metric in _mapping(found["metrics"]).items():
            row |= _metric_cells(name, _mapping(metric))
    except (KeyError, TypeError) as error:
        raise StoreError(
            f"trial {found.get('trial_id')} is damaged ({error!r}).",
            where=run_id,
            remedy="Move this trial's folder away and run `workbench resume`.",
        ) from error
    return row


def _metric_cells(name: str, metric: Mapping[str, object]) -> dict[str, object]:
    parts = {f"{name}.{part}": metric[part] for part in ("n", "low", "high", "reason")}
    if metric.get(BASIS) is not None:
        parts[f"{name}.{BASIS}"] = metric[BASIS]
    return {name: metric["value"], **parts}


def _mapping(value: object) -> Mapping[str, object]:
    if not isinstance(value, Mapping):
        raise TypeError(f"{value!r} is not an object")
    return value
