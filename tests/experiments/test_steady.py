"""The ramp is cut off where throughput settles, and a slope is told from noise."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.gate_limits import GateLimits
from experiments.gate_parts import Evidence
from experiments.gates_steady import steady_state
from experiments.metrics import measure
from experiments.protocol import PROTOCOLS
from experiments.statistics import with_intervals
from experiments.steady import drift, mser, without_ramp
from tests.experiments.records import measurement, request


def flow(levels, *, per_second=10, start_s=0.0):
    """A second for each level: `per_second` requests of one chunk that share `level` tokens."""
    made = []
    for second, level in enumerate(levels):
        share = np.full(per_second, level // per_second) + (
            np.arange(per_second) < level % per_second
        )
        for k, tokens in enumerate(share):
            at = start_s + second + (k + 0.5) / per_second
            chunks = [(at, 1), (at + 1e-4, max(1, int(tokens)))]
            made.append(request(chunks, sent_s=at - 0.01, index=len(made)))
    return measurement(made, window_s=(start_s, start_s + len(levels)))


def gate(m):
    evidence = Evidence(
        measurement=m, metrics={}, limits=GateLimits(), protocol=PROTOCOLS["standard"]
    )
    return steady_state(evidence)


def test_a_ramp_is_cut_off_and_the_level_after_it_is_what_is_reported():
    # workbench rule: MSER-5 on bins of one second
    ramped = flow([100 * k for k in range(1, 11)] + [1000] * 90)
    settled = without_ramp(ramped)
    assert settled.ramp_s == 10.0
    assert settled.window_s == (10.0, 100.0)
    found = measure(settled)
    assert found["ramp_s"].value == 10.0
    assert found["output_tok_s"].value == pytest.approx(1000, rel=0.02)
    assert measure(ramped)["output_tok_s"].value < 970


def test_requests_of_the_ramp_keep_their_tokens_in_the_rates_and_give_no_latency():
    long = request([(9.0, 1), (11.0, 5)], sent_s=8.0, index=9999)  # over the edge at 10
    ramped = flow([100 * k for k in range(1, 11)] + [1000 + 7 * (k % 4) for k in range(90)])
    whole = measurement([*ramped.requests, long], window_s=ramped.window_s)
    settled = without_ramp(whole)
    assert long in settled.issued
    assert long not in settled.succeeded
    assert settled.tokens_inside(long) == 5
    found = measure(settled)
    assert found["completed_requests"].value == len(whole.requests)
    assert found["e2e_s_mean"].n == 900


def test_a_level_flow_loses_nothing():
    level = flow([500] * 60)
    assert without_ramp(level) == level
    assert measure(level)["ramp_s"].value == 0.0


def test_a_window_too_short_to_tell_is_left_alone_and_says_so():
    short = flow([10, 100] + [1000] * 20)
    assert without_ramp(short) == short
    found = measure(short)
    for name in ("ramp_s", "drift"):
        assert found[name].value is None
        assert "shorter than 50 s" in found[name].reason
    assert not gate(short).judged


def test_a_load_of_rounds_has_no_ramp():
    rounds = flow([10, 100] + [1000] * 60)
    pieces = measurement(
        rounds.requests, window_s=rounds.window_s, windows_s=((0.0, 20.0), (30.0, 60.0))
    )
    assert without_ramp(pieces) == pieces
    assert gate(pieces) is None


def test_a_slope_makes_a_trial_invalid_and_level_noise_does_not():
    rng = np.random.default_rng(0)
    level = flow((1000 + rng.normal(0, 20, 60)).astype(int))
    falling = flow((np.linspace(1100, 900, 60) + rng.normal(0, 20, 60)).astype(int))
    assert gate(level).passed
    assert gate(level).judged
    assert not gate(falling).passed
    assert drift(falling).share == pytest.approx(-0.2, abs=0.02)
    found = measure(falling)["drift"]
    assert found.low < -0.2 < found.high


def test_a_slope_that_may_be_noise_is_not_judged():
    rng = np.random.default_rng(3)
    rough = flow((np.linspace(1040, 960, 60) + rng.normal(0, 300, 60)).clip(10).astype(int))
    found = gate(rough)
    assert found.passed
    assert not found.judged or found.value <= 0.05
    assert drift(rough).error > 0.05


@given(st.integers(0, 40), st.integers(0, 3))
def test_what_is_cut_off_is_at_most_half_and_covers_a_plain_step(step, seed):
    rng = np.random.default_rng(seed)
    level = np.concatenate([rng.uniform(0, 20, step), rng.uniform(99, 101, 100 - step)])
    assert step <= mser(level) <= max(step, 50)


def test_intervals_of_a_trial_with_a_ramp_rest_on_what_is_reported():
    settled = without_ramp(flow([100 * k for k in range(1, 11)] + [1000] * 90))
    found = with_intervals(measure(settled), settled, draws=50, seed=0)
    for name in ("output_tok_s", "e2e_s_p50", "request_s"):
        assert found[name].low <= found[name].value <= found[name].high, name
