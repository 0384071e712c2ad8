import numpy as np

from experiments.metrics import measure
from experiments.statistics import with_intervals
from tests.experiments.records import measurement, request


def spread_requests(seed, count=60):
    rng = np.random.default_rng(seed)
    return [
        request(
            [(s + t, 1), (s + t + d, 10)],
            sent_s=s,
            index=i,
            verify_steps=5,
            proposed_tokens=25,
            accepted_tokens=(accepted := int(rng.integers(0, 6))),
            emitted_tokens=accepted + 5,
        )
        for i, (s, t, d) in enumerate(
            zip(
                np.linspace(0, 8, count),
                rng.uniform(0.1, 0.3, count),
                rng.uniform(0.5, 1.5, count),
                strict=True,
            )
        )
    ]


def test_intervals_hold_the_value_and_are_the_same_for_the_same_seed():
    m = measurement(spread_requests(0))
    metrics = measure(m)
    found = with_intervals(metrics, m, draws=200, seed=1)
    assert found == with_intervals(metrics, m, draws=200, seed=1)
    for name in ("output_tok_s", "ttft_s_p50", "tpot_s_mean", "tok_s_user", "acceptance_length"):
        value = found[name]
        assert value.low < value.value < value.high, name
        assert value.value == metrics[name].value


def test_intervals_of_the_mean_cover_the_truth_about_as_often_as_they_say():
    covered = 0
    for seed in range(100):
        m = measurement(spread_requests(seed))
        ttft = with_intervals(measure(m), m, draws=100, seed=seed)["ttft_s_mean"]
        covered += ttft.low <= 0.2 <= ttft.high
    assert 86 <= covered <= 100


def test_one_request_has_no_interval_and_a_missing_value_stays_missing():
    m = measurement([request([(1.0, 1), (2.0, 1)])])
    found = with_intervals(measure(m), m, draws=50, seed=0)
    assert found["ttft_s_mean"].low is None
    assert found["ttft_s_p99"].value is None
    assert found["ttft_s_p99"].low is None


def test_equal_requests_have_an_interval_of_no_width():
    records = [request([(i + 0.5, 1), (i + 1.0, 5)], sent_s=i, index=i) for i in range(8)]
    m = measurement(records, window_s=(0.0, 8.0))
    rate = with_intervals(measure(m), m, draws=50, seed=0)["output_tok_s"]
    assert rate.high - rate.low < 1e-9
