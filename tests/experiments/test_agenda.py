"""What a sweep asks for: repeats with a stop rule, and the same rest after any interruption."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.errors import PlanError, TargetCapacityError, TargetError
from experiments.records import TrialState
from experiments.repeat_rule import RepeatRule, StopRule, relative_half_width
from tests.fakes.sweeps import Rules, essence, plan_of, sweep, told_by

BLOCKS = [{"product": {"batch_size": [1, 2, 4], "draft_length": [0, 5]}}]
STOP = {"min": 2, "max": 5, "stop": {"metric": "output_tok_s", "rel_ci": 0.05}}


def test_repeats_stop_where_the_mean_is_known_and_never_go_beyond_the_cap():
    still = list(sweep(plan_of(axes=BLOCKS, repeats=STOP)))
    assert len(still) == 6 * 2, "without noise the least is enough"
    noisy = list(sweep(plan_of(axes=BLOCKS, repeats=STOP), Rules(jitter=3.0)))
    counts = [
        sum(r.point.axes == {"batch_size": size, "draft_length": draft} for r in noisy)
        for size, draft in itertools.product((1, 2, 4), (0, 5))
    ]
    assert all(2 <= count <= 5 for count in counts)
    assert max(counts) > 2
    for record in noisy:
        values = [
            other.metrics["output_tok_s"].value
            for other in noisy
            if other.point == record.point and other.repeat < record.repeat
        ]
        assert record.repeat < 2 or relative_half_width(values) > 0.05, "it was settled already"


def test_a_cap_on_trials_is_a_cap_with_a_stop_rule_too():
    # ai-dynamo/aiperf 1326
    assert len(list(sweep(plan_of(axes=BLOCKS, repeats=STOP, max_trials=7)))) == 7


def test_a_point_that_never_measures_anything_is_given_up_after_the_least():
    rules = Rules(dies=lambda engine, flying: engine["draft_length"] == 5)
    found = list(sweep(plan_of(axes=BLOCKS, repeats=STOP), rules))
    lost = [record for record in found if record.point.axes["draft_length"] == 5]
    assert len(lost) == 3 * 2
    assert not any(record.state is TrialState.OK for record in lost)


def test_half_the_interval_is_student_s():
    assert relative_half_width([1.0, 1.0]) == 0
    assert relative_half_width([9.0, 10.0, 11.0]) == pytest.approx(4.3027 / 3**0.5 / 10, rel=1e-3)
    assert relative_half_width([-1.0, 1.0]) == float("inf")


@given(
    st.lists(st.floats(0.5, 2.0), min_size=0, max_size=8),
    st.integers(0, 12),
    st.integers(2, 4),
    st.integers(0, 4),
)
def test_a_rule_is_never_settled_below_its_least_and_always_at_its_most(
    values, measured, least, more
):
    rule = RepeatRule(min=least, max=least + more, stop=StopRule(rel_ci=0.1))
    settled = rule.settled(measured, values)
    assert settled or measured < rule.max
    assert not settled or measured >= rule.min


@pytest.mark.parametrize(
    ("repeats", "said"),
    [
        (0, "repeats"),
        ({"min": 5, "max": 3}, "max 3 is below min 5"),
        ({"min": 2, "max": 3}, "no stop rule"),
        ({"min": 1, "max": 3, "stop": {}}, "needs min 2"),
        ({"min": 2, "max": 3, "stop": {"rel_ci": 0}}, "rel_ci"),
        ({"min": 2, "max": 3, "stop": {"metrics": "x"}}, "Did you mean metric"),
        ({"min": 2, "max": 3, "stop": {"metric": "output_toks"}}, "no metric.*output_tok"),
        ({"min": 2, "max": 10**9, "stop": {}}, "more than 100000"),
        (True, "repeats"),
    ],
)
def test_a_wrong_rule_is_refused(repeats, said):
    with pytest.raises(PlanError, match=said):
        list(sweep(plan_of(repeats=repeats)))


def failing_rules():
    """One configuration runs out of room, one dies under load, one does not start at all."""
    return Rules(
        jitter=2.0,
        capacity=lambda engine: 2 if engine["draft_length"] == 1 else None,
        dies=lambda engine, flying: engine["draft_length"] == 2 and flying > 1,
        refuses_start=lambda engine: {
            3: TargetError("no driver"), 4: TargetCapacityError("the weights do not fit")
        }.get(engine["draft_length"]),
    )  # fmt: skip


PLANS = {
    "grid": {"axes": BLOCKS, "repeats": 2},
    "as written": {"axes": BLOCKS, "order": "as_written", "repeats": 2},
    "stop rule": {"axes": BLOCKS, "repeats": STOP},
    "failures": {
        "axes": [{"product": {"batch_size": [1, 2, 4], "draft_length": [0, 1, 2, 3, 4, 5]}}],
        "repeats": {**STOP, "max": 3},
    },
    "conditional": {
        "axes": [
            {"product": {"draft_length": [0, 5]}},
            {"when": "draft_length > 0", "product": {"batch_size": [1, 2]}},
        ],
        "repeats": STOP,
    },
    "capped": {"axes": BLOCKS, "repeats": STOP, "max_trials": 9},
}
WHOLE = {}


def whole(name):
    """All records of a plan in one piece; measured once."""
    if name not in WHOLE:
        WHOLE[name] = list(sweep(plan_of(**PLANS[name]), failing_rules()))
    return WHOLE[name]


@given(st.sampled_from(sorted(PLANS)), st.data())
def test_any_beginning_and_what_a_resume_measures_are_the_whole(name, data):
    records = whole(name)
    cut = data.draw(st.integers(0, len(records)))
    rest = sweep(plan_of(**PLANS[name]), failing_rules(), told=told_by(records[:cut]))
    assert [*map(essence, records[:cut]), *map(essence, rest)] == [*map(essence, records)]


@given(st.sampled_from(["grid", "stop rule", "conditional"]), st.data())
def test_any_stored_part_is_completed_to_the_same_trials(name, data):
    records = whole(name)
    kept = data.draw(st.lists(st.sampled_from(records), unique_by=id))
    rest = list(sweep(plan_of(**PLANS[name]), failing_rules(), told=told_by(kept)))
    assert {r.trial_id for r in rest} | {r.trial_id for r in kept} == {r.trial_id for r in records}
    assert not {r.trial_id for r in rest} & {r.trial_id for r in kept}


@given(st.integers(0, 1000), st.permutations([0, 1, 5]), st.permutations([1, 2, 4]))
def test_the_order_of_writing_and_the_seed_change_no_set_of_points(seed, drafts, sizes):
    blocks = [{"product": {"batch_size": list(sizes), "draft_length": list(drafts)}}]
    from experiments.clock import VirtualClock
    from experiments.sweep import planned
    from experiments.targets.factory import target_factory

    plan = plan_of(axes=blocks, seed=seed, repeats=2)
    trials = planned(plan, target_factory(plan, VirtualClock()))
    assert len({trial.trial_id for trial in trials}) == len(trials) == 18
    assert [trial.repeat for trial in trials] == [0] * 9 + [1] * 9
    for once in (trials[:9], trials[9:]):
        keys = [key for key, _ in itertools.groupby(trial.engine_key for trial in once)]
        assert len(keys) == len(set(keys)) == 3, "an engine starts once a pass"
        salts = {(t.point.axes["batch_size"], t.repeat): t.salt for t in once}
        assert all(t.salt == salts[t.point.axes["batch_size"], t.repeat] for t in once)
