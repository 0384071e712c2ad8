"""A plan for a machine that this one is not: looked at, and neither run nor gone on with."""

import sys

import pytest
import yaml

from engine.accelerator import cuda
from engine.errors import ConfigError
from experiments.plan import load_plan
from tests.fakes import records
from tests.fakes.command import last_json, workbench
from workbench import resumption, runs
from workbench.store import Store

PLAN = {
    "name": "elsewhere",
    "question": "What will the other machine do?",
    "engine": {"model": "nano", "accelerator": "cuda"},
    "axes": [{"product": {"draft_length": [0, 5]}}],
    "workloads": [{"name": "w", "kind": "synthetic", "prompt_tokens": 32, "output_tokens": 8}],
}


@pytest.fixture(autouse=True)
def without_devices(monkeypatch):
    monkeypatch.setattr(cuda, "count", lambda: 0)


@pytest.fixture
def plan(tmp_path):
    path = tmp_path / "plan.yaml"
    path.write_text(yaml.safe_dump(PLAN))
    return path


def test_its_points_are_named_and_what_only_that_machine_knows_is_said_in_a_line(plan, tmp_path):
    done = workbench("plan", plan, "--store", tmp_path / "store", "--json")
    assert done.exit_code == 0, done.output
    assert len(last_json(done)["trials"]) == 2
    (note,) = [line for line in done.output.splitlines() if line.startswith("note: ")]
    assert "CUDA device 0 is wanted, 0 are visible" in note
    assert "room for caches" in note
    assert last_json(done)["missing_device"].rstrip(".") in note


def test_its_configuration_is_that_of_its_kind_of_device(tmp_path):
    found = runs.outlook(load_plan(PLAN), Store(tmp_path))
    facts = found.trials[0].facts
    assert (facts.accelerator, facts.configuration["dtype"]) == ("cuda", "bfloat16")
    assert facts.device_uuids is None


def test_arms_of_other_engines_are_planned_for_it_too(tmp_path):
    engine = {"accelerator": "cuda", "model": "nano"}
    arms = {"ours": {"engine": engine}, "theirs": {"target": "transformers", "engine": {**engine}}}
    path = tmp_path / "plan.yaml"
    changes = {"target": "arms", "arms": arms, "engine": {}, "axes": []}
    path.write_text(yaml.safe_dump(PLAN | changes))
    done = workbench("plan", path, "--store", tmp_path / "store", "--json")
    assert done.exit_code == 0, done.output
    assert [trial["axes"]["arm"] for trial in last_json(done)["trials"]] == ["ours", "theirs"]
    assert "CUDA device 0 is wanted, 0 are visible" in last_json(done)["missing_device"]


def test_an_optional_arm_that_this_machine_lacks_stays_in_it_and_is_told(tmp_path):
    engine = {"accelerator": "cuda", "model": "nano"}
    theirs = {"target": "vllm", "optional": True, "engine": {**engine, "python": sys.executable}}
    arms = {"ours": {"engine": engine}, "theirs": theirs}
    path = tmp_path / "plan.yaml"
    changes = {"target": "arms", "arms": arms, "engine": {}, "axes": []}
    path.write_text(yaml.safe_dump(PLAN | changes))
    done = workbench("plan", path, "--store", tmp_path / "store", "--json")
    assert done.exit_code == 0, done.output
    assert [trial["axes"]["arm"] for trial in last_json(done)["trials"]] == ["ours", "theirs"]
    notes = [line for line in done.output.splitlines() if line.startswith("note: ")]
    assert any("the arm theirs cannot start on this machine: " in line for line in notes)
    assert any("0 are visible" in line for line in notes)


def test_it_is_not_run(plan, tmp_path):
    done = workbench("run", plan, "--store", tmp_path / "store")
    assert done.exit_code == 2
    assert "0 are visible" in done.stderr
    assert not (tmp_path / "store").exists()


def test_a_run_of_it_is_not_gone_on_with(tmp_path, monkeypatch):
    run = records.fill_store(tmp_path)
    monkeypatch.setattr("experiments.plan.load_plan", lambda _: load_plan(PLAN))
    with pytest.raises(ConfigError, match="0 are visible"):
        resumption.resume(Store(tmp_path), run.run_id, allow_drift=True)


def test_a_plan_for_this_machine_says_nothing_of_devices(tmp_path):
    path = tmp_path / "here.yaml"
    path.write_text(yaml.safe_dump(PLAN | {"engine": {"model": "nano", "accelerator": "cpu"}}))
    done = workbench("plan", path, "--store", tmp_path / "store", "--json")
    assert "wanted" not in done.output
    assert last_json(done)["missing_device"] is None
