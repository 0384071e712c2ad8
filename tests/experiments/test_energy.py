"""Joules by counters and by power, against devices whose power is known exactly."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.device_metrics import device_metrics
from experiments.energy import energy
from experiments.gate_limits import GateLimits
from experiments.gates_energy import energy_agreement
from experiments.nvidia import NvidiaReader
from experiments.records import TelemetrySample
from tests.experiments.records import measurement, request
from tests.fakes.nvml import NOT_SUPPORTED, FakeDevice, FakeNvml, Power, ticks

JITTER = (0.0, 0.013, 0.002, 0.031, 0.007)
BUSY = Power.of((0.0, 90.0), (1.0, 650.0), (20.0, 400.0), (41.0, 90.0))
"""Idle, a load, a lighter load, idle."""


def watched(devices, *, end_s=45.0, at=None, pids=(1,)):
    """What an observer stores of scripted devices: read at jittery instants, ten a second."""
    now = [0.0]
    reader = NvidiaReader(
        FakeNvml(devices, lambda: now[0]), [d.uuid for d in devices], lambda: frozenset(pids)
    )
    rows = []
    for time_s in at if at is not None else ticks(end_s, jitter=JITTER):
        now[0] = time_s
        rows += reader.read(time_s)
    return tuple(rows)


def measured(telemetry, window_s=(1.0, 41.0), tokens=1000, devices=1, **fields):
    start, end = window_s
    record = request([(start, tokens // 2), (end, tokens - tokens // 2)], prompt_tokens=500)
    return measurement([record], window_s=window_s, devices=devices, telemetry=telemetry, **fields)


def true_j(power, window_s):
    return power.joules(window_s[1]) - power.joules(window_s[0])


@pytest.mark.parametrize("every_s", [0.0, 0.02, 0.1])
@pytest.mark.parametrize("window_s", [(1.0, 41.0), (5.03, 15.07), (12.0, 34.56)])
def test_the_counter_gives_the_joules_of_the_window_within_one_percent(every_s, window_s):
    telemetry = watched([FakeDevice(power=BUSY, counter_every_s=every_s)])
    found = energy(measured(telemetry, window_s))["energy_j"]
    truth = true_j(BUSY, window_s)
    assert found.value == pytest.approx(truth, rel=0.01)
    assert found.low <= truth <= found.high


@pytest.mark.parametrize("window_s", [(1.0, 41.0), (5.03, 15.07), (12.0, 34.56)])
def test_the_integral_gives_the_same_joules_within_one_percent(window_s):
    found = energy(measured(watched([FakeDevice(power=BUSY)]), window_s))
    truth_j = true_j(BUSY, window_s)
    assert found["energy_j_token_integral"].value == pytest.approx(truth_j / 1000, rel=0.01)
    assert found["energy_agreement"].value == pytest.approx(1.0, abs=0.02)
    assert energy_agreement(found, GateLimits()).passed


@given(
    watts=st.lists(st.floats(50, 700), min_size=1, max_size=6),
    start_s=st.floats(0.5, 4.0),
    length_s=st.floats(2.0, 30.0),
    every_s=st.sampled_from([0.0, 0.02, 0.1]),
)
def test_the_truth_lies_within_the_bounds_of_the_counter(watts, start_s, length_s, every_s):
    power = Power.of(*((6.0 * i, w) for i, w in enumerate(watts)))
    window_s = (start_s, start_s + length_s)
    telemetry = watched([FakeDevice(power=power, counter_every_s=every_s)], end_s=36.0)
    found = energy(measured(telemetry, window_s))["energy_j"]
    assert found.low - 0.2 <= true_j(power, window_s) <= found.high + 0.2


def test_a_short_window_on_a_slow_counter_says_how_unsure_it_is():
    power = Power.of((0.0, 500.0))
    telemetry = watched([FakeDevice(power=power, counter_every_s=0.1)], end_s=4.0)
    found = energy(measured(telemetry, (1.0, 3.0)))["energy_j"]
    assert found.low < 1000 < found.high
    assert (found.high - found.low) / 2 < 110  # two of its steps


def test_eight_devices_are_added_up_and_not_averaged():
    powers = [Power.of((0.0, 100.0 * (i + 1))) for i in range(8)]
    devices = [FakeDevice(uuid=f"GPU-{i}", power=power) for i, power in enumerate(powers)]
    m = measured(watched(devices, end_s=12.0), (1.0, 11.0), devices=8)
    assert energy(m)["energy_j"].value == pytest.approx(3600 * 10, rel=0.01)
    assert energy(m)["energy_j_token"].value == pytest.approx(36.0, rel=0.01)
    assert device_metrics(m)["device_power_w"].value == pytest.approx(3600, rel=0.001)


@pytest.mark.parametrize("every_s", [0.0, 0.1])
def test_an_idle_device_takes_its_idle_power_and_nothing_net(every_s):
    idle = FakeDevice(power=Power.of((0.0, 75.0)), counter_every_s=every_s)
    m = measured(watched([idle], end_s=12.0), (1.0, 11.0), idle_power_w=74.9)
    found = energy(m)
    assert found["energy_j"].value == pytest.approx(750, rel=0.01)
    assert found["energy_j_token_net"].value == pytest.approx(0.0, abs=0.01)


def test_net_of_idle_leaves_what_the_load_took():
    m = measured(watched([FakeDevice(power=BUSY)]), (1.0, 20.0), idle_power_w=90.0)
    found = energy(m)
    assert found["energy_j_token_net"].value == pytest.approx((650 - 90) * 19 / 1000, rel=0.01)
    without = energy(measured(watched([FakeDevice(power=BUSY)]), (1.0, 20.0)))
    assert "idle devices was not measured" in without["energy_j_token_net"].reason
    more = energy(measured(watched([FakeDevice(power=BUSY)]), (1.0, 20.0), idle_power_w=900.0))
    assert more["energy_j_token_net"].value is None
    assert "had not settled" in more["energy_j_token_net"].reason


def test_energy_is_given_per_token_with_and_without_prompt_and_per_request():
    power = Power.of((0.0, 300.0))
    found = energy(measured(watched([FakeDevice(power=power)], end_s=12.0), (1.0, 11.0)))
    assert found["energy_j_token"].value == pytest.approx(3.0, rel=0.001)
    assert found["energy_j_total_token"].value == pytest.approx(2.0, rel=0.001)
    assert found["energy_j_request"].value == pytest.approx(3000.0, rel=0.001)


def test_a_reset_counter_gives_no_energy():
    device = FakeDevice(power=BUSY, reset_at_s=20.0)
    found = energy(measured(watched([device])))
    assert found["energy_j_token"].value is None
    assert found["energy_j_token"].reason == "an energy counter was reset"
    assert found["energy_j_token_integral"].value is not None
    gate = energy_agreement(found, GateLimits())
    assert gate.passed
    assert not gate.judged


@pytest.mark.parametrize("scale", [1e6, 1.0])
def test_a_counter_in_another_unit_fails_the_gate(scale):
    telemetry = watched([FakeDevice(power=BUSY, counter_scale=scale)])
    gate = energy_agreement(energy(measured(telemetry)), GateLimits())
    assert not gate.passed
    assert "not 1 +- 0.05" in gate.message


def test_one_slipped_device_of_eight_fails_the_gate():
    devices = [FakeDevice(uuid=f"GPU-{i}", power=Power.of((0.0, 300.0))) for i in range(8)]
    devices[5].counter_scale = 1e6
    telemetry = watched(devices, end_s=12.0)
    found = energy(measured(telemetry, (1.0, 11.0), devices=8))
    assert not energy_agreement(found, GateLimits()).passed


def test_the_gate_does_not_judge_what_one_step_of_the_counter_explains():
    slow = FakeDevice(power=Power.of((0.0, 500.0)), counter_every_s=0.5, counter_scale=1100.0)
    found = energy(measured(watched([slow], end_s=4.0), (1.3, 3.1)))
    gate = energy_agreement(found, GateLimits())
    assert gate.passed
    assert abs(gate.value - 1) > 0.05
    assert not gate.judged
    assert "the window is short" in gate.message
    assert energy_agreement(found, GateLimits(energy_agreement=None)) is None
    assert not energy_agreement({}, GateLimits()).judged


def test_a_power_that_jumps_between_readings_is_known_worse_and_fails_no_short_trial():
    """Work of 30 ms at 700 W, then 70 ms at 200 W, read about ten times a second."""
    steps = [(t / 10 + d, w) for t in range(60) for d, w in ((0.0, 700.0), (0.03, 200.0))]
    jumping = FakeDevice(power=Power.of(*steps))
    jitter = np.random.default_rng(1).uniform(0.0, 0.09, 50)
    telemetry = watched([jumping], at=ticks(5.0, jitter=jitter))
    found = energy(measured(telemetry, (1.0, 3.0)))
    truth_j = true_j(jumping.power, (1.0, 3.0))
    assert found["energy_j"].value == pytest.approx(truth_j, rel=0.1)
    assert abs(found["energy_agreement"].value - 1) > 0.05
    gate = energy_agreement(found, GateLimits())
    assert gate.passed
    assert not gate.judged


def test_a_gap_in_the_readings_spoils_the_integral_and_not_the_counter():
    instants = [t for t in ticks(45.0) if not 10.0 < t < 12.0]
    found = energy(measured(watched([FakeDevice(power=BUSY)], at=instants)))
    assert "more than 1 s" in found["energy_j_token_integral"].reason
    assert found["energy_j"].value == pytest.approx(true_j(BUSY, (1.0, 41.0)), rel=0.01)
    edge = energy(measured(watched([FakeDevice(power=BUSY)], at=instants), (11.0, 41.0)))
    assert "around an edge of the window" in edge["energy_j"].reason


def test_readings_must_lie_on_both_sides_of_the_window():
    telemetry = watched([FakeDevice(power=BUSY)], end_s=30.0)
    found = energy(measured(telemetry))
    assert "both sides of the window" in found["energy_j"].reason
    assert "both sides of the window" in found["energy_j_token_integral"].reason


def test_readings_outside_the_window_change_nothing():
    telemetry = watched([FakeDevice(power=BUSY)])
    near = tuple(row for row in telemetry if 0.8 <= row.time_s <= 41.3)
    assert len(near) < len(telemetry)
    assert energy(measured(telemetry))["energy_j"].value == pytest.approx(
        energy(measured(near))["energy_j"].value
    )


def test_each_round_of_a_load_is_counted_and_the_time_between_is_not():
    telemetry = watched([FakeDevice(power=BUSY)])
    rounds = ((2.0, 8.0), (22.0, 30.0))
    m = measured(telemetry, (2.0, 30.0), windows_s=rounds)
    truth = sum(true_j(BUSY, window) for window in rounds)
    assert energy(m)["energy_j"].value == pytest.approx(truth, rel=0.01)
    assert energy(m)["energy_agreement"].value == pytest.approx(1.0, abs=0.02)


def test_devices_that_are_not_all_read_give_no_energy():
    telemetry = watched([FakeDevice(power=BUSY)])
    found = energy(measured(telemetry, devices=2))
    assert found["energy_j"].reason == "1 devices were read and 2 are allocated"
    assert device_metrics(measured(telemetry, devices=2))["device_power_w"].value is None


def test_another_process_on_a_device_spoils_its_energy():
    found = energy(measured(watched([FakeDevice(power=BUSY, pids=[1, 999])])))
    assert found["energy_j"].reason == "another process ran on a device"
    unknown = energy(measured(watched([FakeDevice(power=BUSY, pids=[999])])))
    assert unknown["energy_j"].value is not None


def test_under_mig_there_is_no_energy_and_the_reason_says_mig():
    found = device_metrics(measured(watched([FakeDevice(power=BUSY, mig=True)])))
    for name in ("energy_j_token", "energy_j_token_integral", "energy_agreement"):
        assert found[name].value is None
        assert "MIG is on" in found[name].reason
    assert found["device_clock_mhz"].value == 1980


def test_devices_without_a_counter_are_counted_by_their_power():
    device = FakeDevice(power=BUSY, refuses={"nvmlDeviceGetTotalEnergyConsumption": NOT_SUPPORTED})
    found = energy(measured(watched([device])))
    assert found["energy_j"].value == pytest.approx(true_j(BUSY, (1.0, 41.0)), rel=0.01)
    assert found["energy_agreement"].reason == "this device tells no energy counter"


def test_no_token_and_no_telemetry_are_missing_with_their_reason():
    telemetry = watched([FakeDevice(power=BUSY)])
    silent = measurement([request([])], window_s=(1.0, 41.0), telemetry=telemetry)
    assert energy(silent)["energy_j_token"].reason == "no token arrived in the window"
    none = device_metrics(measured(()))
    assert all(found.value is None for found in none.values())
    assert all(found.reason for found in none.values())


def test_what_devices_did_is_summed_up_over_the_window_only():
    inside = {"device_index": 0, "device_clock_mhz": 1700.0, "device_temperature_c": 70.0}
    outside = {"device_index": 0, "device_clock_mhz": 200.0, "device_temperature_c": 99.0}
    telemetry = (
        TelemetrySample(time_s=0.0, throttle_reasons=("hw_slowdown",), **outside),
        TelemetrySample(time_s=2.0, throttle_reasons=("sw_power_cap",), **inside),
        TelemetrySample(time_s=3.0, throttle_reasons=("sw_thermal_slowdown",), **inside),
        TelemetrySample(time_s=4.0, throttle_reasons=(), **inside),
        TelemetrySample(time_s=5.0, throttle_reasons=None, **inside),
    )
    found = device_metrics(measured(telemetry))
    assert found["device_clock_mhz"].value == found["device_clock_mhz_min"].value == 1700
    assert found["device_temperature_c"].value == 70
    assert found["throttled_share"].value == pytest.approx(1 / 3)
    assert found["power_capped_share"].value == pytest.approx(1 / 3)
    assert found["throttled_share"].n == 3


def test_processor_energy_is_that_of_the_window():
    telemetry = tuple(
        TelemetrySample(time_s=t, host_energy_j=60.0 * t, memory_bytes=1)
        for t in np.arange(0.0, 45.0, 0.5)
    )
    found = device_metrics(measured(telemetry, (1.2, 40.7)))
    assert found["host_energy_j"].value == pytest.approx(60 * 39.5, rel=0.001)
    assert found["telemetry_readings_s"].value == pytest.approx(2.0, rel=0.05)


def test_jitter_of_reading_moves_no_energy():
    ways = itertools.permutations(JITTER, 3)
    device = FakeDevice(power=BUSY, counter_every_s=0.1)
    found = [
        energy(measured(watched([device], at=ticks(45.0, jitter=way))))["energy_j"].value
        for way in itertools.islice(ways, 6)
    ]
    assert max(found) / min(found) < 1.01
