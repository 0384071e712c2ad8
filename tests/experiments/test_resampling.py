"""Intervals, draws and effects over repeats, held against tables and against known truths."""

import math

import numpy as np
import pytest

from experiments.resampling import (
    draws_over_repeats,
    needed_repeats,
    over_repeats,
    paired_effect,
    t_quantile,
    unpaired_effect,
)

MARK = [pytest.param(10_000, marks=pytest.mark.full), 1_500]


@pytest.mark.parametrize(
    ("probability", "freedom", "table"),
    [
        (0.975, 1, 12.7062), (0.975, 2, 4.3027), (0.975, 3, 3.1824), (0.975, 10, 2.2281),
        (0.975, 29, 2.0452), (0.975, 120, 1.9799), (0.9, 5, 1.4759), (0.995, 7, 3.4995),
        (0.975, 1e9, 1.95996), (0.975, 2.9, 4.3027),
    ],
)  # fmt: skip
def test_students_quantiles_are_those_of_the_table(probability, freedom, table):
    assert t_quantile(probability, freedom) == pytest.approx(table, abs=2e-4)


@pytest.mark.parametrize("repeats", [2, 3, 5])
def test_an_interval_over_repeats_covers_the_truth_as_often_as_it_says(repeats):
    generator = np.random.default_rng(repeats)
    values = 100 * np.exp(0.02 * generator.standard_normal((repeats, 4000)))
    low, high = over_repeats(values, values.mean(axis=0))
    assert 0.94 <= ((low <= 100) & (high >= 100)).mean() <= 0.96


def test_draws_of_repeats_have_the_quantiles_of_their_interval_and_keep_what_metrics_share():
    values = np.array([[1.0, 20.0], [1.02, 20.5], [0.97, 19.4]])
    means = values.mean(axis=0)
    drawn = draws_over_repeats(values, means, draws=100_000, seed=1)
    low, high = over_repeats(values, means)
    assert np.quantile(drawn, 0.025, axis=0) == pytest.approx(low, rel=0.01)
    assert np.quantile(drawn, 0.975, axis=0) == pytest.approx(high, rel=0.01)
    ranks = drawn.argsort(axis=0).argsort(axis=0)
    assert np.corrcoef(ranks.T)[0, 1] > 0.99
    assert (drawn == draws_over_repeats(values, means, draws=100_000, seed=1)).all()


def test_draws_from_two_repeats_reach_far_and_stay_finite():
    values = np.array([[1.0, -5.0], [9.0, 5.0]])
    drawn = draws_over_repeats(values, values.mean(axis=0), draws=20_000, seed=3)
    assert np.isfinite(drawn).all()
    assert (drawn[:, 0] > 0).all()


def test_one_repeat_has_no_interval_and_zeros_have_one_without_a_logarithm():
    assert np.isnan(over_repeats(np.array([[1.0]]), np.array([1.0]))).all()
    low, high = over_repeats(np.array([[0.0], [1.0], [2.0]]), np.array([1.0]))
    assert low[0] == pytest.approx(1 - 4.3027 / math.sqrt(3), abs=1e-3)
    assert high[0] == pytest.approx(1 + 4.3027 / math.sqrt(3), abs=1e-3)


def arms(generator, studies, repeats, gain, drift=0.0):
    """[2, studies, repeats] throughputs with a CV of 1 %, and a drift that both arms share."""
    shared = drift * generator.standard_normal((studies, repeats))
    noise = 0.01 * generator.standard_normal((2, studies, repeats))
    return 100 * np.exp(noise + shared) * np.array([1.0, gain])[:, None, None]


def told_different(effect):
    return not effect.low <= 1 <= effect.high


@pytest.mark.parametrize("studies", MARK)
@pytest.mark.parametrize("compare", [paired_effect, unpaired_effect])
@pytest.mark.parametrize("repeats", [3, 6])
def test_two_equal_arms_are_told_different_in_at_most_one_study_of_twenty(
    studies, compare, repeats
):
    a, b = arms(np.random.default_rng(5), studies, repeats, gain=1.0)
    false = sum(told_different(compare(x, y)) for x, y in zip(a, b, strict=True)) / studies
    print(f"{compare.__name__}, {repeats} repeats: {false:.2%} false of {studies}")
    assert false <= 0.05 + 2.6 * math.sqrt(0.05 * 0.95 / studies)


@pytest.mark.parametrize("studies", MARK)
@pytest.mark.parametrize("gain", [1.03, 1 / 1.03])
def test_a_gain_of_3_percent_is_found_with_six_repeats(studies, gain):
    a, b = arms(np.random.default_rng(6), studies, 6, gain=gain, drift=0.05)
    found = sum(told_different(paired_effect(x, y)) for x, y in zip(a, b, strict=True)) / studies
    print(f"gain {gain:.3f}, 6 blocks: found in {found:.2%} of {studies}")
    assert found >= 0.9


def test_a_drift_that_both_arms_share_hides_a_gain_from_arms_that_are_not_paired():
    a, b = arms(np.random.default_rng(7), 200, 6, gain=1.03, drift=0.05)
    paired = [paired_effect(x, y) for x, y in zip(a, b, strict=True)]
    apart = [unpaired_effect(x, y) for x, y in zip(a, b, strict=True)]
    assert sum(map(told_different, paired)) > 180
    assert sum(map(told_different, apart)) < 60


def test_needed_repeats_find_what_they_promise():
    scatter = 0.01 * math.sqrt(2)
    needed = needed_repeats(scatter, 1.03)
    a, b = arms(np.random.default_rng(8), 1000, needed, gain=1.03)
    found = sum(told_different(paired_effect(x, y)) for x, y in zip(a, b, strict=True)) / 1000
    assert found >= 0.87
    assert needed <= 6
    assert needed_repeats(1.0, 1.0001) is None
    assert needed_repeats(0.0, 1.03) == 2


def test_one_repeat_of_an_arm_gives_a_ratio_and_no_interval():
    effect = unpaired_effect(np.array([100.0]), np.array([104.0, 103.0]))
    assert effect.low is None
    assert effect.high is None
    assert effect.ratio == pytest.approx(1.035, abs=1e-3)
