"""A sweep from Python: in a child process, watched through the store."""

import asyncio

import pytest

import workbench as wb
from experiments.errors import PlanError
from tests.fakes import progress, records
from workbench import live

PLAN = {
    "name": "tiny",
    "question": "Does it run?",
    "target": "simulated",
    "protocol": {"name": "quick", "measured_s": 0.02, "warm_up_per_slot": 0},
    "axes": [{"product": {"batch_size": [1, 2]}}],
    "workloads": [{"name": "short", "kind": "synthetic", "prompt_tokens": 8, "output_tokens": 4}],
}


def test_a_sweep_runs_inside_a_running_loop_and_tells_its_progress(tmp_path, capsys):
    async def cell():
        return wb.sweep(PLAN, store=tmp_path, max_trials=1).live()

    run = asyncio.run(cell())
    assert len(run.points()) == 1
    said = capsys.readouterr().out
    assert "1 of 1 trials (1 ok), complete" in said
    assert "interrupted" not in said
    assert repr(run) == f"<SweepRun {run.run_id}: 1 of 1 trials (1 ok), complete>"


def test_a_wrong_plan_is_told_before_anything_starts(tmp_path):
    with pytest.raises(PlanError, match="batch_size"):
        wb.sweep({**PLAN, "axes": [{"product": {"batch_sise": [1]}}]}, store=tmp_path / "store")
    assert not (tmp_path / "store").exists()


def test_a_setting_from_the_environment_is_told_and_kept(tmp_path, monkeypatch):
    monkeypatch.setenv("DEEPINFER_USE_NEXTN_DECODE", "3")
    with pytest.warns(UserWarning, match="draft_length=3 comes from DEEPINFER_USE_NEXTN_DECODE"):
        run = wb.sweep(PLAN, store=tmp_path, max_trials=1).wait()
    assert run.plan["engine"] == {"draft_length": 3}
    assert run.points()["engine.draft_length"].tolist() == [3]


def test_a_sweep_that_dies_is_told_with_the_end_of_its_log(tmp_path):
    run = wb.sweep(PLAN, store=tmp_path)
    run._process.kill()
    with pytest.raises(live.SweepFailedError, match="workbench resume"):
        run.wait()


def test_a_failed_trial_is_a_result_and_not_an_error(tmp_path):
    run = wb.sweep({**PLAN, "simulation": {"die_after": 0}}, store=tmp_path).wait()
    assert run.summary.state == "partial"
    assert set(run.points()["state"]) == {"failed"}


def test_a_notebook_gets_a_bar_in_which_hostile_labels_are_text(tmp_path):
    run = records.fill_store(tmp_path, records.hostile_records())
    shown = live.progress_html(run.summary)
    assert "<img" not in shown
    assert "value='8' max='8'" in shown


def test_the_notebook_bar_is_updated_in_place(tmp_path, monkeypatch):
    shown = []

    class Handle:
        def update(self, content):
            shown.append(content.data)

    monkeypatch.setattr(live, "_in_notebook", lambda: True)
    monkeypatch.setattr("IPython.display.display", lambda content, display_id: Handle())
    wb.sweep(PLAN, store=tmp_path).live()
    assert "2 of 2 trials" in shown[-1]


def test_a_sweep_out_of_budget_is_no_failure(tmp_path):
    run = wb.sweep(PLAN, store=tmp_path, budget="0.1s").wait()
    assert run.summary.state == "interrupted"
    assert run.progress().sweep.stopped == "budget"


def test_the_notebook_bar_tells_what_is_measured_now(tmp_path):
    run = records.fill_store(tmp_path, records.sweep_records())
    shown = live.progress_html(run.summary, progress.progress())
    assert "16 in flight, draft length 5, under load; time left: 12 min" in shown
    hostile = live.progress_html(run.summary, progress.progress(records.HOSTILE[0]))
    assert "<img" not in hostile
