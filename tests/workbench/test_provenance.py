"""The environment manifest: many facts, a reason for each missing one, no secret."""

import json
import sys

import pytest

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


class FakeNvml:
    """Two devices, as NVML tells them; what is not here NVML refuses."""

    class NVMLError(Exception):
        pass

    def nvmlInit(self): ...
    def nvmlShutdown(self): ...
    def nvmlDeviceGetCount(self):
        return 2

    def nvmlSystemGetDriverVersion(self):
        return b"580.1"

    def nvmlSystemGetCudaDriverVersion(self):
        return 13000

    def nvmlDeviceGetHandleByIndex(self, index):
        return index

    def nvmlDeviceGetName(self, handle):
        return "NVIDIA H200"

    def nvmlDeviceGetEccMode(self, handle):
        return (1, 1)

    def nvmlDeviceGetMigMode(self, handle):
        raise self.NVMLError("not supported")


def test_devices_are_described_and_what_a_driver_refuses_is_null(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml())
    found = manifest(environ={})
    assert found["driver"] == "580.1"
    assert found["devices"][1]["ecc"] is True
    assert found["devices"][1]["mig"] is None
    assert accelerator_name(found) == "2 x NVIDIA H200"


def test_without_the_nvml_package_the_reason_says_so(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", None)
    found = manifest(environ={})
    assert found["devices"] is None
    assert found["reasons"]["devices"] == "nvidia-ml-py is not installed"
    assert accelerator_name(found).startswith("cpu: ")
