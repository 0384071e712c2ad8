import pytest

from experiments.gate_limits import GateLimits
from experiments.gates import Conditions, evaluate, first_failure
from experiments.metrics import measure
from experiments.protocol import PROTOCOLS
from tests.experiments.records import failed, measurement, request


def gates(requests, *, batch_size=1, needed=1, shares_prefixes=False, limits=None, **fields):
    m = measurement(requests, **fields)
    conditions = Conditions(
        limits=limits or GateLimits(),
        needed_requests=needed,
        batch_size=batch_size,
        shares_prefixes=shares_prefixes,
    )
    return {gate.name: gate for gate in evaluate(m, measure(m), conditions)}


def good(index, **fields):
    return request([(index + 0.5, 1), (index + 1.0, 3)], sent_s=float(index), index=index, **fields)


def test_a_clean_trial_passes_every_gate():
    found = gates([good(i) for i in range(10)])
    assert all(gate.passed for gate in found.values())
    assert first_failure(tuple(found.values())) is None


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
    few = gates([good(i) for i in range(3)], needed=4)["enough_requests"]
    assert not few.passed
    assert "raise protocol.limit_s" in few.message
    assert gates([good(i) for i in range(4)], needed=4)["enough_requests"].passed


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


def test_a_warm_cache_is_flagged_unless_prefixes_are_shared_on_purpose():
    # vllm-project/vllm 54227
    warm = [good(i, cached_tokens=5) for i in range(10)]
    assert not gates(warm)["cache_hit"].passed
    assert "cache_hit" not in gates(warm, shares_prefixes=True)


def test_littles_law_is_judged_only_on_enough_turns():
    broken = [
        request([(i + 0.5, 1), (i + 1.0, 1)], sent_s=i, index=i, ended_s=i + 3.0) for i in range(10)
    ]
    assert not gates(broken)["littles_law"].passed
    few = gates(broken[:3])["littles_law"]
    assert not few.judged
    assert few.message.startswith("not judged")
    assert gates(broken)["littles_law"].judged


def test_a_drift_over_the_window_is_gated_on_request():
    late = [request([(6.0 + i / 10, 1), (7.0 + i / 10, 9)], index=i) for i in range(10)]
    assert "steady_state" not in gates(late)
    drifted = gates(late, limits=GateLimits(half_drift=0.5))["steady_state"]
    assert not drifted.passed
    assert drifted.value > 1
