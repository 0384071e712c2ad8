"""The real engine: what must not change a token does not, and truncation is measured by it."""

from engine.make_checkpoint import make_checkpoint
from experiments.observe import NoObserver
from experiments.plan import load_plan
from experiments.sweep import run
from experiments.targets.factory import target_factory
from tests.fakes.records import fill_store

PROTOCOL = {"name": "quick", "measured_s": 0.1, "warm_up_output_tokens": 2, "bootstrap_draws": 20}


def test_drafts_and_compact_replay_change_no_token_of_the_engine(tmp_path):
    plan = load_plan(
        {
            "name": "agree",
            "protocol": PROTOCOL,
            "engine": {
                "model": str(make_checkpoint("toy", seed=0, directory=tmp_path / "toy")),
                "num_threads": 1,
            },
            "axes": [
                {"product": {"draft_length": [0, 3], "replay_mode": ["off", "mask", "compact"]}}
            ],
            "workloads": [
                {"name": "s", "kind": "synthetic", "prompt_tokens": 72, "output_tokens": 5}
            ],
        }
    )
    records = list(run(plan, target_factory(plan), observer=NoObserver()))
    points = fill_store(tmp_path / "store", records).points()
    assert points["valid"].all(), points["reason"].tolist()
    references = points.set_index(["axis.replay_mode", "axis.draft_length"])
    for mode in ("mask", "compact"):
        held = references.loc[mode]
        assert held["token_flip_rate_off.n"].gt(0).all()
        assert held["agreement.off_reference"].eq(references.loc[("off", 0), "trial_id"]).all()
    assert references.loc["compact", "equal_outputs"].eq(1.0).all()
    oracle = references.loc[("mask", 0), "trial_id"]
    assert references.loc["compact", "agreement.reference"].eq(oracle).all()
    assert references.loc[("off", 3), "equal_outputs"] == 1.0
