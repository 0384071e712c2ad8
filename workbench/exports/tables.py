"""Points as CSV and requests as Parquet, of one run or several."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from workbench.files import to_json, unreadable
from workbench.trial_files import request_schema

if TYPE_CHECKING:
    import pyarrow

    from workbench.store import Run

FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")


def points_csv(runs: Sequence[Run]) -> bytes:
    """Every stored trial, one row each; a missing number is an empty cell beside its reason.

    A text that a spreadsheet would run as a formula gets an apostrophe.
    """
    from workbench.joint import together

    points = together([run.trials() for run in runs]).copy()
    for name in points.columns:
        points[name] = points[name].map(_csv_cell)
    return points.to_csv(index=False, lineterminator="\n").encode("utf-8", "replace")


def requests_parquet(runs: Sequence[Run]) -> bytes:
    """The columns of requests.parquet after run_id and trial_id, one row a request of any trial."""
    import pyarrow
    import pyarrow.parquet

    schema = pyarrow.schema(
        [("run_id", pyarrow.string()), ("trial_id", pyarrow.string()), *request_schema()]
    )
    sink = pyarrow.BufferOutputStream()
    with pyarrow.parquet.ParquetWriter(sink, schema, compression="zstd") as writer:
        for run in runs:
            for trial_id in sorted(run.trial_ids()):
                table = _requests(run, trial_id, schema)
                if table.num_rows:
                    writer.write_table(table)
    return sink.getvalue().to_pybytes()


def _requests(run: Run, trial_id: str, schema: pyarrow.Schema) -> pyarrow.Table:
    """The stored requests of a trial; a column that an older file lacks is null."""
    import pyarrow
    import pyarrow.parquet

    path = run.folder / "trials" / trial_id / "requests.parquet"
    try:
        found = pyarrow.parquet.read_table(path)
    except (OSError, pyarrow.ArrowException) as error:
        raise unreadable(path, error) from error
    said = {"run_id": run.run_id, "trial_id": trial_id}
    columns = [
        found[field.name].cast(field.type)
        if field.name in found.column_names
        else pyarrow.array([said.get(field.name)] * found.num_rows, type=field.type)
        for field in schema
    ]
    return pyarrow.table(columns, schema=schema)


def _csv_cell(value: object) -> object:
    if isinstance(value, list | dict | tuple):
        return to_json(value, indent=None).strip()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, str) and value.startswith(FORMULA_STARTS):
        return "'" + value
    return value
