"""The environment manifest: many facts, a reason for each missing one, no secret."""

import json
import sys
from pathlib import Path

import pytest

from experiments.ascend_smi import parse
from tests.fakes.nvml import NOT_SUPPORTED, FakeDevice, FakeNvml
from workbench.files import to_json
from workbench.host_facts import host_facts
from workbench.provenance import (
    MASK,
    accelerator_name,
    code_version,
    manifest,
    masked,
    recorded_variables,
)


def test_a_machine_without_a_device_still_gives_25_facts_and_a_reason_for_the_rest():
    found = manifest(settings={"draft_length": 5}, environ={"OMP_NUM_THREADS": "1"})
    known = [name for name, value in found.items() if value is not None and name != "reasons"]
    missing = {name for name, value in found.items() if value is None}
    assert len(known) >= 25
    assert missing == set(found["reasons"])
    assert found["environment_variables"] == {"OMP_NUM_THREADS": "1"}
    assert json.loads(to_json(found))["engine_settings"] == {"draft_length": 5}


def test_how_torch_computes_is_recorded_where_it_was_loaded(monkeypatch):
    import torch

    found = manifest(environ={}, tokenizers=["abc"])
    assert found["torch_threads"]["intra_op"] == torch.get_num_threads()
    assert found["torch_build"]["version"] == torch.__version__
    assert found["torch_build"]["blas"]
    assert found["tokenizer_hashes"] == ["abc"]
    monkeypatch.delitem(sys.modules, "torch")
    without = manifest(environ={})
    assert without["torch_build"] is None
    assert "not loaded" in without["reasons"]["torch_build"]
    assert without["tokenizer_hashes"] is None


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("VLLM_API_KEY", "abc"),
        ("NVIDIA_TOKEN", "abc"),
        ("SGLANG_PASSWORD", "abc"),
        ("VLLM_EXTRA", "hf_abcdef"),
        ("NCCL_AUTH_FILE", "abc"),
    ],
)
def test_a_secret_is_masked(name, value):
    assert recorded_variables({name: value}) == {name: MASK}


def test_a_login_in_a_url_is_masked_and_the_rest_is_kept():
    assert masked({"model": "https://me:pw@host/x"}) == {"model": f"https://{MASK}@host/x"}


def test_what_only_sounds_like_a_secret_is_kept():
    names = {"DEEPINFER_YOCO_PREFILL_KEEP_TOKENS": "140", "DEEPINFER_ENGRAM_PAD_TOKEN": "0"}
    assert recorded_variables(names | {"HOME": "/root", "AWS_SECRET": "x"}) == names


def test_the_code_version_follows_the_code_that_measures(tmp_path):
    for package in ("kernels", "engine", "experiments"):
        (tmp_path / package).mkdir()
    before = code_version(tmp_path)
    (tmp_path / "README.md").write_text("words")
    assert code_version(tmp_path) == before
    for name in ("experiments/training/sizes.py", "engine/checkpoints/nano/config.json"):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text("1")
    assert code_version(tmp_path) == before
    (tmp_path / "engine/new.py").write_text("x = 1")
    assert code_version(tmp_path) != before


def test_facts_of_a_bare_system_are_missing_with_reasons_and_do_not_fail(tmp_path):
    facts = host_facts(tmp_path)
    assert facts.values["cpu_governor"] is None
    assert facts.reasons["cpu_governor"]
    assert facts.values["container"] == "none seen"


def test_limits_of_a_container_are_read(tmp_path):
    for path, text in {
        "sys/fs/cgroup/cpu.max": "150000 100000\n",
        "sys/fs/cgroup/memory.max": "1073741824\n",
        "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor": "performance\n",
        "proc/cpuinfo": "model name\t: Chip <b>\nflags\t: fpu avx2 hypervisor\n",
        "run/.containerenv": "",
    }.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    values = host_facts(tmp_path).values
    assert values["cpu_quota_cores"] == 1.5
    assert values["memory_limit_bytes"] == 1 << 30
    assert values["cpu_governor"] == "performance"
    assert values["cpu_model"] == "Chip <b>"
    assert values["cpu_features"] == ["avx2"]
    assert values["virtual_machine"] is True
    assert values["container"] == "podman"


def leaves(value, path=""):
    """Every fact of a manifest by its path, groups and devices taken apart."""
    if isinstance(value, dict):
        return {
            k: v for name, one in value.items() for k, v in leaves(one, f"{path}.{name}").items()
        }
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return {
            k: v for at, one in enumerate(value) for k, v in leaves(one, f"{path}[{at}]").items()
        }
    return {path.lstrip("."): value}


def test_an_nvidia_host_gives_more_than_forty_facts_with_their_reasons(monkeypatch):
    refusing = FakeDevice(uuid="GPU-1", refuses={"nvmlDeviceGetMigMode": NOT_SUPPORTED})
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml([FakeDevice(), refusing]))
    found = manifest(environ={})
    known = {name for name, value in leaves(found).items() if value is not None}
    of_devices = {name for name in known if name.startswith(("devices", "driver", "cuda", "nvml"))}
    assert len(known - of_devices) >= 25
    assert len(known) >= 40
    assert len([name for name in known if name.startswith("devices[0]")]) >= 28
    assert found["driver"] == "580.159.03"
    assert found["cuda_driver"] == 13.0
    assert found["device_topology"] == {"0-1": "one host bridge"}
    assert found["devices"][0]["mig"] is False
    assert found["devices"][1]["mig"] is None
    assert found["reasons"]["devices[1].mig"] == "Not Supported"
    assert accelerator_name(found) == "2 x NVIDIA H200"


def test_every_fact_of_a_device_and_of_the_host_is_in_the_readme(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml([FakeDevice()]))
    readme = (Path(__file__).parents[2] / "results" / "README.md").read_text()
    found = manifest(environ={})
    names = {*found, *found["devices"][0]}
    assert {name for name in names if f"`{name}`" not in readme} == set()


def test_ascend_chips_are_the_devices_of_a_host_without_nvidia(monkeypatch):
    text = (Path(__file__).parents[1] / "data/npu_smi/info_910b2_24.1.0.3.txt").read_text()
    monkeypatch.setitem(sys.modules, "pynvml", None)
    monkeypatch.setattr("workbench.host_facts.ascend_chips", lambda: parse(text))
    found = manifest(environ={})
    assert found["devices"][0]["uuid"] == "NPU-0000:C1:00.0/0"
    assert found["devices"][0]["memory_bytes"] == 65536 << 20
    assert accelerator_name(found) == "3 x 910B2"
    assert found["reasons"]["driver"]


def test_an_ascend_host_that_cannot_be_read_says_why(monkeypatch, tmp_path):
    tool = tmp_path / "npu-smi"
    tool.write_text("#!/bin/sh\necho 'dcmi module initialize failed. ret is -8005'\n")
    tool.chmod(0o755)
    monkeypatch.setitem(sys.modules, "pynvml", None)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    found = manifest(environ={})
    assert found["devices"] is None
    assert "may not reach the devices (-8005)" in found["reasons"]["devices"]


@pytest.mark.parametrize(
    ("value", "kept"),
    [
        ("--api-key abc --tp 8", f"--api-key {MASK} --tp 8"),
        ("--max-tokens 8 --token=abc", f"--max-tokens 8 --token={MASK}"),
        ("Authorization: Bearer abc.def", f"Authorization: Bearer {MASK}"),
        ("use hf_abcdefgh now", f"use {MASK} now"),
        ({"api-key": "abc", "x": ["sk-abcdef"]}, {"api-key": MASK, "x": [MASK]}),
        ("task-sk-", "task-sk-"),
    ],
)
def test_secrets_are_masked_wherever_they_stand(value, kept):
    assert masked({"VLLM_ARGS": value}) == {"VLLM_ARGS": kept}


def test_without_the_nvml_package_the_reason_says_so(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", None)
    found = manifest(environ={})
    assert found["devices"] is None
    assert found["reasons"]["devices"] == "nvidia-ml-py is not installed"
    assert accelerator_name(found).startswith("cpu: ")
