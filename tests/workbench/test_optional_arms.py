"""Arms that a run leaves out, on the command line and from Python."""

import json

import pytest

import workbench as wb
from tests.fakes.command import workbench as run_cli
from workbench.store import Store

SIMULATED = {"target": "simulated"}
PLAN = {
    "name": "arms", "target": "arms",
    "workloads": [{"name": "random", "kind": "synthetic", "prompt_tokens": 4, "output_tokens": 4}],
    "protocol": {"name": "quick", "measured_s": 0.05, "idle_s": 0, "limit_s": 2},
    "arms": {
        "a": SIMULATED, "b": SIMULATED,
        "absent": {"target": "vllm", "optional": True,
                   "engine": {"model": "m", "python": "/no/such/python"}},
    },
}  # fmt: skip


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "plan.yaml"
    path.write_text(json.dumps(PLAN))
    return path


def arms_of(run):
    return set(run.points()["axis.arm"])


def test_a_run_leaves_out_what_is_named_and_what_is_not_there(file, tmp_path):
    store = tmp_path / "store"
    result = run_cli("run", file, "--store", store)
    assert "the arm absent is left out" in result.output
    assert "/no/such/python" in result.output
    [summary] = Store(store).runs()
    assert arms_of(Store(store).run(summary.run_id)) == {"a", "b"}
    plan = run_cli("plan", file, "--without", "b", "--store", store)
    assert "1 trials" in plan.output
    refused = run_cli("run", file, "--without", "c", "--store", store)
    assert refused.exit_code == 2
    assert "'c' is no arm" in refused.output


def test_a_sweep_from_python_warns_of_it(file, tmp_path):
    with pytest.warns(UserWarning, match="the arm absent is left out"):
        run = wb.sweep(file, store=tmp_path / "store").wait()
    assert arms_of(run) == {"a", "b"}
