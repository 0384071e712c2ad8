"""The observer: one thread beside the load that reads host and devices and stays cheap."""

import dataclasses
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest

from experiments.clock import SystemClock, VirtualClock
from experiments.host_energy import HostEnergy
from experiments.observe import HostObserver, NoObserver
from experiments.plan import load_plan
from experiments.process_tree import ProcessTree
from experiments.sweep import run
from experiments.targets.simulated import SimulatedTarget
from experiments.targets.simulated_profile import SimulatedProfile
from tests.fakes.nvml import NOT_SUPPORTED, FakeDevice, FakeNvml, Power


def facts(*uuids, devices=None):
    return SimpleNamespace(device_uuids=uuids or None, devices=devices or len(uuids))


def observed(seconds, *uuids, **options):
    clock = SystemClock()
    observer = HostObserver(**options)
    observer.start(clock, clock.now_ns(), facts(*uuids))
    time.sleep(seconds)
    return observer.stop()


@pytest.fixture
def two_devices(monkeypatch):
    start_s = time.perf_counter()
    devices = [FakeDevice(uuid="GPU-0"), FakeDevice(uuid="GPU-1", power=Power.of((0.0, 300.0)))]
    fake = FakeNvml(devices, lambda: time.perf_counter() - start_s)
    monkeypatch.setitem(sys.modules, "pynvml", fake)
    return fake


def test_host_and_devices_are_read_at_the_same_instants_in_order(two_devices):
    rows = observed(0.5, "GPU-0", "GPU-1", interval_s=0.05)
    times = [row.time_s for row in rows]
    assert times == sorted(times)
    host = [row for row in rows if row.device_index is None]
    assert len(host) >= 2  # on a busy host the thread may come late
    for index in (0, 1):
        mine = [row for row in rows if row.device_index == index]
        assert [row.time_s for row in mine] == [row.time_s for row in host]
        assert mine[-1].device_energy_j > mine[0].device_energy_j
    assert host[0].cpu_percent is None
    assert all(row.memory_bytes > 1e6 for row in host)
    assert two_devices.sessions == 0


def test_a_device_that_cannot_be_opened_leaves_its_reason_in_the_rows(two_devices):
    rows = observed(0.0, "GPU-7")
    assert all(row.device_index is None for row in rows)
    assert "does not know a device" in rows[0].telemetry_reason


def test_an_engine_without_devices_has_no_reason_to_give():
    rows = observed(0.0)
    assert {row.telemetry_reason for row in rows} == {None}


def test_slow_devices_are_read_less_often(monkeypatch):
    """Each reading takes 30 ms, so that ten readings a second would take a third of the time."""

    def slow_now():
        time.sleep(0.03)
        return 1.0

    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml([FakeDevice(uuid="GPU-0")], slow_now))
    rows = observed(1.0, "GPU-0", interval_s=0.01)
    assert 3 <= len({row.time_s for row in rows}) <= 8


def test_idle_power_is_the_sum_of_all_devices(two_devices):
    found = HostObserver().idle_power_w(VirtualClock(), facts("GPU-0", "GPU-1"), 0.5)
    assert found == pytest.approx(400.0)
    assert two_devices.sessions == 0


def test_idle_power_is_unknown_unless_every_device_tells(two_devices):
    clock = VirtualClock()
    assert HostObserver().idle_power_w(clock, facts(), 0.5) is None
    assert HostObserver().idle_power_w(clock, facts("GPU-9"), 0.5) is None
    assert HostObserver().idle_power_w(clock, facts("GPU-0", devices=2), 0.5) is None
    assert HostObserver().idle_power_w(clock, facts("GPU-0", "GPU-1"), 0.0) is None
    names = ("nvmlDeviceGetPowerUsage", "nvmlDeviceGetFieldValues")
    two_devices.devices[1].refuses = dict.fromkeys(names, NOT_SUPPORTED)
    assert HostObserver().idle_power_w(clock, facts("GPU-0", "GPU-1"), 0.5) is None
    assert NoObserver().idle_power_w(clock, facts("GPU-0"), 0.5) is None
    assert two_devices.sessions == 0


def test_the_process_list_is_made_once_a_second_and_ended_processes_count_nothing():
    import os

    asked = []

    def pids():
        asked.append(1)
        return frozenset({os.getpid(), 2**22 + 1})  # the second one is no process

    tree = ProcessTree(pids)
    sizes = [tree.memory_bytes(0.1 * i) for i in range(15)]
    assert len(asked) == 2
    assert min(sizes) > 1e6


def test_the_tree_counts_what_its_ended_children_took():
    tree = ProcessTree()
    before = tree.cpu_s(0.0)
    code = "import time\nwhile time.process_time() < 0.3: pass"
    subprocess.run([sys.executable, "-c", code], check=True)
    assert tree.cpu_s(0.1) - before >= 0.29


def package(folder, name, energy, kind="package-0"):
    home = folder / name
    home.mkdir(exist_ok=True)
    for file, text in {"name": kind, "energy_uj": energy, "max_energy_range_uj": 1_000_000}.items():
        (home / file).write_text(f"{text}\n")


def test_processor_joules_are_those_of_whole_packages_and_survive_a_wrapped_counter(tmp_path):
    package(tmp_path, "intel-rapl:0", 900_000)
    package(tmp_path, "intel-rapl:1", 0, kind="package-1")
    package(tmp_path, "intel-rapl:0:0", 5, kind="core")
    host = HostEnergy(tmp_path)
    assert host.read_j() == 0
    package(tmp_path, "intel-rapl:0", 100_000)
    package(tmp_path, "intel-rapl:1", 300_000, kind="package-1")
    package(tmp_path, "intel-rapl:0:0", 999_999, kind="core")
    assert host.read_j() == pytest.approx(0.5)


def test_a_host_that_does_not_let_us_read_its_counters_tells_nothing(tmp_path):
    assert HostEnergy(tmp_path).read_j() is None
    package(tmp_path, "intel-rapl:0", "no number")
    assert HostEnergy(tmp_path).read_j() is None
    package(tmp_path, "intel-rapl:0", 5)
    host = HostEnergy(tmp_path)
    (tmp_path / "intel-rapl:0" / "energy_uj").unlink()
    assert host.read_j() is None


class OnDevices(SimulatedTarget):
    """A simulated engine that was given two devices."""

    def describe(self, engine):
        given = {"devices": 2, "device_uuids": ("GPU-0", "GPU-1")}
        return dataclasses.replace(super().describe(engine), **given)


def test_a_trial_keeps_what_its_devices_did(two_devices):
    plan = load_plan(
        {
            "name": "devices",
            "target": "simulated",
            "engine": {"model": "simulated"},
            "axes": [{"product": {"batch_size": [2]}}],
            "workloads": [
                {"name": "w", "kind": "synthetic", "prompt_tokens": 8, "output_tokens": 8}
            ],
            "protocol": {"name": "quick", "measured_s": 0.6, "idle_s": 0.2},
        }
    )
    clock = SystemClock()
    (record,) = run(plan, lambda: OnDevices(SimulatedProfile(), clock), clock=clock)
    assert record.idle_power_w == pytest.approx(400.0)
    metrics = record.metrics
    assert metrics["device_power_w"].value == pytest.approx(400.0)
    assert metrics["energy_j"].value == pytest.approx(400 * metrics["duration_s"].value, rel=0.05)
    assert metrics["energy_agreement"].value == pytest.approx(1.0, abs=0.05)
    assert metrics["energy_j_token"].value > 0
    gate = next(gate for gate in record.gates if gate.name == "energy_agreement")
    assert gate.passed
    assert {row.device_index for row in record.telemetry} == {None, 0, 1}
    assert two_devices.sessions == 0
