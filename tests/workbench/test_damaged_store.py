"""Damage stays where it is: one run is refused by name, and every other is read."""

import json
import sqlite3
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from engine import make_checkpoint as maker
from experiments.plan import load_plan
from tests.fakes import measured, records
from workbench.errors import StoreError
from workbench.lock import is_writing
from workbench.runs import random_checkpoint, with_checkpoint
from workbench.store import Run, Store


@pytest.fixture
def two_runs(tmp_path):
    """A store, a sound run in it, and one to damage; the index is gone."""
    sound = records.fill_store(tmp_path, [records.record()])
    other = records.fill_store(tmp_path, [records.record()])
    (tmp_path / "index.sqlite").unlink()
    return Store(tmp_path), sound, other.folder


def changed(path, **fields):
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))


def only_the_sound_run_is_read(store, sound, folder):
    assert [summary.run_id for summary in store.runs()] == [sound.run_id]
    (error,) = store.unreadable()
    assert folder.name in str(error)
    assert error.remedy
    return True


@pytest.mark.parametrize("planned", ["many", None, 1.5, True, -1, [1]])
def test_a_run_whose_number_of_trials_is_none_is_refused_alone(two_runs, planned):
    store, sound, folder = two_runs
    changed(folder / "run.json", planned=planned)
    assert only_the_sound_run_is_read(store, sound, folder)


@pytest.mark.parametrize(
    "fields",
    [
        {"state": "splendid"},
        {"state": ["ok"]},
        {"trial_id": 7},
        {"point": "here"},
        {"metrics": [1]},
        {"metrics": {"tok_s_user": 7}},
        {"labels": None},
        {"labels": [{"a": 1}]},
        {"repeat": "first"},
        {"window_s": [None]},
        {"window_s": "all"},
        {"gates": {}},
    ],
)
def test_a_trial_of_a_wrong_shape_refuses_its_run_alone(two_runs, fields):
    store, sound, folder = two_runs
    changed(next(folder.rglob("trial.json")), **fields)
    assert only_the_sound_run_is_read(store, sound, folder)


def test_rows_that_are_no_parquet_are_refused_by_their_file(two_runs, monkeypatch):
    _, sound, _ = two_runs
    (trial,) = sound.trial_ids()
    for content in (b"", b"PAR1 and no more"):
        sound.files(trial)["requests.parquet"].write_bytes(content)
        for _ in range(2):  # by duckdb, and without it
            with pytest.raises(StoreError, match=r"requests\.parquet"):
                sound.requests(trial)
            monkeypatch.setitem(sys.modules, "duckdb", None)
        monkeypatch.delitem(sys.modules, "duckdb")


DAMAGE = {
    "chunk_tokens": lambda rows: pa.array([[1]] * rows),
    "chunk_time_s": lambda rows: pa.array([None] * rows, type=pa.list_(pa.float64())),
    "sent_s": lambda rows: pa.array(["soon"] * rows),
}


@pytest.mark.parametrize("column", DAMAGE)
def test_requests_that_make_no_sense_give_no_quantile_and_stop_no_table(tmp_path, column):
    run = records.fill_store(tmp_path, measured.repeats(2))
    path = run.files(sorted(run.trial_ids())[0])["requests.parquet"]
    table = pq.read_table(path)
    place = table.column_names.index(column)
    pq.write_table(table.set_column(place, column, DAMAGE[column](len(table))), path)
    (point,) = run.points().to_dict("records")
    assert point["ttft_s_p50"] != point["ttft_s_p50"]
    assert "not read" in point["ttft_s_p50.reason"]
    assert point["ttft_s_mean"] > 0


@pytest.mark.parametrize("name", ["run.json", "trial.json"])
def test_json_that_is_nested_too_deeply_refuses_its_run_alone(two_runs, name):
    store, sound, folder = two_runs
    next(folder.rglob(name)).write_text("[" * 100_000)
    assert only_the_sound_run_is_read(store, sound, folder)


@pytest.mark.parametrize("hidden", ["run.json", "trials"])
def test_a_run_that_may_not_be_read_does_not_hide_the_others(two_runs, hidden, monkeypatch):
    store, sound, folder = two_runs

    def refusing(original):
        def method(path, *arguments, **options):
            if path == folder / hidden:
                raise PermissionError(13, "Permission denied", str(path))
            return original(path, *arguments, **options)

        return method

    for name in ("is_file", "is_dir", "read_text", "iterdir"):
        monkeypatch.setattr(Path, name, refusing(getattr(Path, name)))
    assert only_the_sound_run_is_read(store, sound, folder)


def test_a_store_that_is_a_file_is_refused_when_it_is_read_too(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(StoreError, match="is no folder that can be read"):
        Store(tmp_path / "file").runs()
    with pytest.raises(StoreError, match="cannot be written"):
        random_checkpoint("toy", Store(tmp_path / "file"))


@pytest.mark.parametrize(
    "text",
    [
        '{"pid": "x", "process_started": 1, "host": "h"}',
        '{"pid": -1, "process_started": 1, "host": "h"}',
        '{"pid": 1e400, "process_started": 1, "host": "h"}',
        '{"pid": 1' + "0" * 30 + ', "process_started": 1, "host": "h"}',
        '{"pid": 1, "process_started": "then", "host": "h"}',
        '{"pid": 1, "process_started": 1, "host": ["h"]}',
        "[" * 100_000,
    ],
)
def test_a_lock_that_names_no_process_keeps_nobody_out(two_runs, text):
    store, _, folder = two_runs
    (folder / "writer.lock").write_text(text)
    assert not is_writing(folder)
    assert store.unreadable() == []
    with store.writer(folder.name) as writer:
        writer.append(records.record(repeat=9))


def test_a_folder_in_the_place_of_the_lock_is_one_clear_error(two_runs):
    store, _, folder = two_runs
    (folder / "writer.lock").unlink()
    (folder / "writer.lock").mkdir()
    with pytest.raises(StoreError, match="cannot be written"):
        store.writer(folder.name)
    assert store.unreadable() == []


def test_a_folder_in_the_place_of_the_index_is_told_by_reindex_and_stops_no_writer(two_runs):
    store, sound, folder = two_runs
    (store.path / "index.sqlite").mkdir()
    with pytest.raises(StoreError, match="cannot be written"):
        store.reindex()
    with store.writer(folder.name) as writer:
        writer.append(records.record(repeat=9))
    assert len(Run(folder).documents()) == 2
    assert len(Run(sound.folder).documents()) == 1


@pytest.mark.parametrize(
    "document",
    [
        "[1]",
        "7",
        "{",
        "{}",
        "[" * 100_000,
        '{"format_version": 1, "trial_id": "foreign"}',
        b"\xff",
        None,
    ],
)
def test_rows_of_the_index_that_are_no_trials_are_read_from_the_folders(tmp_path, document):
    run = records.fill_store(tmp_path)
    before = run.documents()
    with sqlite3.connect(tmp_path / "index.sqlite") as connection:
        connection.execute("ALTER TABLE trials RENAME TO old")
        connection.execute("CREATE TABLE trials (run_id, trial_id, document)")
        connection.execute("INSERT INTO trials SELECT run_id, trial_id, ? FROM old", [document])
    assert Run(run.folder).documents() == before


def test_a_trial_that_the_index_gives_to_another_id_is_read_from_its_folder(tmp_path):
    run = records.fill_store(tmp_path)
    before = run.documents()
    with sqlite3.connect(tmp_path / "index.sqlite") as connection:
        connection.execute("UPDATE trials SET document = (SELECT max(document) FROM trials)")
    assert Run(run.folder).documents() == before


def test_an_index_of_a_newer_format_is_not_trusted(tmp_path):
    run = records.fill_store(tmp_path)
    before = run.documents()
    with sqlite3.connect(tmp_path / "index.sqlite") as connection:
        connection.execute("UPDATE trials SET document = replace(document, 'ok', 'failed')")
        connection.execute("PRAGMA user_version=2")
    assert Run(run.folder).documents() == before


def test_a_checkpoint_that_another_process_finished_first_is_used(tmp_path, monkeypatch):
    made = []

    def overtaken(kind, *, seed, directory):
        made.append(original(kind, seed=seed, directory=directory))
        return original(kind, seed=seed, directory=directory)

    original = maker.make_checkpoint
    monkeypatch.setattr(maker, "make_checkpoint", overtaken)
    document = {
        "name": "t",
        "engine": {"model": "toy"},
        "workloads": [{"name": "s", "kind": "synthetic"}],
    }
    found = with_checkpoint(load_plan(document), Store(tmp_path))
    assert [found.engine["model"]] == [str(path) for path in made]
