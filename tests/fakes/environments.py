"""Environment manifests that differ in one thing."""

import copy

from tests.fakes import records

GPU = {
    **records.environment(),
    "devices": [
        {
            "index": 0, "name": "NVIDIA H200", "uuid": "GPU-1", "vbios": "96.00",
            "power_limit_w": 700.0, "sm_clock_max_mhz": 1980, "sm_clock_application_mhz": 1980,
            "memory_clock_max_mhz": 3201, "mig": False, "ecc": True,
        }
    ],
    "driver": "570.124", "cuda_driver": 12.8, "kernel": "6.8.0", "git_sha": "a" * 40,
    "git_dirty": False, "git_diff_hash": "0" * 16, "tokenizer_hashes": ["t0"],
    "torch_build": {"version": "2.13.0", "cuda": "13.0"}, "torch_threads": {"intra_op": 8},
    "environment_variables": {"OMP_NUM_THREADS": "8"}, "cpu_governor": "performance",
    "cpu_allowed": 16, "hostname_hash": "h0", "reasons": {},
}  # fmt: skip
"""A host with one NVIDIA device."""


def without(name: str, reason: str) -> dict:
    """The host, which does not tell one fact."""
    return {**copy.deepcopy(GPU), name: None, "reasons": {name: reason}}


def changed(name: str, value: object) -> dict:
    """The host with another fact; `devices.field` changes every device."""
    found = copy.deepcopy(GPU)
    part, _, field = name.partition(".")
    if part == "devices":
        found["devices"] = [{**device, field: value} for device in found["devices"]]
    elif field:
        found[part] = {**found[part], field: value}
    else:
        found[part] = value
    return found
