import numpy as np

from experiments.metrics import measure
from experiments.statistics import clusters, with_intervals
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
    assert found["ttft_s_p99"].high is None


def test_equal_requests_have_an_interval_of_no_width():
    records = [request([(i + 0.5, 1), (i + 1.0, 5)], sent_s=i, index=i) for i in range(8)]
    m = measurement(records, window_s=(0.0, 8.0))
    rate = with_intervals(measure(m), m, draws=50, seed=0)["output_tok_s"]
    assert rate.high - rate.low < 1e-9


def lockstep(batches, size=8):
    """`size` requests a batch that move together; batches differ."""
    return [
        request(
            [(b + 0.2 + b / 100, 1), (b + 0.9 - b / 50, 9)], sent_s=float(b), index=size * b + i
        )
        for b in range(batches)
        for i in range(size)
    ]


def test_requests_that_move_in_lockstep_are_one_observation():
    few = lockstep(5)
    assert len(set(clusters(few))) == 5
    m = measurement(few)
    found = with_intervals(measure(m), m, draws=50, seed=0)
    for name in ("output_tok_s", "ttft_s_p50", "tok_s_user", "itl_s_mean"):
        assert found[name].value is not None
        assert found[name].low is None, name


def test_copies_of_a_batch_do_not_narrow_the_interval():
    wide, alone = (
        with_intervals(measure(m), m, draws=200, seed=0)["ttft_s_mean"]
        for m in (measurement(lockstep(8)), measurement(lockstep(8, size=1)))
    )
    assert wide.high - wide.low > 0
    assert (wide.low, wide.high) == (alone.low, alone.high) or abs(wide.low - alone.low) < 1e-12
