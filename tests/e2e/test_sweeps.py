"""Whole sweeps by command: stopped, cancelled, out of budget, searched, side by side."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time

import pytest
import yaml

from tests.fakes.command import last_json, workbench
from workbench.progress import read_progress
from workbench.store import Store

PLAN = {
    "name": "sweep",
    "question": "Does it survive?",
    "target": "simulated",
    "protocol": {"name": "quick", "measured_s": 0.02, "warm_up_per_slot": 0},
    "axes": [{"product": {"batch_size": [1, 2], "draft_length": [0, 5]}}],
    "workloads": [{"name": "short", "kind": "synthetic", "prompt_tokens": 8, "output_tokens": 4}],
}
SLOW = {"name": "quick", "measured_s": 0.6, "warm_up_per_slot": 0}


def started(*arguments):
    command = [sys.executable, "-u", "-m", "workbench", *map(str, arguments)]
    return subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "COLUMNS": "200"},
    )


def written(folder, **changes):
    path = folder / "plan.yaml"
    path.write_text(yaml.safe_dump({**PLAN, **changes}))
    return path


def until(holds, seconds=60.0):
    deadline = time.monotonic() + seconds
    while not holds() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert holds()


def only_run():
    (summary,) = Store("results").runs()
    return Store("results").run(summary.run_id)


def under_load():
    """Whether the run of the store has a trial in flight, as its progress tells."""
    if not Store("results").run_ids():
        return False
    found = read_progress(only_run().folder)
    return found is not None and found.sweep.current is not None


def test_stop_and_skip_reach_the_process_that_measures(here):
    child = started("run", written(here, protocol={**SLOW, "measured_s": 2.0}, repeats=3))
    until(under_load)
    shown = workbench("status", "--json")
    assert "now: " in shown.stdout
    assert "time left: " in shown.stdout
    assert last_json(shown)["progress"]["sweep"]["current"]["axes"]
    until(skipped)
    stop = workbench("stop")
    assert stop.exit_code == 0, stop.output
    said, _ = child.communicate(timeout=60)
    assert child.returncode == 130, said
    assert "stopped on request after a whole trial" in said
    run = only_run()
    assert run.summary.state == "interrupted"
    assert run.progress().sweep.stopped == "request"
    nobody = workbench("stop")
    assert nobody.exit_code == 2
    assert "no run that is being measured" in nobody.stderr


def skipped():
    """Ask for the trial in flight to be skipped; whether one is. A trial may end meanwhile."""
    workbench("stop", "--skip")
    time.sleep(0.5)
    return "skipped" in {item["state"] for item in only_run().documents()}


def test_a_second_interrupt_cancels_the_trial_in_flight_and_a_resume_measures_it(here):
    slow = {**SLOW, "measured_s": 30.0, "limit_s": 60.0}
    child = started("run", written(here, protocol=slow))
    until(under_load)
    time.sleep(0.3)
    child.send_signal(signal.SIGINT)
    time.sleep(0.3)
    assert child.poll() is None, "the first one waits for the trial"
    child.send_signal(signal.SIGINT)
    said, _ = child.communicate(timeout=30)
    assert child.returncode == 130, said
    run = only_run()
    (item,) = run.documents()
    assert item["state"] == "cancelled"
    assert "interrupted" in item["reason"]
    assert run.summary.state == "interrupted"
    assert "cancelled: " in workbench("status").stdout


def test_a_cancelled_trial_is_measured_again_and_both_attempts_are_kept(here):
    path = written(here)
    run_id = last_json(workbench("run", path, "--json"))["run_id"]
    run = Store("results").run(run_id)
    name = sorted(run.trial_ids())[0]
    file = run.folder / "trials" / name / "trial.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "state": "cancelled"}))
    (here / "results/index.sqlite").unlink()
    resumed = workbench("resume", "--json")
    assert resumed.exit_code == 0, resumed.output
    assert last_json(resumed)["state"] == "complete"
    assert Store("results").run(run_id).trial_ids() == {*run.trial_ids(), f"{name}.retry1"}


def test_a_budget_stops_in_time_keeps_what_is_measured_and_resume_goes_on(here):
    workbench("run", written(here))  # what trials and engine starts take is known from here on
    path = written(here, repeats=8)
    told = workbench("run", path, "--budget", "0.6s", "--json")
    assert told.exit_code == 4, told.output
    assert "the budget is spent" in told.stdout
    assert "workbench resume" in told.stdout
    document = last_json(told)
    assert document["state"] == "interrupted"
    assert 1 <= document["counts"]["ok"] < 32
    resumed = workbench("resume", document["run_id"], "--json")
    assert last_json(resumed)["counts"]["ok"] == 32


@pytest.mark.parametrize("text", ["", "4", "h", "-4h", "4 hours", "1h1h", "0s", "nan"])
def test_a_budget_that_is_no_time_is_refused(here, text):
    result = workbench("run", written(here), "--budget", text)
    assert result.exit_code == 2
    assert "--budget" in result.stderr
    assert not Store("results").runs()


def test_a_dry_run_tells_how_much_of_a_plan_fits_into_a_budget(here):
    shown = workbench("plan", written(here, repeats=100), "--budget", "1m")
    assert re.search(r"400 trials, \d+ engine starts, at least", shown.stdout), shown.stdout
    assert re.search(r"about \d+ of them fit into the budget", shown.stdout)
    assert not Store("results").runs()


def test_a_plan_tells_its_cost_before_its_trials_and_of_many_the_first(here):
    path = written(here, repeats=4)
    lines = workbench("plan", path).stdout.splitlines()
    assert lines[1].startswith("16 trials, 7 engine starts, at least ")
    assert lines[-1] == "and 4 more trials; `--all` lists them"
    ids = [trial["trial_id"] for trial in last_json(workbench("plan", path, "--json"))["trials"]]
    shown = [one for one in ids if one in "".join(lines)]
    assert shown == ids[:12]
    every = workbench("plan", path, "--all").stdout
    assert all(one in every for one in ids)
    assert "more trial" not in every
    assert "and 4 more trials; `--json` lists them" in workbench("run", path, "--dry-run").stdout


def test_a_search_tells_its_answer_and_status_tells_it_again(here):
    search = {
        "maximize": "output_tok_s",
        "over": {"batch_size": [1, 16]},
        "subject_to": ["itl_s_mean <= 0.006"],
        "method": "bisect",
    }
    simulation = {"tpot_s": 0.002, "tpot_per_request_s": 0.001}
    path = written(here, search=search, axes=[], engine={"draft_length": 0}, simulation=simulation)
    plan = workbench("plan", path)
    assert "maximise output_tok_s over batch_size 1 to 16 where itl_s_mean <= 0.006" in plan.stdout
    told = workbench("run", path, "--json")
    assert told.exit_code == 0, told.output
    assert "each measured once: " in told.stdout
    assert last_json(told)["state"] == "complete"
    shown = workbench("show").stdout
    assert "ok *" in shown
    assert "* breaks itl_s_mean <= 0.006: trial " in shown
    assert all("best of " in workbench(command).stdout for command in ("status", "show", "pareto"))
    assert workbench("resume", last_json(told)["run_id"]).exit_code == 0
    again = workbench("resume", last_json(told)["run_id"], "--retry-failed")
    assert "nothing is left to measure" in again.stdout


def test_a_search_without_an_answer_says_which_limit_was_never_met(here):
    search = {
        "maximize": "output_tok_s",
        "over": {"batch_size": [1, 16]},
        "subject_to": ["ttft_s_p50 <= 1e-9"],
        "method": "bisect",
    }
    told = workbench("run", written(here, search=search, axes=[]))
    assert "no answer: ttft_s_p50 <= 1e-09 was never met" in told.stdout
    assert "nearest (" in told.stdout


def test_a_search_that_was_cut_short_goes_on_where_it_was(here):
    search = {
        "maximize": "output_tok_s",
        "over": {"batch_size": [1, 64]},
        "subject_to": ["ttft_s_p50 <= 10"],
        "method": "bisect",
    }
    path = written(here, search=search, axes=[])
    told = last_json(workbench("run", path, "--json", "--max-trials", "1"))
    run = Store("results").run(told["run_id"])
    facts = json.loads((run.folder / "run.json").read_text())
    facts["plan"]["max_trials"] = None
    (run.folder / "run.json").write_text(json.dumps({**facts, "planned": 30}))
    (run.folder / "progress.json").unlink()
    resumed = workbench("resume", told["run_id"], "--json")
    assert resumed.exit_code == 0, resumed.output
    assert last_json(resumed)["counts"]["ok"] == 2
    sizes = [d["point"]["axes"]["batch_size"] for d in Store("results").run(run.run_id).documents()]
    assert sizes == [1, 64]


def test_a_stop_rule_ends_a_run_before_its_most_and_it_counts_as_complete(here):
    rule = {"min": 2, "max": 6, "stop": {"metric": "output_tok_s", "rel_ci": 0.9}}
    told = workbench("run", written(here, repeats=rule), "--json")
    assert told.exit_code == 0, told.output
    document = last_json(told)
    assert "at most 24 trials" in told.stdout
    assert document["state"] == "complete"
    assert document["planned"] == document["counts"]["ok"] < 24
    resumed = workbench("resume", document["run_id"])
    assert "nothing is left to measure" in resumed.stdout


def test_two_runners_share_one_store_and_a_reader_meets_no_lock(here):
    path = written(here)
    children = [started("run", path, "--store", "results") for _ in range(2)]
    errors = []
    stop = threading.Event()

    def read():
        while not stop.is_set():
            try:
                for summary in Store("results").runs():
                    Store("results").run(summary.run_id).points()
                errors.extend(map(str, Store("results").unreadable()))
            except Exception as error:  # noqa: BLE001 - whatever a page would have met
                errors.append(repr(error))
            time.sleep(0.02)

    reader = threading.Thread(target=read)
    reader.start()
    said = [child.communicate(timeout=120)[0] for child in children]
    stop.set()
    reader.join()
    assert [child.returncode for child in children] == [0, 0], said
    assert errors == []
    runs = Store("results").runs()
    assert [run.state for run in runs] == ["complete", "complete"]
    assert Store("results").reindex() == 8


@pytest.mark.parametrize("name", ["with space", "größe 吞吐量", "-dash", "a.b/c", "run=1,x;y"])
def test_a_sweep_goes_into_a_folder_of_any_name(here, name):
    # ai-dynamo/aiperf P860: a prefix option made all runs of a sweep fail
    folder = here / name
    folder.mkdir(parents=True)
    path = written(folder)
    told = workbench("run", path, "--store", folder / "results", "--json")
    assert told.exit_code == 0, told.output
    assert last_json(told)["counts"]["ok"] == 4
    assert workbench("status", "--store", folder / "results").exit_code == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small tmpfs needs root")
def test_a_file_system_that_fills_up_ends_the_run_cleanly_and_names_the_place(here):
    # mlcommons/endpoints 426
    small = here / "small"
    small.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=400k", "tmpfs", str(small)], capture_output=True
    )
    if mounted.returncode:
        pytest.skip(f"no tmpfs can be mounted here: {mounted.stderr.decode().strip()}")
    try:
        many = {"batch_size": {"range": [1, 40]}}
        path = written(here, axes=[{"product": many}], engine={"draft_length": 0})
        (small / "filler").write_bytes(b"0" * 1000)
        child = started("run", path, "--store", small, "--max-trials", "6")
        said, _ = child.communicate(timeout=120)
        if child.returncode == 0:  # six trials fitted: now fill what is left
            (small / "filler").write_bytes(b"0" * max(0, _free(small) - 12_000))
            child = started("run", path, "--store", small, "--max-trials", "1")
            said, _ = child.communicate(timeout=120)
        assert child.returncode == 1, said
        assert str(small) in said
        assert "Traceback" not in said
        for summary in Store(small).runs():
            run = Store(small).run(summary.run_id)
            for name in run.trial_ids():
                assert run.trial(name).trial_id == name
        assert not list(small.rglob(".*.tmp"))
    finally:
        subprocess.run(["umount", str(small)], check=True)


def _free(folder):
    found = os.statvfs(folder)
    return found.f_bavail * found.f_frsize
