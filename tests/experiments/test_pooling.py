"""Quantiles over repeats rest on all their requests, and columns hold the samples of requests."""

import dataclasses
import re
from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.measurement import samples
from experiments.metric_specs import FAMILIES, METRICS
from experiments.metrics import measure
from experiments.pooling import POOLED_METRICS, pooled_quantiles
from experiments.request_columns import RequestColumns
from tests.experiments.records import measurement, request

TRUE_P99 = float(np.exp(np.hypot(0.5, 0.05) * NormalDist().inv_cdf(0.99)))


def columns(requests, unsuccessful=0):
    chunks = [chunk for r in requests for chunk in r.chunks]
    return RequestColumns(
        intended_s=np.array([r.intended_s for r in requests], dtype=float),
        sent_s=np.array([r.sent_s for r in requests], dtype=float),
        chunk_count=np.array([len(r.chunks) for r in requests], dtype=np.int64),
        chunk_time_s=np.array([c.time_s for c in chunks], dtype=float),
        chunk_tokens=np.array([c.tokens for c in chunks], dtype=np.int64),
        unsuccessful=unsuccessful,
    )


chunk_lists = st.lists(st.tuples(st.floats(0, 0.5), st.integers(1, 4)), min_size=1, max_size=6).map(
    lambda steps: [(0.1 + sum(s for s, _ in steps[: k + 1]), n) for k, (_, n) in enumerate(steps)]
)


@given(st.lists(chunk_lists, max_size=8))
def test_columns_hold_the_samples_that_the_requests_have(streams):
    requests = [request(chunks, index=k) for k, chunks in enumerate(streams)]
    for family in FAMILIES:
        assert columns(requests).samples(family) == pytest.approx(samples(family, requests)), family


@given(st.lists(chunk_lists, min_size=5, max_size=40))
def test_the_quantiles_of_one_repeat_are_the_metrics_of_the_trial(streams):
    requests = [request(chunks, index=k) for k, chunks in enumerate(streams)]
    metrics = measure(measurement(requests))
    for name, found in pooled_quantiles([columns(requests)]).items():
        if metrics[name].value is None:
            assert found.metric.value is None, name
            continue
        assert found.metric.value == pytest.approx(metrics[name].value), name
        assert found.metric.n == metrics[name].n
        assert found.metric.low is None  # one repeat says nothing of others


def waits(*ttfts):
    return columns([request([(t, 1), (t + 1, 9)], index=k) for k, t in enumerate(ttfts)])


def test_a_quantile_over_repeats_is_that_of_all_requests_and_no_mean_of_quantiles():
    calm, slow = waits(*[1.0] * 30), waits(*[1.0] * 20, *[9.0] * 10)
    found = pooled_quantiles([calm, slow])["ttft_s_p90"].metric
    assert found.value == 9.0  # the repeats' own are 1 and 9; of 60 requests 10 waited 9
    assert found.n == 60


def test_requests_of_repeats_together_allow_a_quantile_that_none_allows_alone():
    each = [waits(*np.linspace(1, 2, 80) * (1 + 0.01 * k)) for k in range(3)]
    assert pooled_quantiles(each[:1])["ttft_s_p99"].metric.reason == "n=80 < 200"
    found = pooled_quantiles(each)["ttft_s_p99"].metric
    assert found.n == 240
    assert found.value is not None


def test_a_pooled_quantile_has_an_interval_only_where_every_repeat_has_samples_of_its_own():
    def spread(*counts):
        each = [waits(*np.linspace(1, 2, n) * (1 + 0.01 * k)) for k, n in enumerate(counts)]
        return pooled_quantiles(each, frozenset({"ttft_s_p99"}))["ttft_s_p99"]

    few = spread(200, 199)
    assert few.metric.low is None
    assert few.metric.reason == "no interval: a repeat has n=199 < 200"
    assert not len(few.by_repeat)
    enough = spread(200, 200)
    assert enough.metric.low < enough.metric.value < enough.metric.high
    assert enough.metric.reason is None


@pytest.mark.parametrize("studies", [pytest.param(2000, marks=pytest.mark.full), 300])
@pytest.mark.parametrize("repeats", [3, 5])
def test_the_interval_of_a_tail_covers_the_truth_about_as_often_as_it_says(studies, repeats):
    generator, plain, covered = np.random.default_rng(repeats), waits(1.0), 0
    for _ in range(studies):
        each = [
            dataclasses.replace(plain, client_lag_s=np.exp(lag + generator.normal(0, 0.5, 200)))
            for lag in 0.05 * generator.standard_normal(repeats)
        ]
        found = pooled_quantiles(each, frozenset({"client_lag_s_p99"}))["client_lag_s_p99"].metric
        covered += found.low <= TRUE_P99 <= found.high
    print(f"{repeats} repeats of 200: {covered / studies:.1%} covered of {studies}")
    assert covered / studies > 0.9


def test_failures_of_any_repeat_are_infinite_in_adjusted_quantiles():
    fine = [waits(*[1.0] * 20) for _ in range(2)]
    assert pooled_quantiles(fine)["e2e_s_p90_adj"].metric.value == 2.0
    failing = [columns([], unsuccessful=20), *fine]
    assert "infinite" in pooled_quantiles(failing)["e2e_s_p90_adj"].metric.reason


def test_lags_of_a_client_are_pooled_with_those_of_requests_that_failed():
    alone = pooled_quantiles([waits(1.0, 2.0, 3.0, 4.0)])["client_lag_s_p50"]
    assert alone.metric.n == 0  # no client of its own
    told = [
        dataclasses.replace(waits(1.0), client_lag_s=np.full(300, lag), unsuccessful=299)
        for lag in (0.001, 0.003)
    ]
    assert pooled_quantiles(told)["client_lag_s_p99"].metric.value == 0.003


def test_every_quantile_metric_has_a_rule():
    named = {name for name in METRICS if re.search(r"_p\d+(_adj)?$", name)}
    positions = {name for name in named if name.startswith("acceptance_p")}  # of a draft
    assert named - positions == POOLED_METRICS


def test_time_to_the_first_word_skips_reasoning_and_requests_that_only_reasoned():
    plain = waits(1.0, 2.0, 3.0)
    assert plain.samples("ttfo_s") == pytest.approx(plain.samples("ttft_s"))
    thinking = dataclasses.replace(plain, spoken_s=np.array([2.5, np.nan, 4.0]))
    assert thinking.samples("ttfo_s") == pytest.approx([2.5, 4.0])
