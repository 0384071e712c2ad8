"""Arms that a run leaves out, and engines that start once for all their repeats."""

from pathlib import Path

import pytest

from experiments import plans
from experiments.arm_choice import present, without_arms
from experiments.errors import PlanError
from experiments.plan import load_plan
from experiments.sweep import planned
from experiments.targets.factory import target_factory

SIMULATED = {"target": "simulated"}
ABSENT = {"target": "vllm", "engine": {"model": "m", "python": "/no/such/python"}}


def plan(**fields):
    plain = {
        "name": "arms", "target": "arms", "workloads": [{
            "name": "random", "kind": "synthetic", "prompt_tokens": 4, "output_tokens": 4}],
        "arms": {"a": SIMULATED, "b": SIMULATED, "c": SIMULATED},
        "axes": [{"product": {"arm": ["c", "a", "b"], "batch_size": [2, 1]}}],
    }  # fmt: skip
    return load_plan({**plain, **fields})


def asked(plan):
    found = planned(plan, target_factory(plan))
    return [(t.point.axes["arm"], t.point.axes["batch_size"], t.repeat) for t in found]


def test_an_arm_is_left_out_with_its_points_and_the_others_keep_their_ids():
    whole = plan(order="as_written")
    fewer = without_arms(whole, ["c"])
    assert list(fewer.arms) == ["a", "b"]
    assert asked(fewer) == [("a", 2, 0), ("a", 1, 0), ("b", 2, 0), ("b", 1, 0)]
    assert fewer.reference == "a"
    assert without_arms(whole, ["a"]).reference == "b"
    ids = {trial.trial_id for trial in planned(fewer, target_factory(fewer))}
    assert ids < {trial.trial_id for trial in planned(whole, target_factory(whole))}


def test_places_of_a_zip_go_with_their_arm():
    zipped = plan(axes=[{"zip": {"arm": ["a", "b", "c"], "batch_size": [4, 2, 1]}}])
    assert sorted(asked(without_arms(zipped, ["b"]))) == [("a", 4, 0), ("c", 1, 0)]


def test_an_arm_that_there_is_not_and_the_last_one_are_refused():
    with pytest.raises(PlanError, match="'d' is no arm"):
        without_arms(plan(), ["d"])
    with pytest.raises(PlanError, match="leaves no arm"):
        without_arms(plan(), ["a", "b", "c"])


def test_an_optional_arm_that_cannot_start_is_left_out_with_its_reason():
    arms = {"a": SIMULATED, "b": SIMULATED, "c": {**ABSENT, "optional": True}}
    found, absent = present(plan(arms=arms))
    assert list(found.arms) == ["a", "b"]
    assert "/no/such/python" in absent["c"]
    assert {arm for arm, _, _ in asked(found)} == {"a", "b"}


def test_an_arm_that_is_not_optional_stays():
    whole = plan(arms={"a": SIMULATED, "b": SIMULATED, "c": ABSENT})
    assert present(whole) == (whole, {})


def test_engine_by_engine_starts_each_engine_once_and_makes_all_its_repeats():
    found = asked(plan(order="engine_by_engine", repeats=2))
    points = [(batch_size, repeat) for repeat in (0, 1) for batch_size in (2, 1)]
    assert found == [(arm, *point) for arm in ("c", "a", "b") for point in points]
    written = asked(plan(order="as_written", repeats=2))
    assert sorted(written) == sorted(found)
    assert written != found


def test_the_stop_rule_counts_the_repeats_of_an_engine_that_makes_them_in_a_row():
    from experiments.agenda import Grid
    from experiments.outcome import Outcome
    from experiments.records import TrialState
    from experiments.space import Space

    rule = {"min": 2, "max": 4, "stop": {"metric": "output_tok_s", "rel_ci": 0.5}}
    chosen = plan(order="engine_by_engine", repeats=rule)
    asking = Grid(Space(chosen, target_factory(chosen)(), "unknown")).ask()
    trial, seen = next(asking), []
    while trial is not None:
        seen.append((trial.point.axes["arm"], trial.point.axes["batch_size"], trial.repeat))
        outcome = Outcome(state=TrialState.OK, values={"output_tok_s": 100.0})
        try:
            trial = asking.send(outcome)
        except StopIteration:
            trial = None
    assert len(seen) == 3 * 2 * 2
    assert [one[0] for one in seen] == ["c"] * 4 + ["a"] * 4 + ["b"] * 4


def test_the_plan_of_peers_asks_ours_first_and_bounds_the_slow_one():
    published = load_plan(Path(plans.__file__).parent / "peers-h200.yaml")
    document = published.document()
    arms = dict.fromkeys(document["arms"], SIMULATED)
    found = asked(load_plan({**document, "engine": {}, "arms": arms}))
    order = list(dict.fromkeys(arm for arm, _, _ in found))
    assert order == ["ours", "vllm", "transformers"]
    assert [arm for arm, _, _ in found] == ["ours"] * 9 + ["vllm"] * 9 + ["transformers"] * 6
    assert {size for arm, size, _ in found if arm == "transformers"} == {256, 32}
    assert {name for name, arm in published.arms.items() if arm.optional} == {
        "vllm", "transformers",
    }  # fmt: skip
    tokens = published.protocol.warm_up_output_tokens
    assert tokens is not None
    assert tokens >= 40
