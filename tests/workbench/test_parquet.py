"""Rows become a file a group at a time, and are read back whole."""

import io
import weakref

import pyarrow as pa
import pyarrow.parquet
import pytest

from workbench.parquet import GROUP_ROWS, parquet

SCHEMA = pa.schema({"number": pa.int64(), "gaps": pa.list_(pa.float64())})


class Row(dict):
    """A row that can be watched: each is itself alone, whatever it holds."""

    __hash__ = object.__hash__
    __eq__ = object.__eq__


@pytest.mark.parametrize("count", [0, 1, GROUP_ROWS, 2 * GROUP_ROWS + 1])
def test_rows_are_read_back_in_their_order_whatever_their_number(count):
    found = pa.parquet.read_table(io.BytesIO(parquet(rows(count), SCHEMA)))
    assert found.schema == SCHEMA
    assert found["number"].to_pylist() == list(range(count))
    assert found["gaps"].to_pylist() == [[0.5, None]] * count


def test_rows_of_a_long_trial_are_never_held_together():
    # vllm-project/vllm 14879: the details of a long run took all memory.
    alive, most = weakref.WeakSet(), 0

    def watched():
        nonlocal most
        for row in rows(4 * GROUP_ROWS):
            alive.add(row)
            most = max(most, len(alive))
            yield row

    parquet(watched(), SCHEMA)
    assert GROUP_ROWS <= most <= 2 * GROUP_ROWS


def rows(count):
    for number in range(count):
        yield Row(number=number, gaps=[0.5, float("nan")])
