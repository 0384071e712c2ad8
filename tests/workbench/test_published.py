"""Runs that ship with the project must read, and say where they were measured."""

from pathlib import Path

import pytest

import workbench as wb

STORE = Path(__file__).parents[2] / "results" / "published"
RUNS = sorted(folder.name for folder in STORE.iterdir() if (folder / "run.json").is_file())


def commit_of(run):
    """Of a run measured here, or of the bench of ours that it was imported from."""
    if run.origin is not None:
        return run.origin["tool_version"]
    assert run.environment["git_dirty"] is False
    return run.environment["git_sha"]


@pytest.mark.parametrize("run_id", RUNS)
def test_a_published_run_reads_whole_and_names_its_commit(run_id):
    run = wb.Store(STORE).run(run_id)
    progress = run.progress()
    ended = progress is not None and progress.sweep.stopped == "budget"
    assert run.summary.state == "complete" or ended
    assert set(run.trials()["state"]) == {"ok"}
    assert len(run.trials()) == (progress.stored if ended else run.planned)
    assert len(commit_of(run)) == 40


def test_the_run_that_the_readme_quotes_is_published():
    readme = (STORE.parents[1] / "README.md").read_text(encoding="utf-8")
    assert [run_id for run_id in RUNS if run_id in readme] == RUNS
