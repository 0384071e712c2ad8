"""Work of others on the host: how much it was, who is told, and what it may refuse."""

from types import SimpleNamespace

import pytest

from experiments.foreign_cpu import BESIDE, foreign_label, on_this_host
from experiments.gate_limits import GateLimits
from experiments.metrics import measure
from experiments.observe import OwnCpu
from experiments.records import TelemetrySample
from tests.experiments.records import measurement
from tests.experiments.test_gates import gates, good


def watched(*pairs):
    return tuple(
        TelemetrySample(time_s=float(i), cpu_percent=host, own_cpu_percent=own)
        for i, (host, own) in enumerate(pairs)
    )


def found(telemetry, **fields):
    return measure(measurement([good(0)], telemetry=telemetry, **fields))["foreign_cpu_percent"]


def test_other_work_is_the_host_s_less_our_own():
    told = found(watched((None, None), (90.0, 40.0), (70.0, 40.0)))
    assert (told.value, told.n) == (40.0, 2)
    assert found(watched((30.0, 31.0))).value == 0.0


def test_where_it_cannot_be_told_it_is_no_zero():
    assert found(()).value is None
    beside = found(watched((90.0, 10.0)), server_beside=True)
    assert (beside.value, beside.reason) == (None, BESIDE)


def test_the_label_is_shared_by_like_trials_and_silent_on_a_quiet_host():
    assert foreign_label(None) is None
    assert foreign_label(20.0) is None
    assert foreign_label(20.1) == foreign_label(99.0)
    assert foreign_label(34.0) == "other work used more than 20 % of the processors"


def test_the_gate_is_off_unless_a_plan_asks_for_it():
    busy, requests = watched((90.0, 40.0)), [good(i) for i in range(10)]
    assert "foreign_cpu" not in gates(requests, telemetry=busy)
    limits = GateLimits(foreign_cpu_percent=20.0)
    gate = gates(requests, telemetry=busy, limits=limits)["foreign_cpu"]
    assert not gate.passed
    assert "50 % of the processors (limit 20 %)" in gate.message
    assert not gates(requests, limits=limits)["foreign_cpu"].judged


def test_our_own_share_is_of_all_processors_and_needs_two_readings():
    readings = iter((10.0, 11.0, 10.5, 12.5))
    own = OwnCpu(SimpleNamespace(cpu_s=lambda _: next(readings)), processors=4)
    assert own.percent(0.0) is None
    assert own.percent(0.5) == pytest.approx(50.0)
    assert own.percent(1.0) == 0.0  # a process went without being waited for
    assert own.percent(1.0) is None


@pytest.mark.parametrize(
    ("url", "here"),
    [
        ("http://127.0.0.1:8000", True),
        ("http://localhost:1", True),
        ("http://[::1]:9", True),
        ("http://10.0.0.7:8000", False),
        ("https://models.example", False),
    ],
)
def test_an_address_of_this_host_is_known_as_one(url, here):
    assert on_this_host(url) is here
