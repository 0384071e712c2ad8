"""Every form of export for every kind of run: nothing crashes, nothing missing becomes zero."""

import io
import json

import numpy as np
import pandas as pd
import pytest
import yaml

from tests.fakes import measured, records
from workbench.exports.llm_d import llm_d_files
from workbench.exports.tables import points_csv, requests_parquet
from workbench.exports.vllm_json import vllm_files
from workbench.report import DATA, FORMATS, report_files

RUNS = {
    "nothing": [],
    "one": [measured.trial()],
    "several": [measured.trial(batch_size=batch, seed=batch) for batch in (1, 4, 16)],
    "repeats": measured.repeats(3),
    "only failures": records.failed_records(),
    "only invalid": records.sweep_records()[3:4],
    "mixed": records.sweep_records()[::7],
    "unicode": records.unicode_records(),
    "hostile": records.hostile_records(),
}


@pytest.fixture(scope="module", params=RUNS, ids=list(RUNS))
def case(request, tmp_path_factory):
    items = RUNS[request.param]
    run = records.fill_store(tmp_path_factory.mktemp("store"), items, planned=max(1, len(items)))
    return run, items


def test_a_report_of_every_form_is_written(case):
    run, _ = case
    files = report_files(run, (*FORMATS, *DATA), static=True)
    assert {"report.html", "report.md", "points.csv", "requests.parquet"} <= set(files)
    assert all(files.values())
    assert b"nan" not in files["report.md"].lower().replace(b"finance", b"").split()


def test_the_csv_has_a_row_a_trial_and_no_number_that_is_none(case):
    run, items = case
    text = points_csv([run]).decode()
    table = pd.read_csv(io.StringIO(text), dtype=str)
    assert len(table) == len(items)
    assert "inf" not in set(text.replace("\n", ",").split(","))
    for _, row in table.iterrows():
        for name in [n for n in table.columns if f"{n}.reason" in table.columns]:
            if isinstance(row[f"{name}.reason"], str):
                assert not isinstance(row[name], str), (name, row[name])


def test_the_parquet_has_a_row_a_request(case):
    run, items = case
    table = pd.read_parquet(io.BytesIO(requests_parquet([run])))
    assert len(table) == sum(len(item.requests) for item in items)
    assert set(table["run_id"]) <= {run.run_id}
    assert set(table["trial_id"]) == {item.trial_id for item in items if item.requests}


@pytest.mark.parametrize(
    ("make", "read"), [(vllm_files, json.loads), (llm_d_files, yaml.safe_load)]
)
def test_the_forms_of_others_hold_no_nan_and_no_number_without_a_sample(case, make, read):
    run, items = case
    files = make(run)
    states = {"ok", "invalid"} if make is vllm_files else {"ok"}
    assert len(files) == sum(item.state in states for item in items)
    for content in files.values():
        for value in numbers(read(content)):
            assert np.isfinite(value)


def numbers(found):
    if isinstance(found, dict):
        found = list(found.values())
    if isinstance(found, list):
        for item in found:
            yield from numbers(item)
    elif isinstance(found, float):
        yield found


def test_an_older_file_without_a_column_has_nulls_there(tmp_path):
    import pyarrow.parquet

    item = measured.trial()
    run = records.fill_store(tmp_path, [item])
    path = run.folder / "trials" / item.trial_id / "requests.parquet"
    table = pyarrow.parquet.read_table(path)
    pyarrow.parquet.write_table(table.drop_columns(["turn", "error_kind"]), path)
    found = pd.read_parquet(io.BytesIO(requests_parquet([run])))
    assert len(found) == len(item.requests)
    assert found["turn"].isna().all()
