"""Several engines in one plan: who is asked what, what is refused, what a record says."""

import json
from pathlib import Path

import pytest

from engine.config import describe_fields
from experiments.axes import check_names
from experiments.clock import VirtualClock
from experiments.environment import given_by, locked
from experiments.errors import PlanError
from experiments.observe import NoObserver
from experiments.plan import load_plan
from experiments.records import TrialState
from experiments.sweep import planned, run
from experiments.targets.factory import target_factory

FAST = {"target": "simulated", "simulation": {"tpot_s": 0.0001, "ttft_s": 0.001}}
SLOW = {"target": "simulated", "simulation": {"tpot_s": 0.001, "ttft_s": 0.001}}


def plan(**fields):
    return load_plan({
        "name": "arms",
        "target": "arms",
        "arms": {"fast": FAST, "slow": SLOW},
        "protocol": {"name": "quick", "measured_s": 0.05, "idle_s": 0.0},
        "workloads": [{"name": "s", "kind": "synthetic", "prompt_tokens": 8, "output_tokens": 4}],
        **fields,
    })  # fmt: skip


def swept(built):
    clock = VirtualClock()
    return list(run(built, target_factory(built, clock), clock=clock, observer=NoObserver()))


def test_every_arm_is_measured_and_asked_the_same():
    found = swept(plan(axes=[{"product": {"batch_size": [1, 2]}}]))
    assert [r.state for r in found] == [TrialState.OK] * 4
    assert {(r.point.axes["arm"], r.point.axes["batch_size"]) for r in found} == {
        ("fast", 1), ("fast", 2), ("slow", 1), ("slow", 2),
    }  # fmt: skip
    for size in (1, 2):
        one, other = (
            next(r for r in found if r.point.axes == {"arm": arm, "batch_size": size})
            for arm in ("fast", "slow")
        )
        first, second = (
            {q.index: q.prompt_hash for q in r.requests if not q.warm_up} for r in (one, other)
        )
        shared = first.keys() & second.keys()
        assert shared
        assert all(first[i] == second[i] for i in shared)
        assert one.metrics["tpot_s_mean"].value < other.metrics["tpot_s_mean"].value
    assert {r.point.engine["arm"] for r in found} == {"fast", "slow"}


def test_arms_take_turns_in_every_repeat():
    built = plan(repeats=3, order="as_written")
    arms = [t.point.axes["arm"] for t in planned(built, target_factory(built))]
    assert arms == ["fast", "slow"] * 3


def test_another_arm_changes_no_trial_of_the_others():
    two = planned(plan(), target_factory(plan()))
    more = plan(arms={"fast": FAST, "slow": SLOW, "third": {**FAST, "engine": {"draft_length": 1}}})
    three = planned(more, target_factory(more))
    assert {t.trial_id for t in two} < {t.trial_id for t in three}


def test_an_arm_has_fields_of_its_own_and_shares_those_of_the_plan():
    built = plan(
        engine={"draft_length": 2},
        arms={"fast": FAST, "slow": {**SLOW, "engine": {"draft_length": 0}}},
    )
    found = {t.point.axes["arm"]: t.point.engine for t in planned(built, target_factory(built))}
    assert (found["fast"]["draft_length"], found["slow"]["draft_length"]) == (2, 0)


def test_an_axis_can_be_for_one_arm_alone():
    built = plan(axes=[{"when": "arm == 'fast'", "product": {"draft_length": [0, 2]}}])
    found = [t.point.axes for t in planned(built, target_factory(built))]
    assert [a["draft_length"] for a in found if a["arm"] == "fast"] == [0, 2]
    assert len(found) == 3


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"arms": {}}, "go together"),
        ({"target": "in_process"}, "go together"),
        ({"simulation": {"tpot_s": 1.0}}, "belong into an arm"),
        ({"arms": {"a": {"target": "http"}}}, "go together"),
        ({"arms": {"a": {"target": "server"}}}, "go together"),
        ({"arms": {"a": {**FAST, "engine": {"max_num_sqs": 1}}}}, "arms.a.engine: max_num_sqs"),
        ({"arms": {"a": {"target": "transformers", "engine": {"batch": 1}}}}, "arms.a.engine"),
        ({"axes": [{"product": {"arm": ["fast", "slwo"]}}]}, "Did you mean slow?"),
        (
            {
                "arms": {"a": {**FAST, "engine": {"draft_length": 1}}},
                "axes": [{"product": {"draft_length": [1, 2]}}],
            },
            "both fixed in this arm and an axis",
        ),
        ({"clients": 2}, "clients needs"),
        ({"reference": "third"}, "none of the arms"),
    ],
)
def test_what_cannot_be_meant_is_refused_by_name(fields, words):
    with pytest.raises(PlanError) as caught:
        built = plan(**fields)
        planned(built, target_factory(built))
    assert words in f"{caught.value} {caught.value.remedy}"


def test_a_stored_plan_reads_back_as_it_was():
    built = plan(engine={"draft_length": 1}, arms={"slow": SLOW, "fast": FAST, "also": FAST})
    stored = json.loads(json.dumps(built.document(), sort_keys=True))  # as run.json keeps it
    again = load_plan(stored)
    assert again == built
    assert (built.reference, again.reference) == ("slow", "slow")
    ids = [[t.trial_id for t in planned(p, target_factory(p))] for p in (built, again)]
    assert ids[0] == ids[1]


def test_variables_reach_the_arms_of_our_own_engine_alone():
    other = {"target": "transformers", "engine": {"model": "x"}}
    built = plan(arms={"ours": FAST, "other": other})
    environ = {"DEEPINFER_USE_NEXTN_DECODE": "2"}
    assert given_by(built, environ) == {"draft_length": "DEEPINFER_USE_NEXTN_DECODE"}
    found = locked(built, environ)
    assert found.arms["ours"].engine["draft_length"] == 2
    assert found.arms["other"].engine == {"model": "x"}
    assert "draft_length" in {field.name for field in describe_fields()}


@pytest.mark.parametrize("path", sorted(Path("experiments/plans").glob("peers-*.yaml")))
def test_the_plans_that_ship_name_what_their_engines_have(path):
    built = load_plan(path)
    check_names(built)
    assert next(iter(built.arms)) == "ours"
    assert {arm.target for arm in built.all_arms.values()} >= {"in_process", "transformers", "vllm"}
