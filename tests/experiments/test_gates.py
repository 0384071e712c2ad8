import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.gate_limits import GateLimits
from experiments.gate_parts import Evidence
from experiments.gates import GATES, evaluate, first_failure
from experiments.metrics import measure
from experiments.protocol import PROTOCOLS, Protocol
from experiments.records import TelemetrySample
from tests.experiments.records import failed, measurement, request
from tests.experiments.strategies import any_requests, odd, times, waits

ONE_IS_ENOUGH = Protocol(name="standard", measured_requests=1)


def gates(requests, *, limits=None, protocol=ONE_IS_ENOUGH, evidence=None, **fields):
    """The gates of a trial by name; `fields` are the measurement's, `evidence` the rest."""
    m = measurement(requests, **fields)
    found = Evidence(
        measurement=m,
        metrics=measure(m),
        limits=limits or GateLimits(),
        protocol=protocol,
        **{"batch_size": 1, **(evidence or {})},
    )
    return {gate.name: gate for gate in evaluate(found)}


def good(index, **fields):
    hashed = {"prompt_hash": f"prompt {index}", **fields}
    return request([(index + 0.5, 1), (index + 1.0, 3)], sent_s=float(index), index=index, **hashed)


def samples(seconds=10, **fields):
    return tuple(
        TelemetrySample(time_s=t / 2, device_index=0, **fields) for t in range(2 * seconds)
    )


def test_a_clean_trial_passes_every_gate():
    found = gates([good(i) for i in range(10)])
    assert all(gate.passed for gate in found.values())
    assert first_failure(tuple(found.values())) is None


def test_every_gate_says_whether_it_passed_and_against_what():
    for gate in gates([good(i) for i in range(10)]).values():
        assert gate.message
        assert gate.limit is not None
        assert gate.judged or gate.message.startswith("not judged: ")


@pytest.mark.parametrize("name", [name for name in GateLimits.model_fields if name != "agreement"])
def test_each_limit_can_be_switched_off(name):
    off = GateLimits(**{name: None})
    on, without = (gates([good(i) for i in range(10)], limits=one) for one in (None, off))
    assert len(without) <= len(on)
    assert len({gate.__name__ for gate in GATES}) == len(GATES)


def test_lost_requests_are_the_first_thing_said():
    # aws-samples/sample-apj-sup-sa 181: failed=0 while 9 % of responses vanished.
    vanished = request([], index=9, finish_reason=None, ended_s=None)
    found = gates([*(good(i) for i in range(9)), vanished])
    assert not found["accounting"].passed
    assert first_failure(tuple(found.values())).startswith("accounting: 1 of 10")


def test_failures_above_the_limit_make_a_trial_invalid():
    # NVIDIA/TensorRT-LLM 17427
    records = [*(good(i) for i in range(9)), failed(index=9)]
    assert not gates(records)["error_rate"].passed
    assert gates(records, limits=GateLimits(error_rate=0.2))["error_rate"].passed
    assert "error_rate" not in gates(records, limits=GateLimits(error_rate=None))


def test_fewer_requests_than_slots_are_flagged():
    # InternLM/lmdeploy 2928
    few = gates([good(i) for i in range(3)], evidence={"batch_size": 4})["enough_requests"]
    assert not few.passed
    assert "raise protocol.limit_s" in few.message
    enough = gates([good(i) for i in range(4)], evidence={"batch_size": 4})["enough_requests"]
    assert enough.passed


@pytest.mark.parametrize(
    ("name", "batch_size", "needed"),
    [("quick", None, 4), ("quick", 1, 4), ("quick", 16, 16), ("standard", 16, 200)],
)
def test_a_point_rests_on_more_than_a_few_requests(name, batch_size, needed):
    assert PROTOCOLS[name].needed_requests(batch_size) == needed


def test_outputs_shorter_than_promised_are_flagged():
    # vllm-project/vllm 18687: ignore_eos was lost.
    short = [good(i, exact_output_length=True, requested_output_tokens=8) for i in range(10)]
    assert not gates(short)["output_length"].passed
    free = [good(i, exact_output_length=False, requested_output_tokens=8) for i in range(10)]
    assert "output_length" not in gates(free)


def test_a_server_that_counts_other_prompt_lengths_is_flagged():
    # sgl-project/sglang 15732, vllm-project/vllm 44708: the tokenizers differ.
    alike = [good(i, server_prompt_tokens=10) for i in range(10)]
    assert gates(alike)["prompt_length"].passed
    longer = gates([good(i, server_prompt_tokens=12) for i in range(10)])["prompt_length"]
    assert not longer.passed
    assert "+2.0 tokens" in longer.message
    assert "prompt_length" not in gates([good(i) for i in range(10)])


def test_what_a_chat_form_adds_to_every_prompt_is_allowed_for_and_named():
    chat = {"renders_chat": True}
    alike = [good(i, server_prompt_tokens=22) for i in range(10)]
    found = gates(alike, evidence=chat)["prompt_length"]
    assert found.passed
    assert "adds 12 tokens to each" in found.message
    spread = [good(i, server_prompt_tokens=22 + i % 2) for i in range(10)]
    assert not gates(spread, evidence=chat)["prompt_length"].passed
    for far in (5, 1000):  # shorter than what was sent, or no chat form at all
        odd = [good(i, server_prompt_tokens=far) for i in range(10)]
        assert not gates(odd, evidence=chat)["prompt_length"].passed
    turns = [good(i, turn=i % 2, server_prompt_tokens=(14, 18)[i % 2]) for i in range(10)]
    told = gates(turns, evidence=chat)["prompt_length"]
    assert told.passed
    assert "adds 4 to 8, by the turn," in told.message


def test_a_warm_cache_is_flagged_unless_prefixes_are_shared_on_purpose():
    # vllm-project/vllm 54227, 52884
    warm = [good(i, cached_tokens=5) for i in range(10)]
    assert not gates(warm)["cache_hit"].passed
    shared = gates(warm, evidence={"workload": {"shared_prefixes": True}})["cache_hit"]
    assert not shared.judged


@pytest.mark.parametrize(("meant", "passed"), [(0.5, True), (0.9, False), (0.2, False)])
def test_the_hit_rate_is_held_against_the_one_that_the_workload_means(meant, passed):
    # sgl-project/sglang 37359
    warm = [good(i, cached_tokens=5) for i in range(10)]
    found = gates(warm, evidence={"workload": {"expected_hit_rate": meant}})["cache_hit"]
    assert found.judged
    assert found.passed is passed
    cold = [good(i) for i in range(10)]
    assert not gates(cold, evidence={"workload": {"expected_hit_rate": meant}})["cache_hit"].judged


def test_identical_prompts_are_flagged():
    # vllm-project/vllm 10753
    same = [good(i, prompt_hash="one") for i in range(10)]
    found = gates(same)["unique_prompts"]
    assert not found.passed
    assert found.value == pytest.approx(0.9)
    few_rows = gates(same, evidence={"workload": {"rows": 3}})["unique_prompts"]
    assert not few_rows.judged
    assert few_rows.passed
    assert "3 rows" in few_rows.message


def test_a_measured_prompt_that_warmed_the_engine_up_is_a_repeated_one():
    # LMCache/LMBenchmark 35
    warm = tuple(good(i, warm_up=True) for i in range(2))
    found = gates([good(i) for i in range(10)], evidence={"warm_up": warm})["unique_prompts"]
    assert found.value == pytest.approx(0.2)
    assert not found.passed


def test_a_rate_that_was_not_reached_is_flagged():
    # vllm-project/vllm 21104
    sent = [good(i) for i in range(10)]
    assert "achieved_rate" not in gates(sent)
    assert gates(sent, due_requests=11)["achieved_rate"].passed  # one hangs over the edge
    assert not gates(sent, due_requests=13)["achieved_rate"].passed
    held = gates(sent, due_requests=13, evidence={"workload": {"max_concurrency": 1}})
    assert not held["achieved_rate"].judged


def test_littles_law_is_judged_only_on_enough_turns():
    broken = [
        request([(i + 0.5, 1), (i + 1.0, 1)], sent_s=i, index=i, ended_s=i + 3.0) for i in range(10)
    ]
    assert not gates(broken)["littles_law"].passed
    few = gates(broken[:3])["littles_law"]
    assert not few.judged
    assert few.message.startswith("not judged")
    assert gates(broken)["littles_law"].judged


def test_a_burst_at_the_end_of_the_window_breaks_no_law():
    burst = [
        request([(40.4, 1), (40.9, 1)], sent_s=39.9, index=20 + i, ended_s=40.9) for i in range(20)
    ]
    found = gates([good(i) for i in range(20)] + burst, window_s=(0.0, 40.0))["littles_law"]
    assert found.judged
    assert abs(found.value - 1) > 0.2
    assert found.passed


def test_a_device_held_back_by_heat_makes_a_trial_invalid_and_a_power_cap_does_not():
    # tensara/tensara 226
    records = [good(i) for i in range(10)]
    hot = gates(records, telemetry=samples(throttle_reasons=("hw_thermal_slowdown",)))
    assert not hot["throttling"].passed
    assert "hw_thermal_slowdown" in hot["throttling"].message
    capped = gates(records, telemetry=samples(throttle_reasons=("sw_power_cap",)))
    assert capped["throttling"].passed
    assert capped["throttling"].judged
    assert not gates(records)["throttling"].judged


def test_a_foreign_process_on_the_device_is_flagged():
    # raullenchai/Rapid-MLX 1527
    records = [good(i) for i in range(10)]
    assert not gates(records, telemetry=samples(foreign_processes=1))["foreign_processes"].passed
    alone = gates(records, telemetry=samples(foreign_processes=0))["foreign_processes"]
    assert alone.passed
    assert alone.judged
    unknown = gates(records, telemetry=samples(foreign_processes=None))["foreign_processes"]
    assert not unknown.judged


def test_clocks_that_move_are_flagged_and_those_outside_the_window_are_not_looked_at():
    records = [good(i) for i in range(10)]
    steady = samples(device_clock_mhz=1980.0)
    slowed = tuple(
        dataclasses.replace(s, device_clock_mhz=1200.0) if s.time_s > 5 else s for s in steady
    )
    assert gates(records, telemetry=steady)["clocks"].passed
    assert not gates(records, telemetry=slowed)["clocks"].passed
    early = gates(records[:5], telemetry=slowed, window_s=(0.0, 5.0))["clocks"]
    assert early.passed
    assert early.value == 0


def test_what_is_left_of_the_warm_up_makes_a_trial_invalid():
    # ai-dynamo/aiperf 1435
    left = request([], index=0, warm_up=True, finish_reason=None, ended_s=None)
    found = gates([good(i) for i in range(10)], evidence={"warm_up": (left,)})["warm_up"]
    assert not found.passed
    assert "1 warm-up requests never ended" in found.message


def test_rounds_of_warm_up_that_go_equally_fast_are_told():
    # ggml-org/llama.cpp 21282
    protocol = ONE_IS_ENOUGH.model_copy(update={"warm_up_cv": 0.05})
    records = [good(i) for i in range(10)]

    def told(*rounds):
        return gates(records, protocol=protocol, evidence={"warm_up_rounds": rounds})["warm_up"]

    assert told(50.0, 99.0, 100.0, 101.0).judged
    assert "of 4 rounds vary by 1.0%" in told(50.0, 99.0, 100.0, 101.0).message
    assert not told(50.0, 70.0, 100.0).judged
    assert "had not settled" in told(50.0, 70.0, 100.0).message
    assert "2 rounds fitted" in told(100.0, 100.0).message


def test_a_window_shorter_than_the_protocol_asks_in_e2e_is_flagged():
    protocol = ONE_IS_ENOUGH.model_copy(update={"measured_e2e": 3.0})
    records = [good(i) for i in range(10)]  # E2E 1 s
    assert gates(records, protocol=protocol)["window_length"].passed
    short = gates(records[:2], protocol=protocol, window_s=(0.0, 2.0))["window_length"]
    assert not short.passed
    assert short.value == pytest.approx(2.0)


def test_limits_that_older_plans_left_off_are_still_read():
    assert GateLimits.model_validate({"half_drift": None}) == GateLimits()
    with pytest.raises(ValueError, match="half_drift"):
        GateLimits.model_validate({"half_drift": 0.5})
    with pytest.raises(ValueError, match="share"):
        GateLimits.model_validate({"agreement": 2.0})


@given(
    any_requests(instants=times | odd, gaps=waits | odd),
    any_requests(),
    st.lists(st.floats(0, 1e9), max_size=4),
    st.sampled_from([{}, {"rows": 2}, {"expected_hit_rate": 0.5}, {"shared_prefixes": True}]),
)
def test_gates_judge_any_records_without_a_crash(requests, warm, rounds, workload):
    standard = PROTOCOLS["standard"]
    evidence = {"warm_up": tuple(warm), "warm_up_rounds": tuple(rounds), "workload": workload}
    found = gates(requests, protocol=standard, evidence=evidence, window_s=(0.0, 60.0))
    for gate in found.values():
        assert isinstance(gate.passed, bool), gate.name
        assert gate.message
