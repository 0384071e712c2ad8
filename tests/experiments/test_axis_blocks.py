"""Ranges, doublings and axes on a condition."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.clock import VirtualClock
from experiments.errors import PlanError
from experiments.plan import load_plan
from experiments.sweep import expanded
from experiments.targets.factory import target_factory
from tests.fakes.sweeps import plan_of


def agenda(**fields):
    plan = plan_of(order="as_written", **fields)
    return expanded(plan, target_factory(plan, VirtualClock()), code_version="v1")


def axes_of(found):
    return [trial.point.axes for trial in found.known]


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ({"range": [1, 9, 2]}, [1, 3, 5, 7, 9]),
        ({"range": [1, 8, 3]}, [1, 4, 7]),
        ({"range": [2, 4]}, [2, 3, 4]),
        ({"range": [5, 5]}, [5]),
        ({"log2": [1, 64]}, [1, 2, 4, 8, 16, 32, 64]),
        ({"log2": [3, 20]}, [3, 6, 12]),
    ],
)
def test_a_range_and_a_doubling_mean_their_list(written, meant):
    found = agenda(axes=[{"product": {"batch_size": written}}])
    assert [axes["batch_size"] for axes in axes_of(found)] == meant
    plan = plan_of(axes=[{"product": {"batch_size": written}}])
    assert plan.axes[0].axes == {"batch_size": meant}
    assert load_plan(plan.document()) == plan


@given(st.integers(-50, 50), st.integers(0, 60), st.integers(1, 9))
def test_a_range_has_both_ends_and_even_steps(first, length, step):
    plan = plan_of(axes=[{"product": {"seed": {"range": [first, first + length * step, step]}}}])
    values = plan.axes[0].axes["seed"]
    assert values == list(range(first, first + length * step + 1, step))


def test_a_range_of_fractions_meets_its_end_exactly():
    plan = plan_of(axes=[{"product": {"memory_fraction": {"range": [0.1, 0.9, 0.1]}}}])
    assert plan.axes[0].axes["memory_fraction"] == [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9]


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ({"range": [1]}, "needs 2 or 3 numbers"),
        ({"range": [9, 1]}, "goes upwards"),
        ({"range": [1, 9, 0]}, "goes upwards"),
        ({"range": [1, 9, -1]}, "goes upwards"),
        ({"range": ["a", 2]}, "needs 2 or 3 numbers"),
        ({"range": [True, 2]}, "needs 2 or 3 numbers"),
        ({"range": [0, float("inf")]}, "needs 2 or 3 numbers"),
        ({"range": [1, 10**12]}, "more than 100000"),
        ({"log2": [0, 8]}, "doubles from first > 0"),
        ({"log2": [8, 2]}, "doubles from"),
        ({"log2": [1, 2, 3]}, "needs 2 numbers"),
        ({"log10": [1, 100]}, "list, range or log2"),
        ({"range": [1, 2], "log2": [1, 2]}, "list, range or log2"),
    ],
)
def test_a_wrong_range_is_refused_with_what_is_wrong(written, said):
    with pytest.raises(PlanError, match=said) as caught:
        plan_of(axes=[{"product": {"batch_size": written}}])
    assert "axes.0.product.batch_size" in caught.value.where


CONDITIONAL = [
    {"product": {"draft_length": [0, 5]}},
    {"when": "draft_length > 0", "product": {"replay_keep_tokens": [140, 256]}},
]


def test_a_conditional_axis_multiplies_only_the_points_that_meet_it():
    found = agenda(axes=CONDITIONAL)
    assert axes_of(found) == [
        {"draft_length": 0, "replay_keep_tokens": 140},  # what holds anyway, said
        {"draft_length": 5, "replay_keep_tokens": 140},
        {"draft_length": 5, "replay_keep_tokens": 256},
    ]
    assert found.notes == ()


def test_points_that_a_condition_leaves_out_keep_what_is_fixed():
    found = agenda(engine={"replay_keep_tokens": 200}, axes=CONDITIONAL)
    assert [axes["replay_keep_tokens"] for axes in axes_of(found)] == [200, 140, 256]


def test_points_that_come_out_equal_through_a_condition_are_one_with_a_note():
    blocks = [
        {"product": {"draft_length": [5]}},
        {"when": "draft_length > 0", "zip": {"replay_keep_tokens": [140, None]}},
    ]
    found = agenda(axes=blocks)
    assert len(found.known) == 1
    (note,) = found.notes
    assert "is measured once" in note


def test_equal_points_without_a_condition_are_refused_as_ever():
    with pytest.raises(PlanError, match="same configuration"):
        agenda(axes=[{"zip": {"replay_keep_tokens": [140, None]}}])


def test_a_condition_may_name_whatever_where_may_and_comes_after_every_other_block():
    blocks = [
        {"when": "batch_size >= 4 and window == 128", "product": {"draft_length": [0, 1]}},
        {"product": {"batch_size": [2, 4]}},
    ]
    assert axes_of(agenda(axes=blocks)) == [
        {"batch_size": 2, "draft_length": 5},
        {"batch_size": 4, "draft_length": 0},
        {"batch_size": 4, "draft_length": 1},
    ]


def test_a_condition_may_vary_the_load_and_the_workload():
    blocks = [
        {"product": {"draft_length": [0, 5]}},
        {"when": "draft_length == 5", "zip": {"batch_size": [2, 4], "prompt_tokens": [16, 32]}},
    ]
    assert axes_of(agenda(axes=blocks)) == [
        {"draft_length": 0, "batch_size": 1, "prompt_tokens": 8},
        {"draft_length": 5, "batch_size": 2, "prompt_tokens": 16},
        {"draft_length": 5, "batch_size": 4, "prompt_tokens": 32},
    ]


@pytest.mark.parametrize(
    ("when", "said"),
    [
        ("draft_len > 0", "axes.when: .*names 'draft_len'"),
        ("draft_length", "axes.when.*not true or false"),
        ("draft_length >", "axes.when.*not an expression"),
        ("__import__('os')", "axes.when"),
    ],
)
def test_a_wrong_condition_is_refused_by_its_place(when, said):
    with pytest.raises(PlanError, match=said):
        agenda(axes=[{"when": when, "product": {"replay_keep_tokens": [140, 256]}}])


@given(
    st.lists(st.integers(0, 5), min_size=1, unique=True),
    st.lists(st.integers(1, 9), min_size=1, max_size=4, unique=True),
    st.lists(st.sampled_from([140, 150, 160, 200]), min_size=1, unique=True),
    st.integers(0, 5),
)
def test_conditions_give_the_points_that_brute_force_gives(drafts, sizes, keeps, threshold):
    blocks = [
        {"when": f"draft_length > {threshold}", "product": {"replay_keep_tokens": keeps}},
        {"product": {"draft_length": drafts, "batch_size": sizes}},
    ]
    expected = {
        (draft, size, keep)
        for draft in drafts
        for size in sizes
        for keep in (keeps if draft > threshold else [140])
    }
    found = [
        (axes["draft_length"], axes["batch_size"], axes["replay_keep_tokens"])
        for axes in axes_of(agenda(axes=blocks))
    ]
    assert len(found) == len(set(found))
    assert set(found) == expected
