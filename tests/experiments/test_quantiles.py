"""Quantiles of samples that count more than once, and what few samples say of one."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.metrics import measure
from experiments.proportions import share_between
from experiments.quantiles import needed_samples, quantile_of, weighted_quantiles
from tests.experiments.records import measurement, request

counted = st.lists(
    st.tuples(st.floats(0, 1e6, allow_nan=False), st.integers(0, 5)), min_size=1, max_size=40
)


@given(counted, st.lists(st.floats(0, 1), min_size=1, max_size=5))
def test_counted_values_have_the_quantiles_of_the_repeated_ones(pairs, wanted):
    values, counts = (np.array(side) for side in zip(*sorted(pairs), strict=True))
    found = weighted_quantiles(values.astype(float), counts[None], wanted)[:, 0]
    if not counts.sum():
        assert np.isnan(found).all()
        return
    assert found == pytest.approx(np.quantile(np.repeat(values, counts), wanted))


@given(counted)
def test_quantiles_never_fall(pairs):
    # locustio/locust 254: p100 below p99
    values, counts = (np.array(side) for side in zip(*sorted(pairs), strict=True))
    ladder = weighted_quantiles(values.astype(float), counts[None], [0, 0.25, 0.5, 0.9, 0.99, 1])
    steps = np.diff(ladder[:, 0])
    assert np.isnan(steps).all() or (steps >= 0).all()


@pytest.mark.parametrize("quantile", [0.25, 0.5, 0.9, 0.99, 0.999])
def test_any_quantile_can_be_asked(quantile):
    # vllm-project/vllm 15793: KeyError p99
    n = needed_samples(quantile)
    values = np.arange(n, dtype=float)
    found = quantile_of(values, np.ones(n, dtype=int), quantile, empty="", independent=n)
    assert found.value == pytest.approx(np.quantile(values, quantile))


def test_too_few_samples_bound_a_quantile_from_below_only():
    # vllm-project/vllm 7062: two p99 of few samples differ by 30 to 90 %.
    records = [request([(1.0 + i, 1)], index=i) for i in range(40)]
    found = measure(measurement(records, window_s=(0.0, 100.0)))["ttft_s_p99"]
    assert found.value is None
    assert found.reason == "n=40 < 200"
    assert found.low == 38.0  # P(fewer than 38 of 40 below the true p99) = 0.7 %, than 39: 6 %
    assert found.high is None


def test_the_bound_holds_as_often_as_it_says():
    rng = np.random.default_rng(0)
    truth = -np.log(0.1)  # p90 of the exponential distribution
    bounds = [
        quantile_of(
            rng.exponential(size=15), np.ones(15, dtype=int), 0.9, empty="", independent=15
        ).low
        for _ in range(2000)
    ]
    below = np.mean([bound is None or bound <= truth for bound in bounds])
    assert 0.96 <= below <= 1.0


def test_requests_in_lockstep_bound_no_more_than_their_batches_do():
    values = np.repeat(np.arange(4.0), 10)
    alone, together = (
        quantile_of(values, np.ones(40, dtype=int), 0.99, empty="", independent=k) for k in (40, 4)
    )
    assert together.low <= alone.low


def test_the_speed_of_the_slowest_is_bounded_from_above_where_their_time_is_from_below():
    records = [request([(0.0, 1), (1.0 + i, 10)], index=i) for i in range(40)]
    found = measure(measurement(records, window_s=(0.0, 100.0)))
    assert found["tok_s_user_p1"].value is None
    assert found["tok_s_user_p1"].high == pytest.approx(1 / found["tpot_s_p99"].low)
    assert found["tok_s_user_p1"].low is None


def test_a_share_stays_inside_its_range_at_both_ends():
    assert share_between(0, 0) == (None, None)
    for count in (0, 1, 9, 10):
        low, high = share_between(count, 10)
        assert 0 <= low <= count / 10 <= high <= 1
    assert share_between(0, 100)[1] == pytest.approx(0.037, abs=0.001)
