"""Whom an experiment asks: the one face that every engine under test shows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple, Protocol, runtime_checkable

from engine.choices import GraphMode
from engine.request import Request, RequestId, RequestOutput
from engine.resolution import ResolvedConfig
from experiments.records import AxisValue
from experiments.token_counts import Piece, TextTokenizer


@dataclass(frozen=True, kw_only=True)
class TargetFacts:
    """What is known of an engine configuration before it starts.

    It has every field of `engine.config.ModelLimits`. None: a server that we did not start does
    not say, and the plan does not either.
    """

    model: str  # the checkpoint as the plan named it
    fingerprint: str | None  # content identity of the checkpoint; part of every trial id
    configuration: Mapping[str, AxisValue]  # as `in_force` gives it; what a point records
    vocab_size: int | None
    eos_token_id: int | None
    reserved_token_ids: tuple[int, ...]  # never drawn as synthetic content
    window: int | None  # sliding rows
    draft_block: int | None  # longest draft
    can_truncate: bool | None  # the model has a decoder half
    packs_rows: bool = True  # its release caches rows in fewer bits than it computes with
    max_positions: int | None  # context of this configuration: prompt + output tokens
    devices: int | None  # allocated to this configuration; None = cannot be told
    accelerator: str | None
    device_uuids: tuple[str, ...] | None = None  # of the allocated devices; None: they have none
    random_weights: bool
    tokenizer_hash: str | None = None
    simulated: bool = False
    takes_grammars: bool = False  # outputs can be held to a grammar
    renders_chat: bool = False  # a prompt is text that the server lays into its own chat form
    missing_device: str | None = None  # what this host lacks to open it
    remote: bool = False  # its client is no part of its process: lag and load are our own


@dataclass(frozen=True, kw_only=True)
class Exchange:
    """What an HTTP request was in the end. Instants as in `Received`; None: it never came to it."""

    sent_ns: int | None  # connected, and the body of the request about to be written
    headers_ns: int | None
    closed_ns: int
    error_kind: str | None = None
    resent: bool = False  # written twice: its first connection was closed before any answer
    server_prompt_tokens: int | None = None
    server_output_tokens: int | None = None
    tokenizer: TextTokenizer | None = None  # the client's


class Received(NamedTuple):
    """One delivery as the client had it: what it holds, and when its bytes were there."""

    output: RequestOutput  # its token ids are the whole truth where there is no piece
    received_ns: int  # on the clock of the load generator, before anything was parsed
    piece: Piece | None = None  # of a text stream
    exchange: Exchange | None = None  # with the last delivery of an HTTP request


class Target(Protocol):
    """An engine under test. One thread uses it; errors are `TargetError`.

    `describe` and `encode` need no running engine. The rest needs `open` first.
    """

    def settings(self, engine: Mapping[str, AxisValue]) -> dict[str, AxisValue]:
        """The whole engine configuration that `engine` stands for, defaults filled in.

        The environment is not read: `experiments.environment` lays it into the plan.
        ConfigError or PlanError names a field that is unknown or out of range.
        """
        ...

    def describe(self, engine: Mapping[str, AxisValue]) -> TargetFacts:
        """Facts of a configuration, without starting it.

        ConfigError where the model refuses it, CheckpointError where there is no model.
        """
        ...

    def encode(self, engine: Mapping[str, AxisValue], text: str) -> list[int]:
        """Token ids of a text under the tokenizer of this configuration's checkpoint."""
        ...

    def open(self, engine: Mapping[str, AxisValue]) -> TargetFacts:
        """Start the engine; returns when it can serve."""
        ...

    def submit(self, request: Request) -> None:
        """Hand over one request; does not wait for it."""
        ...

    def poll(self, timeout_s: float) -> Sequence[Received]:
        """What came since the last call; waits at most about `timeout_s` for the first of it."""
        ...

    def abort(self, request_id: RequestId) -> None:
        """Give up one request; its last output, if any comes, says ABORT."""
        ...

    def reset(self) -> None:
        """Forget what earlier requests left in caches. Nothing may be in flight."""
        ...

    def replica_of(self, request_id: RequestId) -> int | None:
        """Which replica serves the request; None where there is only one."""
        ...

    def stats(self) -> dict[str, float]:
        """Counters of the engine, since it started; names are the engine's."""
        ...

    def log_tail(self) -> str:
        """The newest lines that the engine logged; readable after a failure too."""
        ...

    def close(self) -> None:
        """Stop the engine and free what it held. Harmless when closed or never opened."""
        ...


@runtime_checkable
class Decodes(Protocol):
    """A target whose outputs are ids of a tokenizer that it has."""

    def decode(self, engine: Mapping[str, AxisValue], ids: Sequence[int]) -> str:
        """The text of output ids, without special tokens."""
        ...


def in_force(resolved: ResolvedConfig) -> dict[str, AxisValue]:
    """A configuration field by field as it came out for its model and device.

    Two ways to write one configuration (`dtype: auto` and `float32` on a CPU) come out equal.
    `open` takes it back and resolves it to itself.
    """
    asked = resolved.config.as_mapping()
    found = {name: getattr(resolved, name, value) for name, value in asked.items()}
    found["graphs"] = GraphMode.AUTO if resolved.graphs else GraphMode.OFF  # on or off came out
    return {name: str(v) if isinstance(v, StrEnum) else v for name, v in found.items()}


TargetFactory = Callable[[], Target]
"""Makes a target that is not open yet."""
