"""What comes before a measurement, and how long the measurement is."""

import pytest

from experiments.arrival import WHOLE, ClosedArrival
from experiments.clock import VirtualClock
from experiments.feed import ItemFeed
from experiments.labels import BURSTY
from experiments.load import Phase, PhaseResult
from experiments.load_tally import LoadTally
from experiments.observe import NoObserver
from experiments.plan import load_plan
from experiments.protocol import Protocol
from experiments.records import TrialState
from experiments.sweep import run
from experiments.targets.factory import target_factory
from experiments.warm_up import variation, warm_up
from tests.experiments.records import request

WORKLOAD = {"name": "s", "kind": "synthetic", "prompt_tokens": 8, "output_tokens": 25}


class ScriptedRunner:
    """A round takes the next of `rounds_s` and yields 100 tokens."""

    def __init__(self, rounds_s):
        self._rounds_s = list(rounds_s)
        self._now_s = 0.0
        self.phases = []

    def now_s(self):
        return self._now_s

    def calibrate(self, phase_of, shape):
        raise AssertionError("nobody asked for it")

    def run(self, phase_of):
        self.phases.append(phase_of(WHOLE))
        start_s = self._now_s
        self._now_s += self._rounds_s[len(self.phases) - 1]
        answered = request([(self._now_s, 100)], sent_s=start_s, warm_up=True)
        return PhaseResult(requests=(answered,), window_s=(start_s, self._now_s), tally=LoadTally())


def phase(number, share):
    feed = ItemFeed(lambda index: None, ClosedArrival(1), share)
    return Phase(name=f"round {number}", feed=feed, max_requests=2)


def warmed(rounds_s, **fields):
    values = {"warm_up_rounds": 10, "warm_up_cv": 0.05, "limit_s": 600.0}
    runner = ScriptedRunner(rounds_s)
    return runner, warm_up(runner, phase, Protocol(**{**values, **fields}))


def records(**fields):
    slow = {"ttft_s": 0.3, "tpot_s": 0.02, "tokens_per_chunk": 1}
    document = {
        "name": "t", "target": "simulated", "workloads": [WORKLOAD], "repeats": 1,
        "simulation": slow, **fields,
    }  # fmt: skip
    plan = load_plan(document)
    clock = VirtualClock()
    return list(run(plan, target_factory(plan, clock), clock=clock, observer=NoObserver()))


def gates(record):
    return {gate.name: gate for gate in record.gates}


def test_rounds_go_on_until_the_last_three_are_equally_fast():
    # ggml-org/llama.cpp 21282: the first iterations are cold.
    runner, found = warmed([8.0, 2.0, 1.05, 1.0, 1.0, 1.0])
    assert len(runner.phases) == 5
    assert variation(found.rounds) < 0.06
    assert [p.name for p in runner.phases] == [f"round {k}" for k in range(5)]


def test_rounds_end_at_their_number_and_at_the_limit_of_time():
    restless = [1.0, 2.0] * 10
    runner, found = warmed(restless, warm_up_rounds=6)
    assert len(runner.phases) == 6
    assert variation(found.rounds) > 0.05
    runner, _ = warmed(restless, limit_s=4.0)
    assert len(runner.phases) == 3
    assert [p.limit_s for p in runner.phases] == [4.0, 3.0, 1.0]


def test_a_quick_trial_warms_up_once_and_one_without_slots_never():
    runner, _ = warmed([1.0] * 5, warm_up_cv=None)
    assert len(runner.phases) == 1
    runner, found = warmed([], warm_up_per_slot=0)
    assert found.requests == ()
    assert variation(found.rounds) is None


@pytest.mark.parametrize("workload", [WORKLOAD, {**WORKLOAD, "spread": 0.5}])
def test_no_prompt_is_asked_in_two_rounds_nor_in_warm_up_and_measurement(workload):
    # LMCache/LMBenchmark 35, vllm-project/vllm 10753
    (record,) = records(
        workloads=[workload],
        protocol={"name": "standard", "limit_s": 90.0, "warm_up_cv": 1e-12, "warm_up_rounds": 4},
        load={"kind": "closed", "batch_size": 3},
    )
    prompts = [r.prompt_hash for r in record.requests]
    assert sum(r.warm_up for r in record.requests) >= 3 * 3 * 2
    assert len(set(prompts)) == len(prompts)
    assert gates(record)["unique_prompts"].value == 0.0


def test_a_standard_trial_tells_of_its_warm_up_and_passes_every_gate_it_can_be_judged_by():
    (record,) = records(protocol="standard", load={"kind": "closed", "batch_size": 4})
    assert record.state is TrialState.OK, record.reason
    found = gates(record)
    assert found["warm_up"].judged
    assert "of 3 rounds vary" in found["warm_up"].message
    for name in ("steady_state", "littles_law", "window_length", "enough_requests"):
        assert found[name].judged, name
        assert found[name].passed, name
    assert record.metrics["ramp_s"].value is not None
    assert record.window_s[1] - record.window_s[0] >= 30


def test_the_window_of_slow_requests_is_three_times_their_median_e2e():
    slow = {"ttft_s": 1.0, "tpot_s": 2.0, "tokens_per_chunk": 1}  # E2E 49 s
    (record,) = records(
        protocol={"name": "standard", "measured_requests": 1, "measured_per_slot": 1,
                  "warm_up_rounds": 1, "drop_ramp": False},
        simulation=slow,
        load={"kind": "closed", "batch_size": 4},
    )  # fmt: skip
    start, end = record.window_s
    assert end - start >= 3 * 49
    assert gates(record)["window_length"].passed
    (cut,) = records(
        protocol={"name": "standard", "measured_requests": 1, "measured_per_slot": 1,
                  "warm_up_rounds": 1, "limit_s": 100.0},
        simulation=slow,
        load={"kind": "closed", "batch_size": 4},
    )  # fmt: skip
    assert not gates(cut)["window_length"].passed
    assert cut.state is TrialState.INVALID


def test_a_warm_up_request_that_was_lost_makes_the_trial_invalid():
    # ai-dynamo/aiperf 1435: what is left of it may run beside the measured ones.
    (record,) = records(simulation={"lose_every": 1000, "ttft_s": 0.05}, load={"kind": "closed"})
    assert gates(record).get("warm_up") is None
    protocol = {"name": "quick", "warm_up_per_slot": 3, "drain_s": 1.0}
    (record,) = records(simulation={"lose_every": 3}, protocol=protocol)
    assert not gates(record)["warm_up"].passed
    assert record.state is TrialState.INVALID


def test_a_stream_in_bursts_is_labelled():
    # tenstorrent/tt-inference-server 4681
    (even,) = records(simulation={"tokens_per_chunk": 1})
    (bursty,) = records(simulation={"tokens_per_chunk": 1, "stall_s": 2.0, "tpot_s": 0.001})
    assert BURSTY not in even.labels
    assert BURSTY in bursty.labels


def test_outputs_are_fingerprinted_and_their_ids_kept_within_the_bound():
    (record,) = records(protocol={"name": "quick", "keep_output_tokens": 30})
    measured = [r for r in record.requests if not r.warm_up]
    assert len(record.outputs) == len(measured) > 1
    assert [r.output_token_ids is not None for r in measured[:2]] == [True, False]
    assert all(r.output_token_ids is None for r in record.requests if r.warm_up)
    drawn = records(workloads=[{**WORKLOAD, "temperature": 0.8}])[0]
    assert drawn.outputs == ()


def test_results_do_not_depend_on_the_order_of_the_trials():
    # pegainfer-project/pegainfer 697
    axes = [{"product": {"batch_size": [1, 2, 4], "prompt_tokens": [4, 8]}}]
    one, other = (
        {r.trial_id: r for r in records(axes=axes, order=order, seed=3)}
        for order in ("as_written", "blocked")
    )
    assert list(one) != list(other)
    assert one.keys() == other.keys()
    for name, record in one.items():
        again = other[name]
        assert [r.prompt_hash for r in record.requests] == [r.prompt_hash for r in again.requests]
        for metric, value in record.metrics.items():
            assert value.value == pytest.approx(again.metrics[metric].value), metric
