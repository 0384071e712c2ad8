"""What a run told wrongly is right where it is read, says so, and stays as it was stored."""

import json

import pytest

from tests.fakes import records
from tests.fakes.command import workbench
from workbench.bundle import opened
from workbench.corrections import CORRECTIONS
from workbench.errors import StoreError
from workbench.report import write_bundle
from workbench.report_content import gather
from workbench.store import Store

CORRECTION = {
    "setting": "replay_mode",
    "where": {"batch_size": 4},
    "told": "compact",
    "is": "window",
    "why": "it was told wrongly",
}


@pytest.fixture
def run(tmp_path):
    items = [records.record(batch_size=size) for size in (4, 16)]
    return records.fill_store(tmp_path / "store", items)


def write(run, *corrections, **changes):
    document = {"format_version": 1, "corrections": list(corrections), **changes}
    (run.folder / CORRECTIONS).write_text(json.dumps(document))
    return Store(run.folder.parent).run(run.run_id)


def modes(run):
    return dict(run.trials().set_index("axis.batch_size")["engine.replay_mode"])


def test_a_correction_changes_the_trials_that_it_names_and_labels_them(run):
    assert set(modes(run).values()) == {"compact"}
    found = write(run, CORRECTION)
    assert modes(found) == {4: "window", 16: "compact"}
    labels = found.trials().set_index("axis.batch_size")["labels"]
    assert f"replay_mode corrected ({CORRECTIONS})" in labels[4]
    assert "corrected" not in labels[16]


SAID = (
    "replay_mode of the trials with batch_size 4 was told as compact and is window. "
    "Why: it was told wrongly. No measured number changed."
)


def test_a_report_and_the_command_line_tell_what_was_corrected_and_why(run):
    found = write(run, CORRECTION)
    assert any(line.endswith(SAID) for line in gather([found], static=True).limits)
    done = workbench("show", found.run_id, "--store", found.folder.parent)
    assert any(line.endswith(SAID) for line in done.output.splitlines()), done.output


def test_a_correction_that_no_trial_needs_is_not_told(run):
    found = write(run, CORRECTION | {"told": "window"})
    assert not any("Corrected" in line for line in gather([found], static=True).limits)


def test_what_is_stored_stays_as_it_was(run):
    before = run.documents()
    assert write(run, CORRECTION).documents() == before


@pytest.mark.parametrize(
    "change",
    [{"told": "window"}, {"where": {"batch_size": 5}}, {"setting": "no_such"}],
    ids=["told otherwise", "no such trial", "no such setting"],
)
def test_a_trial_that_told_otherwise_is_left_as_it_is(run, change):
    assert set(modes(write(run, CORRECTION | change)).values()) == {"compact"}


def test_every_trial_is_corrected_where_no_place_is_named(run):
    found = write(run, CORRECTION | {"where": {}})
    assert set(modes(found).values()) == {"window"}


@pytest.mark.parametrize(
    "listed", [{}, ["no object"], [{"setting": "a"}], [CORRECTION | {"where": 4}]]
)
def test_a_damaged_file_is_refused_with_what_to_do(run, listed):
    with pytest.raises(StoreError, match=CORRECTIONS) as caught:
        write(run, corrections=listed).trials()
    assert "remove it" in caught.value.remedy


def test_a_bundle_takes_corrections_along(run, tmp_path):
    path = write_bundle(write(run, CORRECTION), tmp_path / "report.zip", static=True)
    with opened(path) as store:
        assert modes(store.run(run.run_id))[4] == "window"
