"""kill -9 in the middle of a run: what was finished stays, nothing is measured twice."""

import os
import random
import signal
import subprocess
import sys
import time

import pytest
import yaml

from workbench.errors import WorkbenchError
from workbench.store import Store

TRIALS = 6
PLAN = {
    "name": "killed",
    "target": "simulated",
    "protocol": {"name": "quick", "measured_s": 0.05, "warm_up_per_slot": 0},
    "axes": [{"product": {"batch_size": [1, 2, 3], "draft_length": [0, 5]}}],
    "workloads": [{"name": "short", "kind": "synthetic", "prompt_tokens": 8, "output_tokens": 4}],
}
KILLS = 50 if os.environ.get("WORKBENCH_TEST_FULL") else 2


def workbench(*arguments):
    command = [sys.executable, "-m", "workbench", *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


def stored(store):
    """Trial folder -> its files' bytes, of the only run."""
    return {
        path: path.read_bytes()
        for path in store.path.glob("*/trials/[!.]*/*")
        if not path.name.startswith(".")
    }


@pytest.mark.parametrize("seed", range(KILLS))
def test_every_finished_trial_survives_and_none_is_measured_twice(tmp_path, seed):
    store = Store(tmp_path / "results")
    plan = tmp_path / "plan.yaml"
    plan.write_text(yaml.safe_dump(PLAN))
    chance = random.Random(seed)
    child = workbench("run", plan, "--store", store.path)
    while not store.runs() and child.poll() is None:
        time.sleep(0.01)  # the folder of the run appears
    before = {}
    for _ in range(2):
        time.sleep(chance.uniform(0.0, 0.8))
        child.send_signal(signal.SIGKILL)
        child.communicate()
        run = store.run(store.runs()[0].run_id)
        assert run.summary.state in ("interrupted", "complete")
        for trial in run.trial_ids():
            assert run.trial(trial).trial_id == trial, "every folder that is seen is whole"
        now = stored(store)
        assert before.items() <= now.items(), "a finished trial changed or was lost"
        before = now
        child = workbench("resume", run.run_id, "--store", store.path)
        wait_until_it_writes(child, run)
    _, errors = child.communicate(timeout=120)
    assert child.returncode == 0, errors.decode()
    after = stored(store)
    assert before.items() <= after.items(), "a finished trial was measured again"
    run = store.run(run.run_id)
    assert run.summary.state == "complete"
    assert len(run.trial_ids()) == TRIALS
    assert not list(store.path.rglob(".*.tmp")), "nothing half-written is left"
    assert len(run.points()) == TRIALS


def wait_until_it_writes(child, run):
    """Let the resumed process come as far as taking the lock, so that the kill meets it at work."""
    while child.poll() is None and run.summary.state != "running":
        time.sleep(0.01)


def test_two_processes_never_write_one_run(tmp_path):
    store = Store(tmp_path / "results")
    plan = tmp_path / "plan.yaml"
    plan.write_text(yaml.safe_dump({**PLAN, "protocol": {"name": "quick", "measured_s": 1.0}}))
    first = workbench("run", plan, "--store", store.path)
    try:
        while not store.runs() or store.runs()[0].state != "running":
            assert first.poll() is None
            time.sleep(0.01)
        second = workbench("resume", store.runs()[0].run_id, "--store", store.path)
        _, errors = second.communicate(timeout=60)
        assert second.returncode == 1
        assert f"process {first.pid}" in errors.decode()
        with pytest.raises(WorkbenchError, match="is being written"):
            store.writer(store.runs()[0].run_id)
    finally:
        first.kill()
        first.communicate()
