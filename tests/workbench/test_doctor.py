"""The doctor: what is missing, and what that means."""

import importlib.machinery
import json
import socket
import sys

import pytest

from experiments.clock import SystemClock
from experiments.device_check import check
from kernels.plan import Decision
from tests.fakes.causal import LLAMA
from tests.fakes.command import last_json, workbench
from tests.fakes.nvml import NOT_SUPPORTED, FakeDevice, FakeNvml, Power
from workbench import doctor, doctor_devices, doctor_host, doctor_kernels
from workbench.doctor_kernels import kernels_of
from workbench.provenance import manifest

REASONS = {"linear": "no CUDA", "rotate": "no CUDA", "route": "no experts"}


def lacking(*names):
    return lambda name: None if name in names else "1.0"


@pytest.mark.parametrize(
    ("name", "level", "meaning"),
    [
        ("streamlit", "warning", "`workbench dashboard` does not work"),
        ("duckdb", "warning", "through pandas instead"),
        ("torch", "error", "the engine cannot run"),
    ],
)
def test_a_missing_package_is_told_with_what_it_means(name, level, meaning):
    found = {finding.subject: finding for finding in doctor.packages(lacking(name))}
    assert found[name].level == level
    assert meaning in found[name].message
    assert all(finding.level == "ok" for subject, finding in found.items() if subject != name)


def test_this_machine_is_examined_without_an_error(tmp_path):
    found = doctor.examine(tmp_path)
    assert not [finding for finding in found if finding.level == "error"]
    assert {"accelerator", "disk", "memory", "kernels"} <= {finding.subject for finding in found}


def test_the_other_package_called_kernels_is_found():
    assert doctor.kernels_clash(lacking("kernels")).level == "ok"
    clash = doctor.kernels_clash(lambda name: "0.19.0")
    assert clash.level == "warning"
    assert "pip uninstall kernels" in clash.message


def test_the_other_kernels_in_place_of_ours_is_an_error(tmp_path, monkeypatch):
    other = importlib.machinery.ModuleSpec("kernels", None, origin=str(tmp_path / "__init__.py"))
    monkeypatch.setattr("importlib.util.find_spec", lambda name: other)
    clash = doctor.kernels_clash(lambda name: "0.19.0")
    assert clash.level == "error"
    assert "the other one is imported" in clash.message


def test_little_room_is_warned_of():
    facts = {
        "disk_free_bytes": 10,
        "memory_available_bytes": None,
        "reasons": {"devices": "no driver"},
    }
    found = {finding.subject: finding for finding in doctor.host(facts)}
    assert found["disk"].level == found["memory"].level == "warning"
    assert "(no driver)" in found["accelerator"].message


def test_a_busy_host_without_a_device_is_warned_of():
    busy = {"devices": None, "cpu_logical": 2, "load_average": [6.0, 5.0, 4.0]}
    found = {finding.subject: finding for finding in doctor.quiet(busy)}
    assert found["devices"].message.startswith("CPU only")
    assert found["load"].level == "warning"
    assert "num_threads" in found["num_threads"].message
    idle = {finding.subject: finding for finding in doctor.quiet({**busy, "load_average": [0.1]})}
    assert idle["load"].level == "ok"


def findings_of(device, monkeypatch, more=()):
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml([device, *more]))
    facts = manifest(environ={})
    return [f.message for f in doctor_devices.devices(facts) if f.level == "warning"]


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"mig": True}, "MIG is on"),
        ({"persistence": False}, "persistence is off"),
        ({"ecc": False}, "ECC is off"),
        ({"power_limit_w": 500.0}, "power limit is 500 W, not its default of 700 W"),
        ({"throttle_bits": 0x48}, "hw_slowdown, hw_thermal_slowdown"),
        ({"pids": [5, 6]}, "2 processes run on it"),
        ({}, "in use by processes that cannot be seen"),
        ({"refuses": {"nvmlDeviceGetTotalEnergyConsumption": NOT_SUPPORTED}}, "no energy counter"),
        ({}, "does not tell whether clocks are locked"),
    ],
)
def test_what_a_device_is_set_to_is_told_with_what_it_means(fields, says, monkeypatch):
    assert any(says in message for message in findings_of(FakeDevice(**fields), monkeypatch))


def test_a_device_as_it_should_be_is_warned_of_only_for_what_nvml_cannot_tell(monkeypatch):
    assert len(findings_of(FakeDevice(pids=[]), monkeypatch)) == 2
    assert list(doctor_devices.devices({"devices": None})) == []


def test_devices_that_differ_from_each_other_are_warned_of(monkeypatch):
    other = FakeDevice(uuid="GPU-1", name="NVIDIA L4", power_limit_w=72.0)
    found = " ".join(findings_of(FakeDevice(), monkeypatch, [other]))
    assert "of several kinds (NVIDIA H200, NVIDIA L4)" in found
    assert "with several power limits" in found


@pytest.mark.parametrize(
    ("facts", "subject", "says"),
    [
        ({"cpu_governor": "powersave"}, "cpu", "powersave"),
        ({"numa_nodes": 2, "numa_balancing": "1"}, "numa", "numa_balancing"),
        ({"cpu_quota_cores": 1.5, "cpu_logical": 8}, "quota", "1.5 of 8 cores"),
        ({"clock_source": "hpet"}, "clock", "hpet"),
    ],
)
def test_what_moves_a_processor_is_warned_of(facts, subject, says):
    (found,) = doctor_host.processor(facts)
    assert (found.level, found.subject) == ("warning", subject)
    assert says in found.message
    assert not list(doctor_host.processor({"cpu_governor": "performance", "numa_nodes": 1}))


def test_a_taken_port_and_few_files_are_warned_of(tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        (found,) = doctor_host.ports(taken.getsockname()[1])
    assert found.level == "warning"
    few = {"open_files_limit": 256, "processor_energy_readable": False}
    told = {found.subject: found for found in doctor_host.permissions(few, tmp_path / "new" / "x")}
    assert told["files"].level == "warning"
    assert told["energy"].level == "ok"


def test_a_store_that_cannot_be_written_is_an_error(tmp_path, monkeypatch):
    monkeypatch.setattr("os.access", lambda path, mode: False)
    (found,) = doctor_host.permissions({}, tmp_path)
    assert (found.level, found.subject) == ("error", "store")


def test_a_host_without_devices_to_check_says_why(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", None)
    monkeypatch.setenv("PATH", "")
    (found,) = doctor.examine_devices(1.0)
    assert found.level == "error"
    assert "nvidia-ml-py is not installed" in found.message


def test_the_meters_are_held_together_under_load(monkeypatch):
    clock = SystemClock()
    origin_ns = clock.now_ns()
    device = FakeDevice(power=Power.of((0.0, 500.0)), counter_every_s=0.02)
    fake = FakeNvml([device], lambda: (clock.now_ns() - origin_ns) / 1e9)
    monkeypatch.setitem(sys.modules, "pynvml", fake)
    found = check(["GPU-0"], lambda: clock.sleep(0.01), seconds=1.0, clock=clock, load="sleeping")
    words = [finding.message for finding in doctor_devices.meters(found)]
    assert any("500.0 W" in message for message in words)
    assert found.metrics["energy_agreement"].value == pytest.approx(1.0, abs=0.1)
    assert found.counter_step_s == pytest.approx(0.02, abs=0.015)
    assert found.load_slowed is not None
    assert [p for p in found.problems if "foreign_processes" in p]
    assert fake.sessions == 0


def test_the_kernels_that_would_serve_a_checkpoint_are_told_with_the_reason():
    found = kernels_of("nano")
    assert {finding.subject for finding in found} == {"kernel plan"}
    told = " ".join(finding.message for finding in found)
    assert "reference, the definition in torch (" in told
    assert "asked for" not in told


def test_where_all_kernels_are_the_definition_one_line_says_so():
    (finding,) = doctor_kernels.findings(
        [Decision(op=op, implementation="reference", reason=why) for op, why in REASONS.items()],
        "a model",
    )
    assert (
        finding.message == "a model: reference, the definition in torch (no CUDA): all 3 operations"
    )


def test_kernels_of_several_kinds_are_told_by_operation():
    fast = Decision(op="expand", implementation="triton")
    slow = [Decision(op=op, implementation="reference", reason=why) for op, why in REASONS.items()]
    told = [finding.message for finding in doctor_kernels.findings([fast, *slow], "a model")]
    assert told == [
        "a model: triton: expand",
        "a model: reference, the definition in torch (no CUDA): linear, rotate",
        "a model: reference, the definition in torch (no experts): route",
    ]


def test_kernels_are_told_with_what_was_seen_of_them():
    every = [
        Decision(op="expand", implementation="triton", evidence="checked on sm_90"),
        Decision(op="route", implementation="triton", evidence="used by whole models on sm_90"),
        Decision(op="verify", implementation="reference", reason="triton: no device has run it"),
    ]
    told = [finding.message for finding in doctor_kernels.findings(every, "a model")]
    assert told == [
        "a model: triton, checked on sm_90: expand",
        "a model: triton, used by whole models on sm_90: route",
        "a model: reference, the definition in torch (triton: no device has run it): verify",
    ]


@pytest.mark.parametrize(("is_changed", "words"), [(True, ", changed since"), (False, "")])
def test_a_kernel_that_changed_after_it_was_checked_is_told_as_such(monkeypatch, is_changed, words):
    monkeypatch.setattr("kernels.checked.changed_since", lambda one: is_changed)
    found = Decision(op="expand", implementation="triton", evidence="checked on sm_90")
    assert doctor_kernels.dated(found).evidence == f"checked on sm_90{words}"
    new = Decision(op="expand", implementation="reference")
    assert doctor_kernels.dated(new) is new


def test_a_checkpoint_of_another_architecture_has_a_plan(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(LLAMA))
    assert {finding.level for finding in kernels_of(str(tmp_path))} == {"ok"}


def test_a_checkpoint_that_cannot_be_read_is_an_error_that_says_so_once(tmp_path):
    (finding,) = kernels_of(str(tmp_path))
    assert finding.level == "error"
    assert finding.message.startswith(f"none for {tmp_path}: there is no config.json. Give ")


def test_the_command_fails_for_a_model_that_is_not_there(tmp_path):
    done = workbench("doctor", "--store", tmp_path, "--model", "nowhere", "--json")
    assert done.exit_code == 1
    (told,) = [one for one in last_json(done) if one["subject"] == "kernel plan"]
    assert told["level"] == "error"
    assert told["message"].startswith("none for nowhere: there is no such checkpoint directory.")
