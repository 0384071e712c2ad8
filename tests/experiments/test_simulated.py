"""What the load generator and the metrics report must equal what the simulation was told."""

import tracemalloc
from dataclasses import replace
from datetime import timedelta
from itertools import pairwise

import pytest

from engine.request import Request, RequestId, SamplingParams
from experiments.clock import VirtualClock
from experiments.errors import TargetError
from experiments.observe import NoObserver
from experiments.plan import load_plan
from experiments.records import TrialState
from experiments.sweep import run
from experiments.targets.factory import target_factory
from experiments.targets.simulated import SimulatedTarget
from experiments.targets.simulated_profile import SimulatedProfile

WORKLOAD = {"name": "s", "kind": "synthetic", "prompt_tokens": 8, "output_tokens": 25}


def records(clock=None, **fields):
    document = {"name": "t", "target": "simulated", "workloads": [WORKLOAD], **fields}
    plan = load_plan(document)
    clock = clock or VirtualClock()
    return list(run(plan, target_factory(plan, clock), clock=clock, observer=NoObserver()))


def measured(record):
    return {name: metric.value for name, metric in record.metrics.items()}


@pytest.mark.parametrize("tokens_per_chunk", [1, 3, 8])
def test_times_are_the_simulated_ones_however_tokens_are_bundled(tokens_per_chunk):
    simulation = {"ttft_s": 0.05, "tpot_s": 0.01, "tokens_per_chunk": tokens_per_chunk}
    (record,) = records(simulation=simulation, load={"kind": "closed", "batch_size": 2})
    found = measured(record)
    assert record.state is TrialState.OK
    assert found["ttft_s_mean"] == pytest.approx(0.05, abs=1e-3)
    assert found["tpot_s_mean"] == pytest.approx(0.01, abs=1e-5)
    assert found["itl_s_p50"] == pytest.approx(0.01, abs=1e-5)
    assert found["e2e_s_mean"] == pytest.approx(0.05 + 24 * 0.01, abs=1e-3)
    assert found["tok_s_user"] == pytest.approx(100, rel=1e-3)
    assert found["concurrency_mean"] == pytest.approx(2, rel=0.01)
    assert found["output_tok_s"] == pytest.approx(2 * 25 / 0.29, rel=0.05)


def test_a_stall_shows_in_the_gaps_between_chunks():
    simulation = {"stall_s": 2.0, "tokens_per_chunk": 1}
    (record,) = records(
        simulation=simulation, protocol={"name": "quick", "measured_s": 20.0, "limit_s": 40.0}
    )
    longest = max(
        later.time_s - earlier.time_s
        for r in record.requests
        for earlier, later in zip(r.chunks, r.chunks[1:], strict=False)
    )
    assert longest == pytest.approx(2.005, abs=1e-3)


def test_drafts_give_the_acceptance_that_was_simulated():
    simulation = {"accepted_drafts": 2, "tpot_s": 0.03}
    (record,) = records(simulation=simulation, engine={"draft_length": 5})
    found = measured(record)
    assert found["acceptance_length"] == pytest.approx(3.0)
    assert [found[f"acceptance_p{i}"] for i in range(1, 6)] == [1.0, 1.0, 0.0, 0.0, 0.0]
    assert [found[f"acceptance_c{i}"] for i in range(1, 6)] == [1.0, 1.0, 0.0, None, None]
    assert found["acceptance_length_request"] == pytest.approx(3.0)
    assert found["acceptance_rate"] == pytest.approx(0.4)
    assert found["tpot_s_mean"] == pytest.approx(0.01, abs=1e-5)


def test_warm_up_is_recorded_apart_and_asks_for_other_content():
    # LMCache/LMBenchmark 35
    (record,) = records(load={"kind": "closed", "batch_size": 3})
    warm = [r for r in record.requests if r.warm_up]
    assert len(warm) == 3
    assert all(r.output_tokens <= 4 for r in warm)
    assert all(r.request_id.startswith("warm-up") for r in warm)
    assert len({r.request_id for r in record.requests}) == len(record.requests)


def test_never_more_than_batch_size_in_flight():
    # kubernetes-sigs/inference-perf 319
    (record,) = records(load={"kind": "closed", "batch_size": 7})
    assert measured(record)["concurrency_peak"] == 7


def test_constant_rate_is_kept_whatever_the_engine_does():
    # vllm-project/vllm 21104: relative sleeps lost 9 % of the rate.
    load = {"kind": "constant", "rate": 200.0}
    (record,) = records(load=load, simulation={"ttft_s": 1.0})
    sent = [r for r in record.requests if not r.warm_up]
    assert measured(record)["achieved_request_s"] == pytest.approx(200, rel=0.01)
    assert max(r.sent_s - r.intended_s for r in sent) < 1e-3
    assert record.metrics["concurrency_mean"].value > 100
    assert measured(record)["request_rate_ratio"] == pytest.approx(1.0, abs=0.01)


def test_goodput_is_held_against_the_limits_of_the_plan():
    (record,) = records(simulation={"ttft_s": 0.1}, slo={"ttft_s": 0.05})
    assert measured(record)["goodput"] == 0.0
    (record,) = records(simulation={"ttft_s": 0.1}, slo={"ttft_s": 0.15})
    assert measured(record)["goodput"] == measured(record)["request_s"]
    assert measured(record)["goodput_fraction"] == 1.0


def test_poisson_arrivals_have_the_rate_and_the_spread_of_poisson():
    load = {"kind": "poisson", "rate": 300.0}
    (record,) = records(load=load, protocol={"name": "quick", "measured_s": 5.0})
    times = [r.intended_s for r in record.requests if not r.warm_up]
    gaps = [b - a for a, b in pairwise(times)]
    mean = sum(gaps) / len(gaps)
    variance = sum((g - mean) ** 2 for g in gaps) / len(gaps)
    assert mean == pytest.approx(1 / 300, rel=0.1)
    assert variance**0.5 == pytest.approx(mean, rel=0.15)


def test_a_trace_is_played_at_its_own_times():
    workload = {"name": "t", "kind": "trace", "path": "sample:azure", "max_rows": 40}
    load = {"kind": "trace", "time_scale": 2.0}
    (record,) = records(workloads=[workload], load=load)
    sent = [r for r in record.requests if not r.warm_up]
    assert sent[1].intended_s - sent[0].intended_s == pytest.approx(0.026, abs=1e-6)


def test_lost_requests_make_the_trial_invalid():
    (record,) = records(
        simulation={"lose_every": 5},
        load={"kind": "closed", "batch_size": 2},
        protocol={"name": "quick", "limit_s": 3.0, "drain_s": 1.0},
    )
    assert record.state is TrialState.INVALID
    assert record.reason.startswith("accounting")


def test_a_trial_in_which_every_request_is_lost_says_how_many():
    (record,) = records(
        simulation={"lose_every": 1},
        load={"kind": "closed", "batch_size": 2},
        protocol={"name": "quick", "limit_s": 3.0, "drain_s": 1.0},
    )
    assert record.state is TrialState.FAILED
    assert "2 were never answered, nor acknowledged when they were given up" in record.reason


def test_failing_requests_make_the_trial_invalid_and_all_failing_fail_it():
    (some,) = records(simulation={"fail_every": 4})
    assert some.state is TrialState.INVALID
    assert some.reason.startswith("error_rate")
    (every,) = records(simulation={"fail_every": 1})
    assert every.state is TrialState.FAILED
    assert "simulated failure" in every.reason


def test_outputs_cut_short_make_the_trial_invalid():
    (record,) = records(simulation={"stop_early_every": 2})
    assert record.state is TrialState.INVALID
    assert record.reason.startswith("output_length")


def test_what_does_not_end_in_the_drain_time_is_cancelled_and_counted():
    protocol = {
        "name": "quick",
        "measured_s": 0.1,
        "limit_s": 0.1,
        "drain_s": 0.2,
        "warm_up_per_slot": 0,
    }
    (record,) = records(simulation={"tpot_s": 0.1}, protocol=protocol)
    assert record.state is TrialState.FAILED
    assert "cancelled" in record.reason
    assert "raise protocol.drain_s, or engine.num_threads" in record.reason
    assert measured(record)["cancelled_requests"] == 1


def test_labels_say_what_a_number_is_worth():
    (record,) = records(simulation={"random_weights": True})
    assert record.labels == (
        "indicative",
        "random weights: acceptance is meaningless",
        "simulated",
    )
    (record,) = records(protocol={"name": "standard", "repeats": 1})
    assert record.labels == ("simulated",)


@pytest.mark.parametrize("short", [{"measured_s": 1.0}, {"limit_s": 5.0}, {"max_requests": 300}])
def test_a_trial_that_ended_early_is_indicative_whatever_its_protocol_is_called(short):
    (record,) = records(protocol={"name": "standard", "repeats": 1, **short})
    assert record.window_s[1] - record.window_s[0] < 60
    assert record.labels == ("indicative", "simulated")


def test_replicas_take_turns_and_devices_are_what_was_allocated():
    (record,) = records(engine={"data_parallel_size": 2}, load={"kind": "closed", "batch_size": 4})
    assert {r.replica for r in record.requests} == {0, 1}
    found = measured(record)
    assert found["output_tok_s_device"] == pytest.approx(found["output_tok_s"] / 2)


def test_a_simulation_repeats_itself_exactly():
    assert records(clock=VirtualClock()) == records(clock=VirtualClock())


class SteppedClock(VirtualClock):
    """Its wall time goes back an hour whenever it is asked for."""

    def __init__(self):
        super().__init__()
        self._asked = 0

    def utc(self):
        self._asked += 1
        return super().utc() + timedelta(hours=1000 - self._asked)


def test_a_wall_clock_that_is_set_back_changes_no_number():
    # openvinotoolkit/model_server 1260: a step of the wall clock gave negative times.
    stepped, steady = records(clock=SteppedClock()), records(clock=VirtualClock())
    assert stepped[0].started_utc != steady[0].started_utc
    assert [replace(r, started_utc="") for r in stepped] == [
        replace(r, started_utc="") for r in steady
    ]


def test_a_target_that_is_not_open_takes_no_request():
    target = SimulatedTarget(SimulatedProfile(), VirtualClock())
    request = Request(request_id=RequestId("a"), prompt_token_ids=(2,), sampling=SamplingParams())
    with pytest.raises(TargetError, match="not open"):
        target.submit(request)
    target.close()


def test_a_trial_goes_on_until_it_has_its_requests_or_reaches_its_limit():
    protocol = {"name": "quick", "measured_s": 0.1, "measured_requests": 12, "limit_s": 60.0}
    (record,) = records(protocol=protocol, simulation={"ttft_s": 1.0})
    assert measured(record)["completed_requests"] == 12
    (cut,) = records(protocol={**protocol, "limit_s": 3.0}, simulation={"ttft_s": 1.0})
    assert measured(cut)["completed_requests"] < 5
    assert measured(cut)["duration_s"] == pytest.approx(3.0, abs=0.1)


def test_a_warm_up_ends_at_the_limit_too():
    protocol = {"name": "quick", "warm_up_per_slot": 1_000_000, "limit_s": 5.0}
    (record,) = records(protocol=protocol, simulation={"ttft_s": 1.0, "tpot_s": 0.0})
    assert sum(r.warm_up for r in record.requests) in (5, 6)


def many_in_flight(count, tokens):
    """A simulated target with so many requests, and its clock."""
    clock = VirtualClock()
    target = SimulatedTarget(SimulatedProfile(), clock)
    target.open({})
    for index in range(count):
        sampling = SamplingParams(temperature=0.0, max_tokens=tokens, ignore_eos=True)
        name = RequestId(f"r{index}")
        target.submit(Request(request_id=name, prompt_token_ids=(2, 3), sampling=sampling))
    return target


def test_a_request_in_flight_takes_the_same_memory_however_long_its_answer_will_be():
    def bytes_of(tokens):
        tracemalloc.start()
        target = many_in_flight(50, tokens)
        taken = tracemalloc.get_traced_memory()[0]
        tracemalloc.stop()
        assert target.stats()["requests"] == 50
        return taken

    assert bytes_of(4000) < 1.2 * bytes_of(4)


def test_giving_a_request_up_looks_at_no_other():
    target = many_in_flight(500, 8)

    class Unseen(list):
        def __iter__(self):
            raise AssertionError("every output that is due was looked at")

    target._due = Unseen(target._due)
    for index in range(500):
        target.abort(RequestId(f"r{index}"))
    found = target.poll(0.0)
    assert {str(received.output.finish_reason) for received in found} == {"abort"}
    assert len(found) == 500
    assert target.poll(1.0) == []
