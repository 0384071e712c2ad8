"""The doctor: what is missing, and what that means."""

import importlib.machinery

import pytest

from workbench import doctor


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


def test_little_room_and_moving_clocks_are_warned_of():
    facts = {
        "disk_free_bytes": 10,
        "memory_available_bytes": None,
        "cpu_governor": "powersave",
        "reasons": {"devices": "no driver"},
    }
    found = {finding.subject: finding for finding in doctor.host(facts)}
    assert found["disk"].level == found["memory"].level == found["cpu"].level == "warning"
    assert "(no driver)" in found["accelerator"].message


def test_a_busy_host_without_a_device_is_warned_of():
    busy = {"devices": None, "cpu_logical": 2, "load_average": [6.0, 5.0, 4.0]}
    found = {finding.subject: finding for finding in doctor.quiet(busy)}
    assert found["devices"].message.startswith("CPU only")
    assert found["load"].level == "warning"
    assert "num_threads" in found["num_threads"].message
    idle = {finding.subject: finding for finding in doctor.quiet({**busy, "load_average": [0.1]})}
    assert idle["load"].level == "ok"
