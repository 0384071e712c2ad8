"""The environment manifest: everything about host, code and settings that may move a number.

A missing field is null and `reasons` says why. Secrets are masked before anything is kept.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import platform
import re
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import psutil

from workbench.files import free_bytes
from workbench.host_facts import Facts, device_facts, host_facts
from workbench.torch_facts import torch_build, torch_threads

CODE = Path(__file__).resolve().parents[1]
MEASURING_CODE = ("kernels", "engine", "experiments")  # what can change a number
NOT_MEASURING = ("experiments/training/", "engine/checkpoints/")
"""What makes checkpoints, and those that ship: a checkpoint has a fingerprint of its own."""
PACKAGES = (
    "inference-workbench", "torch", "triton", "numpy", "safetensors", "tokenizers", "pydantic",
    "pyyaml", "pandas", "pyarrow", "duckdb", "psutil", "nvidia-ml-py", "plotly", "streamlit",
    "typer", "rich", "jinja2", "jupyterlab", "transformers", "vllm", "sglang", "flash-attn",
    "flashinfer-python", "nvidia-nccl-cu12", "nvidia-cublas-cu12", "nvidia-cudnn-cu12",
)  # fmt: skip
RECORDED = (
    "DEEPINFER_", "VLLM_", "SGLANG_", "CUDA_", "NVIDIA_", "NCCL_", "ASCEND_", "OMP_", "MKL_",
    "OPENBLAS_", "KMP_", "GOMP_", "TORCH_", "PYTORCH_", "TRITON_", "PYTHONHASHSEED", "LD_PRELOAD",
    "HCCL_", "ACL_", "TASK_QUEUE_ENABLE", "CPU_AFFINITY_CONF", "STREAMS_PER_DEVICE",
    "INF_NAN_MODE_ENABLE", "FLASHINFER_", "CUBLAS_", "CUDNN_", "MALLOC_", "TOKENIZERS_PARALLELISM",
    "HF_HUB_OFFLINE", "EVAL_JUDGE_", "MIG_", "GLOO_", "UCX_", "NVSHMEM_", "MC_", "TOKENSPEED_",
)  # fmt: skip
SECRET_NAME = re.compile(r"(^|_)(TOKEN|KEY|SECRET|PASS|PASSWORD|PASSWD|CREDENTIALS?|AUTH|PAT)(_|$)")
SECRET_VALUE = re.compile(r"\b(hf_|sk-|ghp_|github_pat_|AKIA|xox[bp]-|glpat-)[\w-]{3,}")
BEARER = re.compile(r"(?i)\b(bearer|basic)\s+\S+")
OPTION = re.compile(r"(--[\w-]+)([= ])(\S+)")
URL_LOGIN = re.compile(r"(\w+://)[^/@\s]+@")
MASK = "***"
GIT_TIMEOUT_S = 5.0


def manifest(
    *,
    settings: Mapping[str, object] | None = None,
    tokenizers: Sequence[str] = (),
    environ: Mapping[str, str] | None = None,
    folder: Path = Path(),
) -> dict[str, object]:
    """The environment of this process, now; takes well under 2 s.

    `settings` are the engine's settings in force, a list for one that varies; `tokenizers` the
    hashes of the checkpoints' tokenizers; `environ` defaults to the variables this process was
    started with; `folder` is where results go (its free space is recorded).
    """
    facts = host_facts()
    facts.add("code_version", code_version)
    _add_git(facts)
    facts.add("python", platform.python_version)
    facts.add("python_implementation", platform.python_implementation)
    facts.add("packages", package_versions)
    facts.add("disk_free_bytes", lambda: free_bytes(folder))
    started_with = psutil.Process().environ() if environ is None else environ
    facts.add("environment_variables", lambda: recorded_variables(started_with))
    facts.add("container_image", lambda: _image(started_with))
    facts.add("engine_settings", lambda: None if settings is None else masked(settings))
    facts.add("tokenizer_hashes", lambda: list(tokenizers) or None)
    facts.add("torch_threads", torch_threads)
    facts.add("torch_build", torch_build)
    devices = device_facts()
    return {
        **facts.values,
        **devices.values,
        "reasons": {**facts.reasons, **devices.reasons},
    }


def accelerator_name(environment: Mapping[str, object]) -> str:
    """The manifest's devices in a few words: `2 x NVIDIA H200`, or `cpu: <model>`."""
    devices = environment.get("devices")
    if isinstance(devices, list) and devices:
        names = sorted({str(device.get("name")) for device in devices})
        return f"{len(devices)} x {', '.join(names)}"
    return processor_name(environment)


def processor_name(environment: Mapping[str, object]) -> str:
    """The manifest's processor: `cpu: <model>`."""
    return f"cpu: {environment.get('cpu_model') or environment.get('machine')}"


def package_versions() -> dict[str, str]:
    """Versions of the packages that may matter, of those installed."""
    found = {}
    for name in PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def code_version(root: Path = CODE) -> str:
    """The version and a hash of the code that measures: equal code, equal version, anywhere.

    Hashes every .py and .json of kernels, engine and experiments, committed or not, but
    NOT_MEASURING.
    """
    digest = hashlib.sha256()
    for package in MEASURING_CODE:
        for path in sorted((root / package).rglob("*")):
            name = path.relative_to(root).as_posix()
            if name.startswith(NOT_MEASURING) or "__pycache__" in path.parts:
                continue
            if path.suffix in (".py", ".json"):
                digest.update(name.encode() + b"\0")
                digest.update(hashlib.sha256(path.read_bytes()).digest())
    return f"{package_versions().get('inference-workbench', '0')}+{digest.hexdigest()[:12]}"


def recorded_variables(environ: Mapping[str, str]) -> dict[str, str]:
    """The variables that steer engines and libraries, secrets masked."""
    chosen = {name: environ[name] for name in sorted(environ) if name.startswith(RECORDED)}
    return {name: str(value) for name, value in masked(chosen).items()}


def masked(values: Mapping[str, object]) -> dict[str, object]:
    """`values` with secrets replaced by `***`: by name, by shape, in URLs, headers and options."""
    return {name: _masked(name, value) for name, value in values.items()}


def _masked(name: str, value: object) -> object:
    if isinstance(value, Mapping):
        return {inner: _masked(str(inner), item) for inner, item in value.items()}
    if isinstance(value, list | tuple):
        return [_masked(name, item) for item in value]
    if not isinstance(value, str):
        return value
    if value and _names_a_secret(name) and not value.lstrip("-").isdigit():
        return MASK
    text = BEARER.sub(rf"\1 {MASK}", SECRET_VALUE.sub(MASK, value))
    return URL_LOGIN.sub(rf"\1{MASK}@", OPTION.sub(_masked_option, text))


def _masked_option(found: re.Match[str]) -> str:
    """`--api-key abc` inside a longer text."""
    option, between, value = found.groups()
    secret = _names_a_secret(option.lstrip("-")) and not value.isdigit()
    return f"{option}{between}{MASK if secret else value}"


def _names_a_secret(name: str) -> bool:
    return SECRET_NAME.search(name.upper().replace("-", "_")) is not None


def _image(environ: Mapping[str, str]) -> str | None:
    names = ("CONTAINER_IMAGE", "IMAGE_NAME", "NVIDIA_PYTORCH_VERSION", "KUBERNETES_IMAGE")
    return next((f"{name}={environ[name]}" for name in names if environ.get(name)), None)


def _add_git(facts: Facts) -> None:
    """git_sha, git_dirty and git_diff_hash of the checkout this code runs from."""
    for name, read in {
        "git_sha": lambda: _git("rev-parse", "HEAD").decode().strip(),
        "git_dirty": lambda: bool(_git("status", "--porcelain", "--", ".").strip()),
        "git_diff_hash": lambda: hashlib.sha256(_git("diff", "HEAD", "--", ".")).hexdigest()[:16],
    }.items():
        facts.add(name, read)


def _git(*arguments: str) -> bytes:
    if not (CODE / ".git").exists():
        raise LookupError("the code does not run from a git checkout")
    try:
        done = subprocess.run(
            ["git", "-C", str(CODE), *arguments],
            capture_output=True,
            timeout=GIT_TIMEOUT_S,
            check=True,
        )
    except subprocess.SubprocessError as error:
        raise LookupError(f"git refused ({error})") from error
    return done.stdout
