"""NVIDIA devices as NVML tells them: every refusal is None with its reason."""

import os
import sys

import pytest

from experiments.errors import TelemetryError
from experiments.nvidia import REASON_BITS, NvidiaReader, throttle_names
from experiments.throttling import BENIGN, HARMFUL, harmful
from tests.fakes.nvml import (
    GPU_IS_LOST,
    NO_PERMISSION,
    NOT_SUPPORTED,
    FakeDevice,
    FakeNvml,
    Power,
)

FOUR = [FakeDevice(uuid=f"GPU-{i}", power=Power.of((0.0, 100.0 * (i + 1)))) for i in range(4)]


def reader(*devices, pids=frozenset({1}), now_s=2.0):
    nvml = FakeNvml(devices, lambda: now_s)
    return NvidiaReader(nvml, [device.uuid for device in devices], lambda: frozenset(pids))


def test_only_the_devices_of_the_engine_are_read_in_its_order(monkeypatch):
    fake = FakeNvml(FOUR, lambda: 2.0)
    monkeypatch.setitem(sys.modules, "pynvml", fake)
    opened = NvidiaReader.open(["GPU-3", "GPU-1"])
    rows = opened.read(2.0)
    assert [(row.device_index, row.device_energy_j) for row in rows] == [(3, 800.0), (1, 400.0)]
    opened.close()
    opened.close()
    assert fake.sessions == 0


def test_a_device_that_the_driver_does_not_know_is_named_and_the_session_ends(monkeypatch):
    fake = FakeNvml(FOUR)
    monkeypatch.setitem(sys.modules, "pynvml", fake)
    with pytest.raises(TelemetryError, match="does not know a device"):
        NvidiaReader.open(["GPU-9"])
    assert fake.sessions == 0


def test_a_host_without_the_binding_says_how_to_get_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", None)
    with pytest.raises(TelemetryError, match="pip install nvidia-ml-py"):
        NvidiaReader.open(["GPU-0"])


def test_a_reading_has_everything_that_the_device_tells():
    (row,) = reader(FakeDevice(throttle_bits=0x4 | 0x40, pids=[1, 77])).read(2.0)
    assert row.device_power_w == row.device_power_average_w == 100.0
    assert row.device_clock_mhz == 1980
    assert row.device_memory_clock_mhz == 3201
    assert row.device_temperature_c == 55
    assert row.device_utilisation_percent == 97
    assert row.device_memory_bytes == 20 << 30
    assert row.device_power_limit_w == 700.0
    assert row.throttle_reasons == ("sw_power_cap", "hw_thermal_slowdown")
    assert row.foreign_processes == 1
    assert row.telemetry_reason is None


def test_power_at_the_instant_and_its_mean_are_told_apart():
    rising = FakeDevice(power=Power.of((0.0, 100.0), (1.5, 300.0)))
    (row,) = reader(rising).read(2.0)
    assert (row.device_power_w, row.device_power_average_w) == (300.0, 200.0)
    rising.has_instant_power = False
    (row,) = reader(rising).read(2.0)
    assert (row.device_power_w, row.device_power_average_w) == (200.0, None)


def test_a_device_without_a_counter_or_power_says_so():
    refusing = FakeDevice(
        refuses={
            "nvmlDeviceGetTotalEnergyConsumption": NOT_SUPPORTED,
            "nvmlDeviceGetMemoryInfo": NO_PERMISSION,
            "nvmlDeviceGetUtilizationRates": NOT_SUPPORTED,
        }
    )
    (row,) = reader(refusing).read(2.0)
    assert row.device_energy_j is None
    assert row.telemetry_reason == "this device tells no energy counter"
    assert row.device_memory_bytes is None
    assert row.device_utilisation_percent is None
    assert row.device_power_w == 100.0


def test_what_is_not_supported_is_asked_once_and_what_failed_is_asked_again():
    refusing = FakeDevice(
        refuses={
            "nvmlDeviceGetTotalEnergyConsumption": NOT_SUPPORTED,
            "nvmlDeviceGetMemoryInfo": NO_PERMISSION,
        }
    )
    nvml = FakeNvml([refusing])
    opened = NvidiaReader(nvml, ["GPU-0"], lambda: frozenset({1}))
    for time_s in range(3):
        opened.read(float(time_s))
    assert nvml.calls.count("nvmlDeviceGetTotalEnergyConsumption") == 1
    assert nvml.calls.count("nvmlDeviceGetMemoryInfo") == 3


def test_processes_and_limits_are_asked_once_a_second():
    nvml = FakeNvml([FakeDevice(pids=[1])])
    opened = NvidiaReader(nvml, ["GPU-0"], lambda: frozenset({1}))
    rows = [opened.read(0.1 * i)[0] for i in range(20)]
    assert nvml.calls.count("nvmlDeviceGetComputeRunningProcesses") == 2
    assert {row.foreign_processes for row in rows} == {0}


def test_a_lost_device_gives_rows_with_the_reason():
    names = ("TotalEnergyConsumption", "PowerUsage", "FieldValues", "MemoryInfo", "ClockInfo")
    lost = FakeDevice(refuses={f"nvmlDeviceGet{name}": GPU_IS_LOST for name in names})
    (row,) = reader(lost).read(2.0)
    assert row.device_power_w is None
    assert "GPU is lost" in row.telemetry_reason


@pytest.mark.parametrize("uuid", ["GPU-0", "MIG-0"])
def test_under_mig_neither_power_nor_energy_is_told(uuid):
    (row,) = reader(FakeDevice(uuid=uuid, mig=True)).read(2.0)
    assert row.device_energy_j is row.device_power_w is None
    assert "MIG is on" in row.telemetry_reason
    assert row.device_memory_bytes == 20 << 30


@pytest.mark.parametrize(
    ("listed", "foreign"),
    [
        ([1], 0),
        ([1, 2], 0),
        ([1, 900, 901], 2),
        ([900, 901], None),  # pids of another namespace: the engine itself is not among them
        ([], None),  # the engine runs there, so an empty list is no list
    ],
)
def test_foreign_processes_are_counted_only_where_pids_resolve(listed, foreign):
    (row,) = reader(FakeDevice(pids=listed), pids={1, 2}).read(2.0)
    assert row.foreign_processes == foreign


def test_this_process_is_its_own(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml([FakeDevice(pids=[os.getpid()])]))
    (row,) = NvidiaReader.open(["GPU-0"]).read(0.0)
    assert row.foreign_processes == 0


def test_each_reason_is_either_benign_or_harmful_and_an_unknown_one_is_harmful():
    assert not BENIGN.keys() & HARMFUL.keys()
    assert set(REASON_BITS.values()) == BENIGN.keys() | HARMFUL.keys()
    assert throttle_names(0) == ()
    assert throttle_names(0x1 | 0x1000) == ("gpu_idle", "unknown_0x1000")
    assert harmful(["gpu_idle", "sw_power_cap", "hw_slowdown", "unknown_0x1000"]) == (
        "hw_slowdown",
        "unknown_0x1000",
    )


def test_the_bits_are_those_of_the_vendors_binding():
    import pynvml

    for bit, name in REASON_BITS.items():
        words = "".join(word.capitalize() for word in name.split("_"))
        assert getattr(pynvml, f"nvmlClocksThrottleReason{words}") == bit
