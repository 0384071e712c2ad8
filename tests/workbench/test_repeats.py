"""Repeats of one point are one point, which competes with other points only."""

import dataclasses

import numpy as np
import pytest

from experiments.measurement import Measurement, e2e_s, ttft_s
from experiments.metrics import measure
from experiments.records import ChunkKind, MetricValue, TrialState
from tests.fakes import measured, records
from workbench.fronts import pareto
from workbench.pareto import Axis
from workbench.report import report_files

USER = Axis(metric="tok_s_user", direction="max")
RATE = Axis(metric="output_tok_s_device", direction="max")


def repeat(number, rate, user, *, state=TrialState.OK, **axes):
    plain = records.record(state=state, repeat=number, **axes)
    values = {"output_tok_s_device": rate, "tok_s_user": user}
    metrics = {
        name: MetricValue(value=v, n=10, low=v - 1, high=v + 1) for name, v in values.items()
    }
    return dataclasses.replace(plain, metrics={**plain.metrics, **metrics})


def stored(tmp_path, *items):
    return records.fill_store(tmp_path, list(items))


def test_repeats_are_one_point_at_their_mean(tmp_path):
    run = stored(tmp_path, repeat(0, 100.0, 10.0), repeat(1, 130.0, 7.0), repeat(2, 70.0, 13.0))
    assert len(run.trials()) == 3
    (point,) = run.points().to_dict("records")
    assert point["repeats"] == 3
    assert point["output_tok_s_device"] == pytest.approx(100.0)
    assert point["tok_s_user"] == pytest.approx(10.0)
    assert point["tok_s_user.n"] == 30
    logs = np.log([10.0, 7.0, 13.0])
    half = 4.302653 * logs.std(ddof=1) / np.sqrt(3)  # Student's t with 2 degrees of freedom
    assert point["tok_s_user.low"] == pytest.approx(10.0 * np.exp(-half), rel=1e-5)
    assert point["tok_s_user.high"] == pytest.approx(10.0 * np.exp(half), rel=1e-5)
    assert point["interval_basis"] == "over 3 repeats"
    assert point["trial_ids"] == tuple(run.trials()["trial_id"])


def test_quantiles_of_repeats_rest_on_all_their_requests(tmp_path):
    items = measured.repeats(3, count=80)
    run = stored(tmp_path, *items)
    (point,) = run.points().to_dict("records")
    waits = [ttft_s(r) for item in items for r in item.requests]
    assert point["ttft_s_p99"] == pytest.approx(np.quantile(waits, 0.99))
    assert point["ttft_s_p99.n"] == 240  # no repeat has enough for itself
    assert np.isnan(point["ttft_s_p99.low"])
    assert point["ttft_s_p99.reason"] == "no interval: a repeat has n=80 < 200"
    assert point["ttft_s_p50.low"] < point["ttft_s_p50"] < point["ttft_s_p50.high"]


def test_what_failed_before_the_window_is_in_no_quantile_over_repeats(tmp_path):
    items = [ramped(item, failed=range(8)) for item in measured.repeats(2, count=40)]
    (point,) = stored(tmp_path, *items).points().to_dict("records")
    times = [e2e_s(r) for item in items for r in item.requests[10:]]
    assert point["e2e_s_p90_adj"] == pytest.approx(np.quantile(times, 0.9, method="higher"))
    assert point["e2e_s_p90_adj.n"] == 60


def ramped(item, *, failed):
    """The trial as one whose load settled with its tenth request; those of `failed` failed."""
    requests = tuple(
        dataclasses.replace(r, error="HTTP 500", finish_reason="error") if k in failed else r
        for k, r in enumerate(item.requests)
    )
    begin = requests[10].sent_s
    m = Measurement(requests=requests, window_s=(begin, item.window_s[1]), devices=1, ramp_s=begin)
    return dataclasses.replace(item, requests=requests, window_s=m.window_s, metrics=measure(m))


def test_reasoning_is_told_from_answers_in_the_stored_requests(tmp_path):
    def thinking(item):
        requests = tuple(
            dataclasses.replace(
                r,
                chunks=tuple(
                    dataclasses.replace(c, kind=ChunkKind.REASONING) if place < 3 else c
                    for place, c in enumerate(r.chunks)
                ),
            )
            for r in item.requests
        )
        return dataclasses.replace(item, requests=requests)

    items = [thinking(item) for item in measured.repeats(2, count=30)]
    (point,) = stored(tmp_path, *items).points().to_dict("records")
    spoken = [r.chunks[3].time_s - r.sent_s for item in items for r in item.requests]
    assert point["ttfo_s_p90"] == pytest.approx(np.quantile(spoken, 0.9))


def test_quantiles_beyond_what_may_be_read_are_missing_and_means_are_there(tmp_path):
    run = stored(tmp_path, *measured.repeats(2), *measured.repeats(2, draft_length=5))
    points = run.points(most_read=2)
    assert points["ttft_s_p50"].notna().tolist() == [True, False]
    assert "not read" in points["ttft_s_p50.reason"][1]
    assert points["ttft_s_mean"].notna().all()
    assert run.points(most_read=None)["ttft_s_p50"].notna().all()


def test_requests_that_do_not_give_the_trials_own_numbers_are_not_pooled(tmp_path):
    first, second = measured.repeats(2)
    other = dataclasses.replace(second, requests=measured.trial(speed=2.0).requests)
    (point,) = stored(tmp_path, first, other).points().to_dict("records")
    assert point["ttft_s_p50"] != point["ttft_s_p50"]
    assert point["ttft_s_mean"] > 0


def test_one_repeat_keeps_its_interval_and_says_that_it_is_within_the_run(tmp_path):
    run = stored(tmp_path, measured.trial())
    (point,) = run.points().to_dict("records")
    assert point["interval_basis"] == "within-run"
    assert point["ttft_s_mean.low"] == run.trials()["ttft_s_mean.low"][0]


def test_repeats_do_not_compete_with_each_other(tmp_path):
    # As trials, 130/7 and 70/13 would stand on the front beside 101/11.
    noisy = [repeat(0, 130.0, 7.0), repeat(1, 70.0, 13.0)]
    steady = [repeat(n, 101.0, 11.0, draft_length=5) for n in range(2)]
    points = stored(tmp_path, *noisy, *steady).points()
    front = pareto(points, USER, RATE)
    assert points.loc[front.on_front, "axis.draft_length"].tolist() == [5]


def test_a_failed_repeat_is_left_out_and_named(tmp_path):
    bad = repeat(1, 1.0, 1.0, state=TrialState.INVALID)
    run = stored(tmp_path, repeat(0, 100.0, 10.0), bad, repeat(2, 80.0, 8.0))
    (point,) = run.points().to_dict("records")
    assert point["valid"]
    assert point["repeats"] == 2
    assert point["output_tok_s_device"] == pytest.approx(90.0)
    assert point["reason"].startswith("repeat 1 is left out, invalid: ")
    files = {name: content.decode() for name, content in report_files(run).items()}
    assert bad.trial_id in files["report.md"].partition("Invalid, failed")[2]
    assert "2 repeats" in files["report.html"]
    assert files["points.csv"].count("\n") == 4  # a row a trial


def test_a_number_that_one_repeat_lacks_is_missing_and_says_why(tmp_path):
    short = repeat(0, 100.0, 10.0)
    lacking = MetricValue(value=None, n=3, reason="n=3 < 4")
    short = dataclasses.replace(short, metrics={**short.metrics, "ttft_s_p50": lacking})
    (point,) = stored(tmp_path, short, repeat(1, 80.0, 8.0)).points().to_dict("records")
    assert point["ttft_s_p50"] != point["ttft_s_p50"]
    assert point["ttft_s_p50.reason"] == "missing in 1 of 2 repeats: n=3 < 4"


def test_points_that_all_failed_stay_one_row_with_the_reason(tmp_path):
    items = [records.record(state=TrialState.FAILED, repeat=n) for n in range(2)]
    (point,) = stored(tmp_path, *items).points().to_dict("records")
    assert not point["valid"]
    assert point["reason"] == "the engine stopped: out of memory"


def test_without_repeats_points_are_the_trials(tmp_path):
    run = stored(tmp_path, *records.sweep_records())
    points = run.points()
    assert (points.pop("repeats") == 1).all()
    assert set(points.pop("interval_basis")) == {"within-run"}
    assert points.pop("trial_ids").tolist() == [(name,) for name in points["trial_id"]]
    assert points.equals(run.trials())
