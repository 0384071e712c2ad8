"""The store's contract: whole trials or none, read while written, nothing ever overwritten."""

import dataclasses
import errno
import json
import math
import os
import socket
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.records import (
    EvalAnswer,
    MetricValue,
    RequestRecord,
    TelemetrySample,
    TrialState,
)
from tests.fakes import records
from workbench import files, lock
from workbench.errors import DiskFullError, NewerFormatError, RunLockedError, StoreError
from workbench.evals import eval_schema
from workbench.store import Run, Store
from workbench.trial_files import contents, request_schema, telemetry_schema

ROOT = Path(__file__).parents[2]


def snapshot(folder):
    """Every file below `folder` with its bytes."""
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_every_record_is_read_back_as_it_was(tmp_path):
    items = [
        *records.sweep_records(),
        *records.hostile_records()[2:],
        *records.unicode_records()[1:],
    ]
    run = records.fill_store(tmp_path, items)
    assert [run.trial(item.trial_id) for item in items] == items
    assert run.trial_ids() == {item.trial_id for item in items}


def test_rows_of_a_run_from_before_a_field_was_added_are_read(tmp_path):
    item = records.record()
    run = records.fill_store(tmp_path, [item])
    path = run.files(item.trial_id)["requests.parquet"]
    table = pyarrow.parquet.read_table(path)
    older = table.drop_columns(["emitted_tokens", "reached_by_position"])
    pyarrow.parquet.write_table(older, path)
    assert run.trial(item.trial_id) == item


def test_the_files_have_every_field_of_the_records():
    requests = {field.name for field in dataclasses.fields(RequestRecord)}
    requests -= {"chunks", "output_text"}  # texts are stored with the answers to an eval
    assert set(request_schema().names) == requests | {"chunk_time_s", "chunk_tokens", "chunk_kind"}
    samples = {field.name for field in dataclasses.fields(TelemetrySample)}
    assert set(telemetry_schema().names) == samples
    answers = {field.name for field in dataclasses.fields(EvalAnswer)}
    assert set(eval_schema().names) == answers


def test_the_format_is_written_down_field_by_field():
    text = (ROOT / "results/README.md").read_text()
    run = json.loads(files.to_json(dataclasses.asdict(records.facts(1))))
    for name in [*request_schema().names, *telemetry_schema().names, *eval_schema().names, *run]:
        assert name in text, name


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_becomes_missing_with_a_reason(tmp_path, bad):
    metrics = {"tok_s_user": MetricValue(value=bad, n=3, low=bad, high=1.0)}
    item = dataclasses.replace(records.record(), metrics=metrics, duration_s=bad)
    item = dataclasses.replace(
        item, requests=(dataclasses.replace(item.requests[0], sent_s=bad),), duration_s=1.0
    )
    run = records.fill_store(tmp_path, [item])
    found = run.trial(item.trial_id)
    assert found.metrics["tok_s_user"].value is None
    assert "not finite" in found.metrics["tok_s_user"].reason
    assert found.requests[0].sent_s is None
    text = (run.folder / "trials" / item.trial_id / "trial.json").read_text()
    assert json.loads(text, parse_constant=pytest.fail)["metrics"]["tok_s_user"]["n"] == 3


@given(
    st.recursive(
        st.none() | st.booleans() | st.floats() | st.text(st.characters()),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    )
)
def test_json_is_deterministic_and_reads_back(value):
    text = files.to_json({"value": value})
    assert text == files.to_json({"value": value})
    assert files.finite(json.loads(text, parse_constant=pytest.fail)) == json.loads(text)


def test_equal_records_make_equal_bytes():
    assert contents(records.record()) == contents(records.record())


def test_a_trial_is_never_overwritten(tmp_path):
    run = records.fill_store(tmp_path, [records.record()])
    before = snapshot(run.folder)
    with Store(tmp_path).writer(run.run_id) as writer, pytest.raises(StoreError, match="never"):
        writer.append(records.record())
    assert snapshot(run.folder) == before


def test_a_trial_id_cannot_leave_its_run(tmp_path):
    item = dataclasses.replace(records.record(), trial_id="../../escape")
    with pytest.raises(StoreError, match="cannot name a folder"):
        records.fill_store(tmp_path / "store", [item])
    assert not list(tmp_path.glob("escape*"))


def test_points_have_a_row_each_and_missing_numbers_stay_missing(stored_run):
    points = stored_run.points()
    assert len(points) == 24
    assert points["valid"].sum() == 20
    assert {"axis.batch_size", "engine.model", "workload.name", "tok_s_user"} <= set(points)
    assert points["energy_j_token"].isna().all()
    assert set(points.loc[points["valid"], "energy_j_token.reason"]) == {
        "no device counts energy here"
    }
    failed = points[points["state"] == "failed"].iloc[0]
    assert math.isnan(failed["output_tok_s"])
    assert failed["reason"] == "the engine stopped: out of memory"
    assert points["gates"].map(len).max() == 2


def test_rows_read_the_same_with_and_without_duckdb(stored_run, monkeypatch):
    trial = stored_run.points()["trial_id"][0]
    fast = stored_run.requests(trial), stored_run.telemetry(trial)
    monkeypatch.setitem(sys.modules, "duckdb", None)
    plain = stored_run.requests(trial), stored_run.telemetry(trial)
    for one, other in zip(fast, plain, strict=True):
        assert one.columns.tolist() == other.columns.tolist()
        assert [*map(cells, one.columns, one.to_numpy().T)] == [
            *map(cells, other.columns, other.to_numpy().T)
        ]


def cells(name, column):
    """The cells of a column as plain values; a missing one is None whatever its type."""
    return name, [
        list(cell) if np.ndim(cell) else None if pd.isna(cell) else cell for cell in column
    ]


def test_a_run_is_found_by_the_beginning_of_its_name(tmp_path):
    one = records.fill_store(tmp_path, [records.record()], name="alpha")
    two = records.fill_store(tmp_path, [records.record()], name="beta")
    store = Store(tmp_path)
    assert store.run(one.run_id[:-2]).run_id == one.run_id
    with pytest.raises(StoreError, match=f"several runs.*{two.run_id}"):
        store.run("2")
    with pytest.raises(StoreError, match="no run of this store"):
        store.run("nothing")


def test_an_absent_store_is_empty_and_reading_makes_nothing(tmp_path):
    store = Store(tmp_path / "absent")
    assert store.runs() == []
    assert store.unreadable() == []
    assert not store.path.exists()


def test_runs_come_newest_first_with_their_counts(tmp_path):
    for name in ("first", "second"):
        records.fill_store(tmp_path, name=name)
    summaries = Store(tmp_path).runs()
    assert summaries[0].started_utc >= summaries[1].started_utc
    assert summaries[0].counts == {
        TrialState.OK: 20,
        TrialState.INVALID: 2,
        TrialState.FAILED: 1,
        TrialState.SKIPPED: 1,
        TrialState.CANCELLED: 0,
    }
    assert summaries[0].labels == records.LABELS


@pytest.mark.parametrize(
    ("items", "planned", "state"),
    [
        (records.sweep_records()[:3], 3, "complete"),
        (records.sweep_records(), 24, "partial"),
        (records.sweep_records()[:3], 24, "interrupted"),
    ],
)
def test_the_state_of_a_closed_run_follows_from_its_trials(tmp_path, items, planned, state):
    assert records.fill_store(tmp_path, items, planned=planned).summary.state == state


def test_the_index_can_be_lost_or_damaged_and_is_rebuilt(tmp_path):
    run = records.fill_store(tmp_path)
    documents = run.documents()
    index = tmp_path / "index.sqlite"
    index.write_bytes(b"not a database, long enough to be read as one" * 100)
    assert Run(run.folder).documents() == documents
    assert Store(tmp_path).reindex() == 24
    with sqlite3.connect(index) as connection:
        assert connection.execute("SELECT count(*) FROM trials").fetchone() == (24,)
    index.write_bytes(b"damaged again" * 1000)
    with Store(tmp_path).writer(run.run_id) as writer:
        writer.append(records.record(repeat=9))
    assert len(Run(run.folder).documents()) == 25


@pytest.mark.parametrize("file", ["run.json", "trial.json"])
def test_a_newer_format_is_refused_and_nothing_is_touched(tmp_path, file):
    run = records.fill_store(tmp_path, [records.record()])
    (tmp_path / "index.sqlite").unlink()
    path = next(run.folder.rglob(file))
    path.write_text(json.dumps(json.loads(path.read_text()) | {"format_version": 2}))
    before = snapshot(tmp_path)
    store = Store(tmp_path)
    with pytest.raises(NewerFormatError, match=r"format version 2.*[Uu]pgrade"):
        store.run(run.run_id)
    with pytest.raises(NewerFormatError):
        store.writer(run.run_id)
    assert store.runs() == []
    assert [type(error) for error in store.unreadable()] == [NewerFormatError]
    assert snapshot(tmp_path) == before


def test_an_index_of_a_newer_format_is_not_written_to(tmp_path):
    run = records.fill_store(tmp_path, [records.record()])
    with sqlite3.connect(tmp_path / "index.sqlite") as connection:
        connection.execute("PRAGMA user_version=2")
    with pytest.raises(NewerFormatError, match="format version 2"):
        Store(tmp_path).create(records.facts(1))
    with pytest.raises(NewerFormatError):
        Store(tmp_path).writer(run.run_id)
    assert [path.name for path in tmp_path.iterdir() if path.is_dir()] == [run.run_id]


@pytest.mark.parametrize("text", ["", "[]", "{", '{"format_version": "one"}', "\0"])
def test_a_damaged_run_is_named_and_the_others_are_read(tmp_path, text):
    sound = records.fill_store(tmp_path, [records.record()])
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken/run.json").write_text(text)
    store = Store(tmp_path)
    assert [summary.run_id for summary in store.runs()] == [sound.run_id]
    assert "broken" in str(store.unreadable()[0])


def test_two_writers_of_one_run_are_refused(tmp_path):
    store = Store(tmp_path)
    with store.create(records.facts(2)) as writer:
        assert store.runs()[0].state == "running"
        with pytest.raises(RunLockedError, match=f"process {os.getpid()}"):
            store.writer(writer.run.run_id)
    with store.writer(writer.run.run_id):
        pass


HOLDER = """
import sys, time
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from workbench.store import Store
from tests.fakes import records
writer = Store(sys.argv[1]).create(records.facts(3))
writer.append(records.record())
(Path(sys.argv[1]) / writer.run.run_id / "trials" / ".half.1.tmp").mkdir()
print(writer.run.run_id, flush=True)
time.sleep(60)
"""


def test_the_lock_of_a_killed_writer_is_taken_over(tmp_path):
    child = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path), str(ROOT)], stdout=subprocess.PIPE, text=True
    )
    try:
        run_id = child.stdout.readline().strip()
        store = Store(tmp_path)
        assert store.run(run_id).summary.state == "running"
        with pytest.raises(RunLockedError, match=f"process {child.pid}"):
            store.writer(run_id)
    finally:
        child.kill()
        child.wait()
        child.stdout.close()
    assert store.run(run_id).summary.state == "interrupted"
    with store.writer(run_id) as writer:
        writer.append(records.record(batch_size=4))
    assert len(store.run(run_id).trial_ids()) == 2
    assert not list(tmp_path.rglob(".half*")), "what the killed writer left is cleared away"


def test_a_silent_writer_on_another_host_is_waited_for_before_it_is_taken_for_dead(tmp_path):
    run = records.fill_store(tmp_path, [records.record()])
    path = run.folder / lock.LOCK_NAME
    path.write_text(json.dumps({"pid": 1, "process_started": 0.0, "host": "elsewhere"}))
    assert run.summary.state == "running"
    with pytest.raises(RunLockedError, match="process 1 on elsewhere"):
        Store(tmp_path).writer(run.run_id)
    old = path.stat().st_mtime - 2 * lock.SILENCE_S
    os.utime(path, (old, old))
    assert run.summary.state == "complete"
    with Store(tmp_path).writer(run.run_id):
        pass


def test_a_process_that_was_given_a_dead_writer_s_number_is_a_stranger(tmp_path):
    run = records.fill_store(tmp_path, [records.record()])
    held = {"pid": os.getpid(), "process_started": 1.0, "host": socket.gethostname()}
    (run.folder / lock.LOCK_NAME).write_text(json.dumps(held))
    assert run.summary.state == "complete"
    with Store(tmp_path).writer(run.run_id):
        pass


WRITER = """
import sys
sys.path.insert(0, sys.argv[2])
from workbench.store import Store
from tests.fakes import records
items = [records.record(repeat=number) for number in range(40)]
with Store(sys.argv[1]).create(records.facts(len(items))) as writer:
    for item in items:
        writer.append(item)
"""


def test_a_reader_sees_only_whole_trials_while_another_process_writes(tmp_path):
    child = subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path), str(ROOT)])
    seen = [0]
    try:
        while child.poll() is None:
            for summary in Store(tmp_path).runs():
                run = Store(tmp_path).run(summary.run_id)
                points = run.points()
                seen.append(len(points))
                for trial in points["trial_id"][-1:]:
                    assert len(run.trial(trial).requests) == 5
            time.sleep(0.01)
    finally:
        child.kill()
    assert child.wait() == 0
    assert seen == sorted(seen), "no trial that was seen may vanish"
    assert len(Store(tmp_path).run(Store(tmp_path).runs()[0].run_id).trials()) == 40


@pytest.mark.parametrize("file", ["trial.json", "requests.parquet", "engine.log", "folder"])
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_keeps_finished_trials_and_leaves_nothing_half_written(
    tmp_path, monkeypatch, file, code
):
    store = Store(tmp_path)
    with store.create(records.facts(2)) as writer:
        writer.append(records.record())
        before = snapshot(writer.run.folder)
        with monkeypatch.context() as patch:
            fill_disk(patch, file, code)
            with pytest.raises(
                DiskFullError, match=r"bytes are free.*try again; .workbench res"
            ) as caught:
                writer.append(records.record(batch_size=4))
        assert caught.value.exit_code == 1
        assert str(tmp_path) in str(caught.value)
        assert snapshot(writer.run.folder) == before
        writer.append(records.record(batch_size=4))
    assert len(store.run(writer.run.run_id).trial_ids()) == 2


def fill_disk(patch, file, code):
    """From now on writing `file` finds no room."""
    real = Path.write_bytes

    def write(path, content):
        if path.name == file:
            real(path, content[: len(content) // 2])
            raise OSError(code, os.strerror(code))
        return real(path, content)

    def refuse(self, *_):
        raise OSError(code, os.strerror(code))

    if file == "folder":
        patch.setattr(Path, "rename", refuse)
    else:
        patch.setattr(Path, "write_bytes", write)


TIGHT = """
import resource, signal, sys
sys.path.insert(0, sys.argv[2])
from workbench.errors import DiskFullError
from workbench.store import Store
from tests.fakes import records
with Store(sys.argv[1]).create(records.facts(2)) as writer:
    writer.append(records.record())
    resource.setrlimit(resource.RLIMIT_FSIZE, (2000, resource.RLIM_INFINITY))
    try:
        writer.append(records.record(batch_size=4))
    except DiskFullError as error:
        print("refused", error.exit_code)
"""


def test_a_real_limit_of_the_system_is_told_like_a_full_disk(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", TIGHT, str(tmp_path), str(ROOT)], capture_output=True, text=True
    )
    assert done.stdout.strip() == "refused 1", done.stderr
    run = Store(tmp_path).run(Store(tmp_path).runs()[0].run_id)
    assert run.trial_ids() == {records.record().trial_id}
    assert not list(tmp_path.rglob("*.tmp"))


def test_a_store_that_may_not_be_written_is_one_clear_error(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(StoreError, match="cannot be written"):
        Store(tmp_path / "file").create(records.facts(1))
