"""Rows as the bytes of a Parquet file."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING

from workbench.files import finite

if TYPE_CHECKING:
    import pyarrow

GROUP_ROWS = 5_000
PACKED = {"compression": "zstd", "compression_level": 3, "use_dictionary": False}
"""Token ids and hashes rarely repeat: with dictionaries the requests of a run took a third more."""


def parquet(rows: Iterable[Mapping[str, object]], schema: pyarrow.Schema) -> bytes:
    """`rows` as the bytes of one zstd-compressed Parquet file; no rows is a valid file.

    Rows are taken `GROUP_ROWS` at a time, so that those of a long trial are never held together.
    """
    import pyarrow
    import pyarrow.parquet

    sink, left = pyarrow.BufferOutputStream(), iter(rows)
    with pyarrow.parquet.ParquetWriter(sink, schema, **PACKED) as writer:
        while group := list(islice(left, GROUP_ROWS)):
            writer.write_table(_table(group, schema))
    return sink.getvalue().to_pybytes()


def _table(rows: Sequence[Mapping[str, object]], schema: pyarrow.Schema) -> pyarrow.Table:
    import pyarrow

    columns = {
        field.name: pyarrow.array([_cell(row[field.name]) for row in rows], type=field.type)
        for field in schema
    }
    return pyarrow.table(columns, schema=schema)


def _cell(value: object) -> object:
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    return finite(value)
