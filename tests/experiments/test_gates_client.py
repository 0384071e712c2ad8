from dataclasses import replace

import pytest

from experiments.client_metrics import client_metrics
from experiments.gate_limits import GateLimits
from experiments.gate_parts import Evidence
from experiments.gates import evaluate, first_failure
from experiments.gates_client import CLIENT_DIED, client_cpu, client_lag, client_processes
from experiments.metrics import measure
from experiments.protocol import PROTOCOLS
from experiments.records import TelemetrySample
from tests.experiments.records import measurement, request


def sent(late_s, index=0, **fields):
    """Intended at `index`, sent so much later, over a connection."""
    at = float(index)
    times = {"intended_s": at, "dispatched_s": at, "closed_s": at + late_s + 0.2}
    return request([(at + late_s + 0.1, 1)], sent_s=at + late_s, index=index, **{**times, **fields})


def evidence(requests, *, cpu=(), limits=None, batch_size=None, workload=None):
    telemetry = tuple(
        TelemetrySample(time_s=0.5 + i, client_cpu_percent=percent) for i, percent in enumerate(cpu)
    )
    return Evidence(
        measurement=measurement(requests, telemetry=telemetry),
        metrics={},
        limits=limits or GateLimits(),
        protocol=PROTOCOLS["quick"],
        batch_size=batch_size,
        workload=workload or {},
    )


def test_a_client_that_sends_late_at_the_99th_percentile_is_the_bottleneck():
    on_time = [sent(0.001, index) for index in range(9)]
    assert client_lag(evidence(on_time)).passed
    found = client_lag(evidence([*on_time, sent(0.02, 9)]))
    assert not found.passed
    assert found.value == pytest.approx(0.02)
    assert "20.0 ms late" in found.message
    assert client_lag(evidence([sent(0.02)], limits=GateLimits(client_lag_s=0.05))).passed
    assert client_lag(evidence([sent(0.02)], limits=GateLimits(client_lag_s=None))) is None


def test_what_waits_for_a_slot_on_purpose_is_due_when_it_leaves_the_queue():
    assert client_lag(evidence([sent(3.0, dispatched_s=2.999)])).passed
    assert not client_lag(evidence([sent(3.0, dispatched_s=2.9)])).passed


def test_a_client_that_takes_most_of_a_core_is_the_bottleneck():
    assert client_cpu(evidence([sent(0.0)], cpu=(70, 85))).passed
    assert not client_cpu(evidence([sent(0.0)], cpu=(85, 95))).passed
    assert not client_cpu(evidence([sent(0.0)])).judged
    assert client_cpu(evidence([sent(0.0)], limits=GateLimits(client_cpu_percent=None))) is None


def test_only_the_window_counts_for_the_processor_time():
    late = TelemetrySample(time_s=11.0, client_cpu_percent=100.0)
    inside = evidence([sent(0.0)], cpu=(10,))
    both = measurement([sent(0.0)], telemetry=(*inside.measurement.telemetry, late))
    assert client_cpu(Evidence(**{**vars(inside), "measurement": both})).value == 10


def test_a_client_process_that_died_makes_the_trial_invalid_and_is_named():
    lost = sent(0.0, 3, error="client process 1 died", error_kind=CLIENT_DIED, worker=1)
    beside = evidence([sent(0.0), lost, lost])
    found = client_processes(beside)
    assert not found.passed
    assert "client 1 with 2 requests" in found.message
    assert client_processes(evidence([sent(0.0)])).passed
    whole = replace(beside, metrics=measure(beside.measurement))
    assert first_failure(evaluate(whole)) == f"client_processes: {found.message}"


def test_the_metrics_of_the_client_are_missing_where_there_is_none():
    here = client_metrics(measurement([request([(5.0, 1)], sent_s=3.0)]))
    assert {value.value for value in here.values()} == {None}
    assert all(value.reason for value in here.values())


def test_the_metrics_of_the_client_are_those_of_its_requests_and_samples():
    counted = {"retokenised_tokens": 3, "output_tokens": 6, "server_prompt_tokens": 12}
    many = [sent(0.001 * (i + 1), i / 100, **counted) for i in range(400)]
    found = client_metrics(evidence(many, cpu=(20, 40)).measurement)
    assert found["client_lag_s_p50"].value == pytest.approx(0.2, abs=0.002)
    assert found["client_lag_s_p99"].value == pytest.approx(0.396, abs=0.002)
    assert found["client_cpu_percent"].value == 30
    assert found["retokenised_ratio"].value == pytest.approx(0.5)
    assert found["server_prompt_ratio"].value == pytest.approx(1.2)
    few = client_metrics(measurement([sent(0.001)]))
    assert few["client_lag_s_p99"].value is None


@pytest.mark.parametrize(
    ("histogram", "ours_s"),
    [
        ("vllm:request_time_per_output_token_seconds", (0.1 + 0.4) / 2),
        ("sglang:inter_token_latency_seconds", (3 * 0.1 + 0.4) / 4),
        ("time_per_output_token_seconds", (3 * 0.1 + 0.4) / 4),
    ],
)
def test_a_servers_histogram_is_held_against_the_same_mean_of_the_clients(histogram, ours_s):
    # A client saw 10.8 ms a token where its server told 22.6: the server counted by steps.
    quick = request([(1.0, 1), (1.3, 3)])
    slow = request([(1.0, 1), (1.4, 1)])
    counters = {f"{histogram}_sum": 2.0, f"{histogram}_count": 4.0, "other_sum": 9.0}
    found = client_metrics(measurement([quick, slow], counters=counters))["server_tpot_ratio"]
    assert found.value == pytest.approx(0.5 / ours_s)
    assert found.n == 4


def test_an_engine_in_this_process_has_no_client_to_judge():
    here = evidence([request([(5.0, 1)], sent_s=3.0, intended_s=0.0)])
    assert (client_lag(here), client_cpu(here), client_processes(here)) == (None, None, None)
