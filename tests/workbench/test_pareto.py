"""Dominance against brute force, and who may stand on a front."""

import dataclasses
import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fakes import records
from workbench.errors import ComparisonError, UsageError
from workbench.fronts import pareto
from workbench.pareto import Axis, front_mask, staircase
from workbench.points import points_table
from workbench.trial_files import document

DIRECTIONS = [("max", "max"), ("max", "min"), ("min", "max"), ("min", "min")]
RATE = Axis(metric="output_tok_s_device", direction="max")
USER = Axis(metric="tok_s_user", direction="max")


def brute_force(values, directions):
    """The definition, word by word."""

    def as_good(p, q):
        return all(
            a >= b if way == "max" else a <= b for a, b, way in zip(p, q, directions, strict=True)
        )

    return [not any(as_good(p, q) and not as_good(q, p) for p in values) for q in values]


def table(items):
    return points_table("run", [document(item) for item in items])


@pytest.mark.parametrize("directions", DIRECTIONS)
@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), max_size=40))
def test_two_axes_equal_brute_force_with_ties(directions, rows):
    values = np.array(rows, dtype=float).reshape(-1, 2)
    assert front_mask(values, directions).tolist() == brute_force(rows, directions)


SETS = [pytest.param(10_000, marks=pytest.mark.full), 150]


@pytest.mark.parametrize("sets", SETS)
def test_fronts_of_points_equal_brute_force_with_ties_duplicates_and_missing_values(sets):
    stream = np.random.default_rng(4)
    every = {size: table([records.record(batch_size=k + 1) for k in range(size)])
             for size in range(1, 13)}  # fmt: skip
    for number in range(sets):
        points = every[int(stream.integers(1, 13))]
        cells = stream.integers(0, 5, (len(points), 2)).astype(float)
        cells[stream.random(cells.shape) < 0.15] = stream.choice([np.nan, np.inf, -np.inf])
        points = points.assign(tok_s_user=cells[:, 0], output_tok_s_device=cells[:, 1])
        ways = DIRECTIONS[number % 4]
        axes = (
            dataclasses.replace(a, direction=w) for a, w in zip((USER, RATE), ways, strict=True)
        )
        sound = np.isfinite(cells).all(axis=1)
        expected = np.zeros(len(points), dtype=bool)
        expected[sound] = brute_force([tuple(row) for row in cells[sound]], ways)
        assert pareto(points, *axes).on_front.tolist() == expected.tolist(), (ways, cells)


@given(
    st.lists(st.tuples(*[st.sampled_from([-0.0, 0.0, 1.5, -2.0, 1e300])] * 3), max_size=25),
    st.tuples(*[st.sampled_from(["max", "min"])] * 3),
)
def test_three_axes_equal_brute_force_with_ties(rows, directions):
    values = np.array(rows, dtype=float).reshape(-1, 3)
    assert front_mask(values, directions).tolist() == brute_force(rows, directions)


@given(st.lists(st.floats(-5, 5), max_size=20))
def test_one_axis_keeps_every_copy_of_the_best(rows):
    values = np.array(rows, dtype=float).reshape(-1, 1)
    assert front_mask(values, ["min"]).tolist() == [row == min(rows) for row in rows]


def test_a_hundred_thousand_points_are_swept_like_any_other():
    x = np.arange(100_000, dtype=float)
    values = np.stack([np.append(x, x), np.append(x[::-1], x[::-1] - 1)], axis=1)
    kept = front_mask(values, ("max", "max"))
    assert kept[:100_000].all()
    assert not kept[100_000:].any()


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_dominance_refuses_what_is_not_finite(bad):
    with pytest.raises(ValueError, match="not finite"):
        front_mask(np.array([[1.0, bad]]), ("max", "max"))


def test_a_direction_must_be_said_in_words_that_mean_something():
    with pytest.raises(UsageError, match="upper_right"):
        Axis(metric="tok_s_user", direction="upper_right")


@pytest.mark.parametrize("directions", DIRECTIONS)
@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=20))
def test_no_measured_point_lies_beyond_the_staircase(directions, rows):
    values = np.array(rows, dtype=float)
    front = values[front_mask(values, directions)]
    xs, ys = staircase(front, directions[0])
    assert {tuple(row) for row in front} <= set(zip(xs, ys, strict=True))
    assert (np.diff(xs) >= 0).all()
    for x, y in zip(xs, ys, strict=True):
        attained = [b for a, b in rows if (a >= x if directions[0] == "max" else a <= x)]
        best = max(attained) if directions[1] == "max" else min(attained)
        assert y <= best if directions[1] == "max" else y >= best


def test_invalid_failed_and_missing_points_are_left_out_with_their_reason():
    points = table(records.sweep_records())
    front = pareto(points, USER, RATE)
    reasons = [reason for reason in front.excluded if reason is not None]
    assert len(reasons) == 4
    assert any("2 of 16 requests failed" in reason for reason in reasons)
    assert any(reason.startswith("skipped: ") for reason in reasons)
    for reason, group, member in zip(front.excluded, front.group_of, front.on_front, strict=True):
        assert (reason is None) == (group is not None)
        assert reason is None or not member
    length = pareto(points, USER, Axis(metric="acceptance_length", direction="max"))
    assert "acceptance_length is missing: nothing was drafted" in length.excluded


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, None])
def test_a_value_that_is_not_finite_never_reaches_a_front(bad):
    points = table([records.record(batch_size=1), records.record(batch_size=4)])
    points["tok_s_user"] = pd.Series([bad, 5.0], dtype=float)
    assert pareto(points, USER, RATE).members == (points["trial_id"][1],)


def test_a_value_without_a_sample_never_reaches_a_front():
    points = table([records.record(batch_size=1), records.record(batch_size=4)])
    points.loc[0, "tok_s_user.n"] = 0
    assert pareto(points, USER, RATE).excluded == (
        "tok_s_user rests on no sample (n=0)",
        None,
    )


def test_equal_points_stay_both():
    points = table([records.record(repeat=0), records.record(repeat=1)])
    assert len(pareto(points, USER, RATE).members) == 2


def test_models_and_workloads_get_fronts_of_their_own():
    points = table([records.record(batch_size=1), records.record(batch_size=4)])
    points["engine.model"] = ["toy", "small"]
    front = pareto(points, USER, RATE)
    assert set(front.groups) == {"model=toy", "model=small"}
    assert len(front.members) == 2
    with pytest.raises(ComparisonError, match="no group"):
        front.staircase()


def test_a_checkpoint_is_known_by_its_content_and_not_by_its_path():
    points = table([records.record(batch_size=1), records.record(batch_size=4)])
    points["engine.model"] = ["/here/nano", "/there/copy-of-nano"]
    points["checkpoint"] = ["a" * 32, "a" * 32]
    assert set(pareto(points, USER, RATE).groups) == {"all"}
    points["checkpoint"] = ["a" * 32, "b" * 32]
    points["engine.model"] = ["/here/nano", "/there/nano"]
    assert set(pareto(points, USER, RATE).groups) == {
        "model=nano (aaaaaaaa)",
        "model=nano (bbbbbbbb)",
    }


def test_other_arithmetic_never_shares_a_front():
    points = table([records.record(batch_size=1), records.record(batch_size=4)])
    points["engine.dtype"] = ["float32", "bfloat16"]
    points["engine.accelerator"] = ["cpu", "cuda"]
    front = pareto(points, USER, RATE)
    assert set(front.groups) == {"dtype=float32", "dtype=bfloat16"}
    assert front.on_front.all()


def test_the_same_trial_in_two_runs_is_two_points():
    good, bad = (table([records.record(state=state)]) for state in ("ok", "invalid"))
    bad["run_id"] = "other"
    points = pd.concat([good, bad], ignore_index=True)
    assert points["trial_id"].nunique() == 1
    front = pareto(points, USER, RATE)
    assert front.on_front.tolist() == [True, False]
    assert front.excluded[0] is None
    assert front.excluded[1] is not None


def test_each_asked_group_has_its_front_and_its_staircase():
    points = table(records.sweep_records())
    front = pareto(points, USER, RATE, by="axis.draft_length")
    assert set(front.groups) == {"draft_length=0", "draft_length=5"}
    xs, ys = front.staircase("draft_length=5")
    assert len(xs) == len(ys) == 2 * len(front.groups["draft_length=5"]) - 1
    assert (np.diff(ys) <= 0).all()


def of_formats(*formats):
    """The front of points that are alike but for their dtype and cache format."""
    made = [records.record(batch_size=k + 1) for k in range(len(formats))]
    told = [
        dataclasses.replace(
            one, point=dataclasses.replace(
                one.point, engine={**one.point.engine, "dtype": dtype, "cache_format": cache}
            ),
        )
        for one, (dtype, cache) in zip(made, formats, strict=True)
    ]  # fmt: skip
    return pareto(table(told), USER, RATE)


def test_a_cache_format_that_is_not_told_joins_the_front_of_its_dtype():
    front = of_formats(("bf16", "plain"), ("bf16", None), ("fp32", "plain"), (None, None))
    assert front.group_of == ("dtype=bf16", "dtype=bf16", "dtype=fp32", "dtype=not told")


def test_a_cache_format_that_may_be_one_of_two_is_on_a_front_of_its_own():
    front = of_formats(("bf16", "plain"), ("bf16", "released"), ("bf16", None))
    told = ("plain", "released", "not told")
    assert front.group_of == tuple(f"cache_format={name}" for name in told)


def test_cache_formats_that_nobody_tells_divide_nothing():
    assert {*of_formats(("bf16", None), ("bf16", None)).group_of} == {"all"}


def test_an_unknown_metric_is_named_with_its_nearest():
    with pytest.raises(ComparisonError, match=r"Did you mean tok_s_user\?"):
        pareto(table([records.record()]), Axis(metric="toks_user", direction="max"), RATE)


def test_nothing_stored_is_an_empty_front():
    front = pareto(table([]), USER, RATE)
    assert front.members == ()
    assert front.staircase()[0].size == 0


def test_a_run_in_which_everything_failed_is_an_empty_front_with_every_reason():
    front = pareto(table(records.failed_records()), USER, RATE)
    assert front.members == ()
    assert set(front.excluded) == {"failed: the engine stopped: out of memory"}


@pytest.mark.parametrize("name", ["axis.draft_length", "state", "ttft_s_p50.low", "repeat"])
def test_only_metrics_are_axes_of_a_front(name):
    points = table(records.sweep_records())
    assert name in points.columns
    with pytest.raises(ComparisonError, match="is no metric") as caught:
        pareto(points, Axis(metric=name, direction="max"), RATE)
    assert caught.value.exit_code == 2
