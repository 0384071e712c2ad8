"""Our own engine, without a server: in processes of its own on an accelerator, as peers run.

There the host plans and settles while the device works, and would do neither while the load
client has the interpreter. On a CPU one engine is driven step by step in this process, where
the two take turns as it is; replicas are processes of their own there too.

The engine is imported when a method first needs it, so that reading a plan stays cheap.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from engine.choices import AcceleratorKind
from engine.config import EngineConfig
from engine.errors import CapacityError, ConfigError, EngineError, RequestError
from engine.request import Request, RequestId
from engine.resolution import resolve
from experiments.errors import TargetCapacityError, TargetError
from experiments.records import AxisValue
from experiments.targets.base import Received, TargetFacts, in_force
from experiments.targets.checkpoint import Checkpoint, model_directory, read_checkpoint

if TYPE_CHECKING:
    from engine.core import Serving
    from engine.replicas import ReplicaGroup
    from engine.tokenizer import Tokenizer

LOG_LINES = 200
_ENGINE_LOGGER = "engine"

Start = Callable[[EngineConfig], "Serving"]
"""Starts an engine; raises as `engine.llm.open_serving`."""


def started(config: EngineConfig) -> Serving:
    """An engine where its kind of device wants it."""
    from engine.accelerator.find import find_accelerator
    from engine.llm import open_apart, open_serving

    on_cpu = find_accelerator(config.accelerator).kind is AcceleratorKind.CPU
    return open_serving(config) if on_cpu else open_apart(config)


class InProcessTarget:
    """A `Target` on what `start` starts; None: `started`.

    Of an engine in this process `poll` is one step: its outputs are received when it ends, and
    a request that falls due during it is sent after it. From engines elsewhere `poll` has what
    came of their steps, a message each, and it sends what was submitted since the last one.
    """

    def __init__(self, start: Start | None = None) -> None:
        self._start = start or started
        self._serving: Serving | None = None
        self._log = _LogTail()
        self._checkpoints: dict[str, Checkpoint] = {}
        self._tokenizers: dict[str, Tokenizer] = {}

    def settings(self, engine: Mapping[str, AxisValue]) -> dict[str, AxisValue]:
        """Explicit values, then defaults."""
        return dict(EngineConfig.from_mapping(engine).as_mapping())

    def describe(self, engine: Mapping[str, AxisValue]) -> TargetFacts:
        """From config.json, the tokenizer and the headers of the weights; loads no tensor.

        A checkpoint is read and held against its contract once. A device that is asked for by
        its kind need not be there: `missing_device` says so, and `open` refuses.
        """
        config = EngineConfig.from_mapping(engine)
        checkpoint = self._checkpoint(config.model)
        facts = checkpoint.facts
        kind, device_uuids, missing = _found(config)
        resolved = resolve(config, facts, kind)
        return TargetFacts(
            model=config.model,
            fingerprint=checkpoint.fingerprint,
            configuration=in_force(resolved),
            vocab_size=facts.vocab_size,
            eos_token_id=facts.eos_token_id,
            reserved_token_ids=checkpoint.reserved_token_ids,
            window=facts.window,
            draft_block=facts.draft_block,
            can_truncate=facts.can_truncate,
            packs_rows=facts.packs_rows,
            max_positions=resolved.max_model_len,
            devices=_devices(config, kind),
            accelerator=str(kind),
            device_uuids=device_uuids,
            missing_device=missing,
            random_weights=checkpoint.random_weights,
            tokenizer_hash=checkpoint.tokenizer_hash,
        )

    def encode(self, engine: Mapping[str, AxisValue], text: str) -> list[int]:
        """By the checkpoint's tokenizer; bytes where it has none."""
        return self._tokenizer(engine).encode(text)

    def decode(self, engine: Mapping[str, AxisValue], ids: Sequence[int]) -> str:
        """By the checkpoint's tokenizer; bytes where it has none."""
        return self._tokenizer(engine).decode(ids)

    def open(self, engine: Mapping[str, AxisValue]) -> TargetFacts:
        """Load the weights and start the replicas. TargetError if the engine does not start."""
        self._log.attach()
        try:
            facts = self.describe(engine)  # anew: the checkpoint may have gone since the planning
            self._serving = self._start(EngineConfig.from_mapping(engine))
        except (EngineError, RuntimeError, MemoryError, OSError) as error:
            raise self._failed("did not start", error) from error
        return facts

    def submit(self, request: Request) -> None:
        """Queue a request. RequestError refuses this one alone."""
        try:
            self._open.add_request(request)
        except RequestError:
            raise
        except EngineError as error:
            raise self._failed("took no request", error) from error

    def poll(self, timeout_s: float) -> Sequence[Received]:
        """One step, or what replicas sent; sleeps where there is nothing to do."""
        serving = self._open
        if not serving.has_unfinished():
            time.sleep(timeout_s)
            return ()
        try:
            group = self._group
            outputs = serving.step() if group is None else group.step(timeout_s)
        except Exception as error:  # whatever a step raises is what this trial found
            raise self._failed("failed in a step", error) from error
        self._check_replicas()
        now_ns = time.perf_counter_ns()
        return [Received(output=output, received_ns=now_ns) for output in outputs]

    def abort(self, request_id: RequestId) -> None:
        """The request's last output comes with a later step."""
        self._open.abort(request_id)

    def reset(self) -> None:
        """Nothing outlives a request: this engine shares no prefixes yet."""

    def replica_of(self, request_id: RequestId) -> int | None:
        """Its index, in a group; None for a single engine."""
        group = self._group
        return group.replica_of(request_id) if group is not None and group.size > 1 else None

    def stats(self) -> dict[str, float]:
        """The fields of EngineStats."""
        return {name: float(value) for name, value in asdict(self._open.stats()).items()}

    def log_tail(self) -> str:
        """What the engine logged, wherever it runs."""
        return self._log.text()

    def close(self) -> None:
        """Stop replicas and let the weights go."""
        serving, self._serving = self._serving, None
        if serving is not None:
            serving.close()
        self._log.detach()

    def _tokenizer(self, engine: Mapping[str, AxisValue]) -> Tokenizer:
        """Read once for each checkpoint."""
        from engine.tokenizer import Tokenizer

        model = EngineConfig.from_mapping(engine).model
        if model not in self._tokenizers:
            self._tokenizers[model] = Tokenizer.load(model_directory(model))
        return self._tokenizers[model]

    def _checkpoint(self, model: str) -> Checkpoint:
        if model not in self._checkpoints:
            self._checkpoints[model] = read_checkpoint(model)
        return self._checkpoints[model]

    @property
    def _open(self) -> Serving:
        if self._serving is None:
            raise TargetError("the engine is not open")
        return self._serving

    @property
    def _group(self) -> ReplicaGroup | None:
        """What is open, where it runs in processes of its own."""
        from engine.replicas import ReplicaGroup

        return self._serving if isinstance(self._serving, ReplicaGroup) else None

    def _check_replicas(self) -> None:
        """A group that lost a replica is another configuration than the one under test."""
        failures = self._group.failures() if self._group is not None else ()
        if failures:
            raise self._failed("lost a replica", failures[0]) from failures[0]

    def _failed(self, what: str, error: Exception) -> TargetError:
        self._log.add(f"event=failure error={type(error).__name__} message={error}")
        out_of_room = isinstance(error, CapacityError | MemoryError) or _is_out_of_memory(error)
        kind = TargetCapacityError if out_of_room else TargetError
        return kind(f"the engine {what}: {error or type(error).__name__}")


class _LogTail(logging.Handler):
    """The newest lines of the engine's loggers."""

    def __init__(self) -> None:
        super().__init__(level=logging.INFO)
        self._lines: deque[str] = deque(maxlen=LOG_LINES)
        self.setFormatter(logging.Formatter("%(levelname)s %(name)s %(message)s"))

    def attach(self) -> None:
        """Start listening."""
        logging.getLogger(_ENGINE_LOGGER).addHandler(self)

    def detach(self) -> None:
        """Stop listening; the lines stay."""
        logging.getLogger(_ENGINE_LOGGER).removeHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        """Keep one event; a traceback stays with it."""
        self._lines.append(self.format(record))

    def add(self, line: str) -> None:
        """Keep a line of our own."""
        self._lines.append(line)

    def text(self) -> str:
        """All kept lines."""
        return "\n".join(self._lines)


def _devices(config: EngineConfig, kind: AcceleratorKind) -> int:
    """A replica takes one accelerator; replicas on a CPU share the one host."""
    return 1 if kind is AcceleratorKind.CPU else config.data_parallel_size


def _found(config: EngineConfig) -> tuple[AcceleratorKind, tuple[str, ...] | None, str | None]:
    """The kind of device, the identities of those that replicas take, and what is missing.

    Replica i takes device i. No identities: of a kind that has none, or that is not there.
    """
    from engine.accelerator.find import find_accelerator

    kind = config.accelerator
    try:
        kind = find_accelerator(kind).kind
        devices = [find_accelerator(kind, index=i) for i in range(_devices(config, kind))]
    except ConfigError as error:
        return kind, None, error.what
    uuids = tuple(uuid for device in devices if (uuid := device.uuid()) is not None)
    return kind, uuids or None, None


def _is_out_of_memory(error: Exception) -> bool:
    """Torch raises its own class, a RuntimeError, for a full device."""
    return type(error).__name__ == "OutOfMemoryError" or "allocate memory" in str(error)
