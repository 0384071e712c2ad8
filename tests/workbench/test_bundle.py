"""A bundle: whole or refused, with a reason, and never written outside its folder."""

import hashlib
import stat
import zipfile

import pytest

from experiments.records import TrialState
from tests.fakes import records
from workbench.bundle import SUMS, bundle, checksums, opened, read_bundle, with_runs
from workbench.errors import BundleError
from workbench.report import write_bundle
from workbench.store import Store


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    failed = records.record(state=TrialState.FAILED, batch_size=16)
    items = [*records.hostile_records()[:3], failed]
    return records.fill_store(tmp_path_factory.mktemp("store"), items)


@pytest.fixture(scope="module")
def path(run, tmp_path_factory):
    return write_bundle(run, tmp_path_factory.mktemp("out") / "report.zip", static=True)


def packed(path, files, **changes):
    """An archive of `files` with right checksums, whatever their names."""
    files = {**files, SUMS: checksums(files)} | changes
    path.write_bytes(bundle(files))
    return path


def test_a_bundle_gives_back_the_run_that_it_was_made_of(run, path):
    with opened(path) as store:
        (name,) = store.run_ids()
        found = store.run(name)
        assert found.documents() == run.documents()
        assert found.plan == run.plan
        assert found.environment == run.environment
        for trial_id in run.trial_ids():
            assert found.trial(trial_id) == run.trial(trial_id)
        folder = store.path
    assert not folder.exists()


def test_the_report_lies_in_the_bundle_with_a_checksum_of_every_file(path):
    files = read_bundle(path)
    assert {"report.html", "report.md", "points.csv", "plan.lock.yaml"} <= set(files)
    said = dict(reversed(line.split("  ", 1)) for line in files[SUMS].decode().splitlines())
    assert said.keys() == files.keys() - {SUMS}
    assert all(hashlib.sha256(files[name]).hexdigest() == said[name] for name in said)


def test_the_same_run_gives_the_same_bundle(run, path, tmp_path):
    again = write_bundle(run, tmp_path / "again.zip", static=True)
    assert again.read_bytes() == path.read_bytes()


def test_several_runs_fit_into_one_bundle(run, tmp_path):
    other = records.fill_store(run.folder.parent, [records.record()], name="other")
    made = write_bundle([run, other], tmp_path / "two.zip", ("md",))
    with opened(made) as store:
        assert set(store.run_ids()) == {run.run_id, other.run_id}


@pytest.mark.parametrize(
    "name",
    ["../outside", "/etc/outside", "runs/../../outside", "a\\..\\outside", "C:outside", "folder/"],
)
def test_a_name_that_leads_outside_is_refused_and_nothing_is_written(tmp_path, name):
    made = packed(tmp_path / "bad.zip", {name: b"x", "runs/r/run.json": b"{}"})
    with pytest.raises(BundleError, match="outside its folder"), opened(made):
        pass
    assert [child.name for child in tmp_path.iterdir()] == ["bad.zip"]


def test_a_link_in_the_archive_is_refused(tmp_path):
    made = tmp_path / "link.zip"
    with zipfile.ZipFile(made, "w") as archive:
        entry = zipfile.ZipInfo("runs")
        entry.external_attr = (stat.S_IFLNK | 0o777) << 16
        archive.writestr(entry, "/etc")
    with pytest.raises(BundleError, match="outside its folder"):
        read_bundle(made)


@pytest.mark.parametrize("lost", ["report.md", SUMS])
def test_a_missing_file_is_named(path, tmp_path, lost):
    files = {name: content for name, content in read_bundle(path).items() if name != lost}
    made = tmp_path / "lost.zip"
    made.write_bytes(bundle(files))
    with pytest.raises(BundleError, match=lost):
        read_bundle(made)


def test_a_changed_file_is_named(path, tmp_path):
    made = tmp_path / "changed.zip"
    made.write_bytes(bundle({**read_bundle(path), "points.csv": b"better numbers"}))
    with pytest.raises(BundleError, match=r"points\.csv is not what its checksum says"):
        read_bundle(made)


def test_a_file_without_a_checksum_is_named(path, tmp_path):
    made = tmp_path / "more.zip"
    made.write_bytes(bundle({**read_bundle(path), "more.txt": b"added"}))
    with pytest.raises(BundleError, match=r"more\.txt has no checksum"):
        read_bundle(made)


def test_a_name_given_twice_is_refused(tmp_path):
    made = tmp_path / "twice.zip"
    with zipfile.ZipFile(made, "w") as archive, pytest.warns(UserWarning, match="Duplicate"):
        archive.writestr("a", "1")
        archive.writestr("a", "2")
    with pytest.raises(BundleError, match="twice"):
        read_bundle(made)


def test_an_archive_that_would_unpack_to_more_than_a_disk_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("workbench.bundle.MOST_BYTES", 1000)
    made = packed(tmp_path / "bomb.zip", {"runs/r/run.json": bytes(2000)})
    with pytest.raises(BundleError, match="would unpack to"):
        read_bundle(made)


@pytest.mark.parametrize("cut", [0, 10, 0.5, 0.99])
def test_a_file_that_was_cut_short_is_refused(path, tmp_path, cut):
    whole = path.read_bytes()
    made = tmp_path / "cut.zip"
    made.write_bytes(whole[: int(cut * len(whole)) if cut < 1 else cut])
    with pytest.raises(BundleError):
        read_bundle(made)


def test_flipped_bytes_are_refused(path, tmp_path):
    whole = bytearray(path.read_bytes())
    for place in range(200, len(whole), len(whole) // 20):
        damaged = bytearray(whole)
        damaged[place] ^= 0xFF
        made = tmp_path / "flipped.zip"
        made.write_bytes(damaged)
        try:
            found = read_bundle(made)
        except BundleError:
            continue
        assert found == read_bundle(path)  # a byte of the archive that says nothing


def test_what_is_no_bundle_is_said(tmp_path):
    with pytest.raises(BundleError, match="no such bundle"):
        read_bundle(tmp_path / "none.zip")
    with pytest.raises(BundleError):
        read_bundle(tmp_path)
    made = packed(tmp_path / "empty.zip", {"report.md": b"#"})
    with pytest.raises(BundleError, match="holds no run"), opened(made):
        pass


def test_a_run_in_the_bundle_needs_its_trials_to_be_read(run):
    files = with_runs({}, [run])
    assert f"runs/{run.run_id}/run.json" in files
    assert Store(run.folder.parent).run(run.run_id).trial_ids() == {
        name.split("/")[3] for name in files if "/trials/" in name
    }
