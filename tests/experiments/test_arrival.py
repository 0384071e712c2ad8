"""Schedules: absolute, at the rate asked for, and whole when they are shared out."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter

from experiments.arrival import (
    Horizon,
    RoundArrival,
    Share,
    TimedArrival,
    arrival,
    gamma_times,
    schedule,
)
from experiments.errors import PlanError
from experiments.load_checks import check_clients
from experiments.load_specs import ClosedLoad, Load
from tests.fakes.loads import trials

RATES = st.floats(0.5, 500.0)
SHAPES = st.floats(0.05, 50.0)
WORKLOAD = trials()[0].workload


def load(**fields):
    return TypeAdapter(Load).validate_python(fields)


def times(horizon, salt="s", **fields):
    return schedule(load(**fields), WORKLOAD, horizon=horizon, salt=salt)


@given(rate=RATES, shape=SHAPES, measured_s=st.floats(1.0, 60.0), salt=st.text(max_size=5))
@settings(max_examples=60, deadline=None)
def test_a_random_schedule_ascends_and_keeps_its_rate_in_every_window(
    rate, shape, measured_s, salt
):
    horizon = Horizon(requests=3000, measured_s=measured_s)
    found = gamma_times(rate, shape, horizon, salt)
    assert len(found) == 3000
    assert (np.diff(found) >= 0).all()
    assert found[0] >= 0
    size = max(1, round(rate * measured_s))
    windows = int(found[-1] // (size / rate))
    edges = np.arange(windows + 1) * (size / rate)
    assert (np.histogram(found[found < edges[-1]], bins=edges)[0] == size).all()


@pytest.mark.parametrize("shape", [0.1, 0.5, 1.0, 4.0, 100.0])
def test_burstiness_does_not_change_the_rate(shape):
    # ai-dynamo/aiperf 1188: a sweep of burstiness changed the load that was offered too.
    horizon = Horizon(requests=10_000, measured_s=10.0)
    found = times(horizon, kind="gamma", rate=50.0, shape=shape)
    realised = np.searchsorted(found, 10.0) / 10.0
    assert realised == pytest.approx(50.0, rel=0.01)


def test_shape_one_is_poisson_and_other_shapes_spread_as_they_should():
    horizon = Horizon(requests=20_000)
    for shape in (0.25, 1.0, 4.0):
        gaps = np.diff(times(horizon, kind="gamma", rate=10.0, shape=shape))
        assert gaps.std() / gaps.mean() == pytest.approx(shape**-0.5, rel=0.05)


def test_the_first_seconds_run_at_the_rate():
    # triton-inference-server/server 4711
    horizon = Horizon(requests=10_000, measured_s=30.0)
    counts = [
        np.searchsorted(times(horizon, salt=str(salt), kind="poisson", rate=20.0), 3.0)
        for salt in range(200)
    ]
    assert np.mean(counts) == pytest.approx(60.0, rel=0.05)
    assert np.var(counts) == pytest.approx(60.0 * 0.9, rel=0.3)  # given 600 in thirty seconds


def test_a_constant_rate_has_no_drift():
    # vllm-project/vllm 21104
    found = times(Horizon(requests=100_000), kind="constant", rate=500.0)
    assert found[-1] == pytest.approx(99_999 / 500.0, abs=1e-9)


def test_a_ramp_climbs_evenly_to_its_rate():
    horizon = Horizon(requests=200_000)
    found = times(horizon, kind="ramp", rate=1000.0, rate_from=200.0, ramp_s=20.0)
    counts = np.histogram(found, bins=np.arange(0.0, 41.0, 10.0))[0]
    assert counts == pytest.approx([4000, 8000, 10_000, 10_000], rel=0.06)
    flat = times(horizon, kind="ramp", rate=100.0, rate_from=100.0, ramp_s=5.0)
    assert np.searchsorted(flat, 50.0) == pytest.approx(5000, rel=0.1)
    still = times(horizon, kind="ramp", rate=100.0, ramp_s=10.0)
    assert np.isfinite(still).all()
    assert np.searchsorted(still, 10.0) == pytest.approx(500, rel=0.2)


@given(
    of=st.integers(1, 7),
    kind=st.sampled_from(["poisson", "constant", "gamma", "ramp"]),
    most=st.integers(7, 40),
)
@settings(max_examples=40, deadline=None)
def test_shares_of_a_load_are_the_load(of, kind, most):
    # kubernetes-sigs/inference-perf 319, 340
    fields = {"kind": kind, "rate": 20.0, "max_concurrency": most}
    fields |= {"ramp_s": 3.0} if kind == "ramp" else {}
    horizon = Horizon(requests=200, measured_s=5.0)
    shares = [Share(index=i, of=of) for i in range(of)]
    parts = [
        arrival(load(**fields), WORKLOAD, horizon=horizon, salt="s", share=share)
        for share in shares
    ]
    found = {
        share.nth(i): part.due_s(i, 0)
        for share, part in zip(shares, parts, strict=True)
        for i in range(300)
        if part.due_s(i, 0) is not None
    }
    assert [found[i] for i in range(200)] == times(horizon, **fields).tolist()
    assert len(found) == 200
    assert sum(share.slots(most) for share in shares) == most
    assert sum(share.slots(3) for share in shares) == 3


def test_a_closed_load_is_shared_out_exactly():
    parts = [
        arrival(
            ClosedLoad(batch_size=8),
            WORKLOAD,
            horizon=Horizon(requests=9),
            salt="s",
            share=Share(index=i, of=3),
        )
        for i in range(3)
    ]
    room = [next(n for n in range(9) if part.due_s(0, n) is None) for part in parts]
    assert room == [3, 3, 2]


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"kind": "batch", "batch_size": 8}, "one client sends batch, not 3"),
        ({"kind": "closed", "batch_size": 2}, "3 clients cannot share 2"),
        ({"kind": "sessions", "turns": 1, "concurrency": 2}, "3 clients cannot share 2"),
        ({"kind": "poisson", "rate": 1.0, "max_concurrency": 2}, "3 clients cannot share 2"),
    ],
)
def test_a_load_that_clients_cannot_share_is_refused(fields, said):
    with pytest.raises(PlanError, match=said):
        check_clients(load(**fields), 3)
    check_clients(load(**fields), 1)


@pytest.mark.parametrize(
    "fields",
    [
        {"kind": "poisson", "rate": 0.0},
        {"kind": "poisson", "rate": 1e308},
        {"kind": "constant", "rate": -1.0},
        {"kind": "gamma", "rate": 1.0, "shape": 0.0},
        {"kind": "gamma", "rate": 1.0, "shape": float("nan")},
        {"kind": "ramp", "rate": 1.0, "ramp_s": 0.0},
        {"kind": "ramp", "rate": 1.0, "rate_from": -1.0, "ramp_s": 1.0},
        {"kind": "poisson", "rate": 1.0, "max_concurrency": 0},
        {"kind": "sessions", "concurrency": 1, "turns": 0},
        {"kind": "sessions", "concurrency": 1, "think_s": -1.0},
        {"kind": "sessions", "concurrency": 1, "think": "never"},
        {"kind": "batch", "batch_size": 0},
        {"kind": "decode_batch", "output_tokens": 2},
    ],
)
def test_a_load_out_of_range_is_refused_by_its_field(fields):
    named = list(fields)[-1] if fields.get("ramp_s") != 1.0 else "rate_from"
    with pytest.raises(PlanError, match=named):
        trials(load=fields)


def test_a_ramp_may_fall_and_extreme_loads_stay_finite():
    horizon = Horizon(requests=5000, measured_s=10.0)
    down = times(horizon, kind="ramp", rate=10.0, rate_from=100.0, ramp_s=10.0)
    assert np.isfinite(down).all()
    assert np.searchsorted(down, 10.0) == pytest.approx(550, rel=0.2)
    for rate, shape in ((1e6, 1e-3), (1e6, 1e6), (1e-3, 1e-3)):
        assert np.isfinite(times(horizon, kind="gamma", rate=rate, shape=shape)).all()


def test_a_round_waits_for_every_request_of_the_one_before():
    rounds = RoundArrival(3)
    assert [rounds.due_s(i, i) for i in range(3)] == [0.0, 0.0, 0.0]
    assert rounds.due_s(3, 1) is None
    assert rounds.due_s(3, 0) == 0.0
    assert rounds.due_s(4, 1) == 0.0


def test_a_full_queue_holds_an_instant_back_and_moves_none():
    queue = TimedArrival(np.array([0.1, 0.2, 0.3]), max_concurrency=2)
    assert queue.due_s(2, 2) is None
    assert queue.due_s(2, 1) == 0.3
    assert queue.due_before(10.0) == 3
    assert [queue.due_s(i, 0) for i in range(4)] == [0.1, 0.2, 0.3, None]


def test_the_same_salt_draws_the_same_instants_and_another_draws_others():
    horizon = Horizon(requests=50, measured_s=2.0)
    one, again, other = (
        times(horizon, salt=salt, kind="poisson", rate=9.0).tolist() for salt in "aab"
    )
    assert one == again
    assert one != other
    assert all(a <= b for a, b in pairwise(one))
