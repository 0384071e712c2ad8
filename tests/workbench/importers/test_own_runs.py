"""Runs of this workbench that lie in an imported folder."""

import json
import shutil
from pathlib import Path

import pytest

from tests.fakes import records
from tests.fakes.command import last_json, workbench
from workbench.errors import StoreError
from workbench.importers.intake import import_files
from workbench.store import Store


@pytest.fixture
def folder(tmp_path):
    """A folder with a run of ours and a result of another tool."""
    folder = tmp_path / "evidence"
    records.fill_store(folder / "runs")
    (folder / "steps.json").write_text(
        json.dumps(
            {"format": "kernel check", "results": [{"op": "rotate", "checks": 2, "passed": 2}]}
        )
    )
    return folder


def test_a_run_is_copied_whole_beside_what_is_imported_and_not_twice(folder, tmp_path):
    store = Store(tmp_path / "store")
    found = import_files([folder], store)
    [ours] = Store(folder / "runs").runs()
    assert [run.run_id for run in found.taken] == [ours.run_id]
    assert len(found.runs) == 1
    assert found.refused == {}
    copy, original = store.run(ours.run_id), Store(folder / "runs").run(ours.run_id)
    assert copy.documents() == original.documents()
    assert copy.points().equals(original.points())
    assert not any(path.name.endswith(".lock") for path in copy.folder.rglob("*"))
    again = import_files([folder], store)
    assert (again.taken, again.runs) == ((), ())
    assert ours.run_id in again.known.values()
    assert len(store.runs()) == 2


def test_a_run_is_taken_from_within_its_folder_and_not_from_a_copy_too(
    folder, tmp_path, monkeypatch
):
    [ours] = Store(folder / "runs").runs()
    shutil.copytree(folder / "runs" / ours.run_id, tmp_path / "copy" / ours.run_id)
    monkeypatch.chdir(folder / "runs" / ours.run_id)
    found = import_files([Path(), tmp_path / "copy"], Store(tmp_path / "store"))
    assert [run.run_id for run in found.taken] == [ours.run_id]
    assert found.known == {tmp_path / "copy" / ours.run_id: ours.run_id}
    assert found.refused == {}


def test_a_folder_of_runs_alone_is_taken_and_told(folder, tmp_path):
    [ours] = Store(folder / "runs").runs()
    result = workbench("import", folder / "runs", "--store", tmp_path / "store", "--json")
    assert result.exit_code == 0, result.output
    assert "a run of this workbench" in " ".join(result.output.split())
    assert "left out" not in result.output
    assert last_json(result)["taken"] == [ours.run_id]


def test_a_run_that_cannot_be_read_is_refused_and_the_rest_is_stored(folder, tmp_path):
    [ours] = Store(folder / "runs").runs()
    path = folder / "runs" / ours.run_id / "run.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "format_version": 999}))
    found = import_files([folder], Store(tmp_path / "store"))
    assert list(found.refused) == [path.parent]
    assert len(found.runs) == 1
    assert found.taken == ()


def test_a_run_json_of_somebody_else_is_no_run(tmp_path):
    (tmp_path / "run.json").write_text('{"run_id": 1}')
    (tmp_path / "steps.json").write_text(
        json.dumps(
            {"format": "kernel check", "results": [{"op": "rotate", "checks": 2, "passed": 2}]}
        )
    )
    found = import_files([tmp_path], Store(tmp_path / "store"))
    assert found.taken == ()
    assert list(found.left_out) == [tmp_path / "run.json"]


def test_a_run_that_is_being_measured_is_not_taken(tmp_path):
    elsewhere, here = Store(tmp_path / "a"), Store(tmp_path / "b")
    with elsewhere.create(records.facts(1)) as writer, pytest.raises(StoreError, match="measured"):
        here.take(writer.run.folder)
    assert here.runs() == []
