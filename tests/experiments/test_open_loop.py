"""Open loops: what was due is what counts, however late it is sent."""

from itertools import pairwise

import numpy as np
import pytest

from experiments.records import TrialState
from tests.fakes.loads import FreezingTarget, asked, measured, values

ONE_TOKEN = [{"name": "s", "kind": "synthetic", "prompt_tokens": 8, "output_tokens": 1}]


def overloaded(**protocol):
    """A server of half a second a request, ten requests a second, one at a time."""
    return measured(
        workloads=ONE_TOKEN,
        simulation={"ttft_s": 0.5},
        load={"kind": "constant", "rate": 10.0, "max_concurrency": 1},
        protocol={"name": "quick", "warm_up_per_slot": 0, "measured_s": 0.8, **protocol},
    )


def test_time_in_the_clients_queue_counts_from_the_schedule():
    # vllm-project/vllm 54101: p99 of 508 ms was shown where 3330 ms was true.
    record = overloaded(measured_requests=1)
    found = values(record)
    assert found["completed_requests"] == 8
    assert found["e2e_s_mean"] == pytest.approx(0.5, abs=1e-3)
    assert found["e2e_sched_s_mean"] == pytest.approx(1.932, rel=0.05)
    slowest = max(r.ended_s - r.intended_s for r in asked(record))
    assert slowest == pytest.approx(3.3, abs=0.01)
    assert found["concurrency_peak"] == 1


def test_a_request_leaves_the_queue_when_the_one_before_it_ends():
    record = overloaded(measured_requests=1)
    sent = asked(record)
    for before, after in pairwise(sent):
        assert after.dispatched_s == pytest.approx(before.ended_s, abs=1e-6)
        assert after.sent_s - after.dispatched_s < 1e-3  # the client's own lateness
    waits = [r.dispatched_s - r.intended_s for r in sent]
    assert values(record)["queue_s_mean"] == pytest.approx(np.mean(waits))
    assert values(record)["unsent_requests"] == 0


def test_what_never_left_the_queue_is_counted():
    # kubernetes-sigs/inference-perf 245: a stage was complete with 8288 requests still queued.
    record = overloaded(measured_requests=1, drain_s=1.6)
    unsent = [r for r in asked(record) if r.sent_s is None]
    found = values(record)
    assert len(unsent) == found["unsent_requests"] > 0
    assert all(r.finish_reason == "abort" and not r.chunks for r in unsent)
    assert {r.index for r in asked(record)} == set(range(8))
    told = found["completed_requests"] + found["cancelled_requests"] + found["unsent_requests"]
    assert told == 8


def test_a_queue_that_is_not_full_delays_nothing():
    record = measured(
        simulation={"ttft_s": 0.01, "tpot_s": 0.001},
        load={"kind": "poisson", "rate": 20.0, "max_concurrency": 50},
    )
    assert values(record)["queue_s_mean"] == pytest.approx(0.0, abs=1e-6)
    assert values(record)["e2e_sched_s_mean"] == pytest.approx(values(record)["e2e_s_mean"])


@pytest.mark.parametrize("kind", ["poisson", "constant", "gamma"])
def test_a_freeze_of_the_server_shows_from_the_schedule(kind):
    # thelastpickle/tlp-stress 49: whoever waits with sending does not see the stall.
    record = measured(
        lambda clock: FreezingTarget(clock, at_request=300, freeze_s=5.0),
        load={"kind": kind, "rate": 50.0},
        protocol={"name": "quick", "measured_s": 20.0, "limit_s": 60.0},
    )
    found = values(record)
    assert record.metrics["e2e_sched_s_p99"].value >= 4.0
    assert found["request_rate_ratio"] == pytest.approx(1.0, abs=0.01)
    late = [r.sent_s - r.intended_s for r in asked(record)]
    assert max(late) == pytest.approx(5.0, abs=0.1)
    assert late[-1] < 1e-3  # a late send moved no later one


def test_five_hundred_a_second_are_sent_five_hundred_a_second():
    # vllm-project/vllm 21104: 183 of 200 were sent, because sleeps were relative.
    record = measured(
        workloads=ONE_TOKEN,
        load={"kind": "poisson", "rate": 500.0},
        simulation={"ttft_s": 0.2},
        protocol={"name": "quick", "measured_s": 4.0},
    )
    found = values(record)
    assert found["achieved_request_s"] == pytest.approx(500, rel=0.01)
    assert found["offered_request_s"] == pytest.approx(500, rel=0.01)
    assert max(r.sent_s - r.intended_s for r in asked(record)) < 1e-3
    assert record.state is TrialState.OK


def test_no_second_sends_more_than_its_schedule_wanted():
    # vllm-project/vllm 45502: bursts above the rate when slots fell free.
    record = measured(
        workloads=ONE_TOKEN,
        load={"kind": "constant", "rate": 100.0},
        simulation={"ttft_s": 1.5},
        protocol={"name": "quick", "measured_s": 5.0},
    )
    start = record.window_s[0]
    sent = np.array([r.sent_s - start for r in asked(record)])
    counts = np.histogram(sent, bins=np.arange(0.0, 6.0))[0]
    assert counts.max() <= 101


def test_bursts_wait_longer_than_a_steady_stream_at_the_same_rate():
    found = [
        values(
            measured(
                simulation={"ttft_s": 0.01, "tpot_s": 0.001, "tpot_per_request_s": 0.001},
                load={"kind": "gamma", "rate": 40.0, "shape": shape},
                protocol={"name": "quick", "measured_s": 10.0, "limit_s": 30.0},
            )
        )
        for shape in (0.1, 100.0)
    ]
    assert found[0]["achieved_request_s"] == pytest.approx(found[1]["achieved_request_s"], rel=0.01)
    assert found[0]["e2e_s_mean"] > 1.2 * found[1]["e2e_s_mean"]


def test_what_was_asked_for_is_told_beside_what_came():
    # NVIDIA/TensorRT-LLM 17249: an output length is a maximum, not a promise.
    record = measured(simulation={"stop_early_every": 2}, gates={"output_length_mismatch": None})
    found = values(record)
    assert found["requested_output_tokens"] == 25 * found["completed_requests"]
    assert found["output_tokens"] < found["requested_output_tokens"]
    strict = measured(simulation={"stop_early_every": 2})
    assert "output_length" in strict.reason  # vllm-project/vllm 18687: ignore_eos got lost


def test_few_requests_for_the_slots_there_are_make_a_trial_invalid():
    # InternLM/lmdeploy 2928
    record = measured(
        load={"kind": "closed", "batch_size": 16},
        protocol={"name": "quick", "max_requests": 8},
    )
    assert record.state is TrialState.INVALID
    assert "enough_requests" in record.reason
