"""Every form of load on the real engine, on the smallest checkpoint there is."""

import json

import pytest

from engine.make_checkpoint import make_checkpoint
from experiments.observe import NoObserver
from experiments.plan import load_plan
from experiments.records import TrialState
from experiments.sweep import run
from experiments.targets.factory import target_factory

QUICK = {"name": "quick", "measured_s": 0.4, "warm_up_output_tokens": 2, "bootstrap_draws": 20}


@pytest.fixture(scope="module")
def toy(tmp_path_factory):
    return make_checkpoint("toy", seed=0, directory=tmp_path_factory.mktemp("models") / "toy")


@pytest.fixture(scope="module")
def turns(tmp_path_factory):
    rows = [
        {"session_id": "a", "input_length": 20, "output_length": 4, "timestamp": 0.0},
        {"session_id": "a", "input_length": 6, "output_length": 4, "delay": 10.0},
        {"session_id": "b", "input_length": 9, "output_length": 4, "timestamp": 30.0},
        {"input_length": 9, "output_length": 4, "timestamp": 60.0},
    ]
    path = tmp_path_factory.mktemp("traces") / "t.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return {"name": "m", "kind": "trace", "path": str(path)}


LOADS = {
    "poisson": {"kind": "poisson", "rate": 20.0},
    "constant": {"kind": "constant", "rate": 20.0, "max_concurrency": 2},
    "gamma": {"kind": "gamma", "rate": 20.0, "shape": 0.5},
    "ramp": {"kind": "ramp", "rate": 30.0, "rate_from": 10.0, "ramp_s": 0.4},
    "sessions": {"kind": "sessions", "concurrency": 2, "turns": 3, "think_s": 0.01},
    "session rate": {"kind": "sessions", "rate": 10.0, "turns": 2},
    "batch": {"kind": "batch", "batch_size": 3},
    "decode_batch": {
        "kind": "decode_batch",
        "batch_size": 3,
        "prompt_tokens": 16,
        "output_tokens": 12,
    },
    "prefill_step": {"kind": "prefill_step", "token_budget": 96, "prompt_tokens": 32},
    "trace": {"kind": "trace"},
}


def measured_on(toy, engine=None, **fields):
    sizes = {"model": str(toy), "num_threads": 1, "max_model_len": 128, "max_num_seqs": 4}
    plan = load_plan(
        {"name": "loads", "protocol": QUICK, "engine": {**sizes, **(engine or {})}, **fields}
    )
    (record,) = run(plan, target_factory(plan), observer=NoObserver())
    return record


@pytest.mark.parametrize("name", LOADS)
def test_every_form_of_load_is_measured_on_the_engine(toy, turns, name):
    synthetic = {"name": "s", "kind": "synthetic", "prompt_tokens": 16, "output_tokens": 8}
    record = measured_on(
        toy,
        workloads=[turns if name == "trace" else synthetic],
        load=LOADS[name],
        gates={"rate_shortfall": None, "littles_law": None},  # the host may be busy
    )
    assert record.state is TrialState.OK, record.reason
    metrics = {key: metric.value for key, metric in record.metrics.items()}
    assert metrics["output_tok_s"] > 0
    asked = [r for r in record.requests if not r.warm_up]
    assert all(r.output_tokens == r.requested_output_tokens for r in asked if r.sent_s)
    assert {r.text_hash for r in asked if r.sent_s}
    if name in ("sessions", "session rate", "trace"):
        assert metrics["sessions_failed"] == 0
        assert any(r.turn for r in asked)
    if name in ("batch", "decode_batch"):
        assert metrics["rounds"] > 0
        assert metrics["concurrency_mean"] == pytest.approx(3.0, rel=1e-6)
        assert metrics["decode_step_s"] > 0
    if name == "prefill_step":
        assert metrics["prefill_tok_s"] > 0


def test_a_batch_of_the_engine_is_counted_step_by_step(toy):
    """Whatever a step brings, tokens of the full batch over its time are what the steps were."""
    record = measured_on(
        toy,
        engine={"draft_length": 0},
        workloads=[{"name": "s", "kind": "synthetic"}],
        load=LOADS["decode_batch"],
    )
    metrics = {key: metric.value for key, metric in record.metrics.items()}
    assert metrics["output_tok_s"] == pytest.approx(3 / metrics["decode_step_s"], rel=0.01)
