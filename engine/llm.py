"""The offline face: prompts of token ids in, one completion for each out."""

from __future__ import annotations

import operator
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import count
from typing import TYPE_CHECKING

from engine.accelerator.cpu import default_threads, set_threads
from engine.checkpoint_directory import resolve_model_dir
from engine.config import configure
from engine.core import Engine
from engine.errors import RequestError
from engine.models.registry import CheckpointSource
from engine.replicas import ReplicaGroup
from engine.request import FinishReason, Request, RequestId, SamplingParams
from engine.tokenizer import Tokenizer

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path
    from types import TracebackType

    from engine.config import ConfigValue, EngineConfig
    from engine.core import Serving
    from engine.models.registry import ModelSource
    from engine.request import RequestOutput, TokenLogprob
    from engine.stats import EngineStats


@dataclass(frozen=True, kw_only=True)
class Completion:
    """What became of one prompt. Times are `time.perf_counter_ns()`.

    `token_times_ns` has one entry a token; tokens that one step delivered share theirs. Verify
    steps emitted `accepted_tokens + bonus_tokens`.
    """

    token_ids: tuple[int, ...]
    finish_reason: FinishReason
    error: str | None
    token_times_ns: tuple[int, ...]
    arrived_ns: int | None
    first_scheduled_ns: int | None
    finished_ns: int
    prompt_tokens: int
    cached_tokens: int
    proposed_tokens: int
    accepted_tokens: int
    bonus_tokens: int
    verify_steps: int
    preemptions: int
    replica: int
    logprobs: tuple[TokenLogprob, ...]
    prompt_logprobs: tuple[TokenLogprob | None, ...] | None


class LLM:
    """One model, served in this process or by replica processes.

    `config` are fields of EngineConfig (`engine.config.describe_fields`); DEEPINFER_* variables
    fill in what is not given. Start-up raises ConfigError, CheckpointError or CapacityError.
    One thread uses it. Close it, or use it as a context manager.
    """

    def __init__(
        self,
        model: str | Path | None = None,
        *,
        source: ModelSource | None = None,
        **config: ConfigValue,
    ) -> None:
        named = {"model": str(model)} if model is not None else {}
        self.config = configure({**named, **config})
        self._serving = open_serving(self.config, source)
        self._ids = count()

    def generate(
        self,
        prompts: Sequence[Sequence[int]],
        sampling: SamplingParams | Sequence[SamplingParams] | None = None,
    ) -> list[Completion]:
        """Continue each prompt; one completion a prompt, in order.

        A prompt may hold any kind of whole numbers, numpy's too, but no bools. RequestError
        names the prompt and field before anything runs. Requests that the engine failed have
        finish reason ERROR. If this raises or is interrupted, every request of the call is
        aborted and the engine can be used again.
        """
        requests = self._requests(prompts, sampling)
        for request in requests:
            self._serving.check(request)
        gathered = {r.request_id: _Gathered(len(r.prompt_token_ids)) for r in requests}
        try:
            for request in requests:
                self._serving.add_request(request)
            while not all(g.is_finished for g in gathered.values()):
                for output in self._serving.step():
                    gathered[output.request_id].add(output, self._serving)
        finally:
            self._abandon([key for key, g in gathered.items() if not g.is_finished])
        return [g.completion() for g in gathered.values()]

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """The checkpoint's tokenizer.json, or its bytes where it has none; read once."""
        return Tokenizer.load(resolve_model_dir(self.config.model))

    def stats(self) -> EngineStats:
        """Counters since the start, of all replicas together."""
        return self._serving.stats()

    def close(self) -> None:
        """Stop replica processes. Harmless when closed before."""
        self._serving.close()

    def __enter__(self) -> LLM:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _requests(
        self,
        prompts: Sequence[Sequence[int]],
        sampling: SamplingParams | Sequence[SamplingParams] | None,
    ) -> list[Request]:
        asked = [_token_ids(prompt, f"prompt {i}") for i, prompt in enumerate(_listed(prompts))]
        params = SamplingParams() if sampling is None else sampling
        rules = [params] * len(asked) if isinstance(params, SamplingParams) else _rules(params)
        if len(rules) != len(asked):
            raise RequestError(
                f"there are {len(asked)} prompts and {len(rules)} sampling parameters.",
                where="sampling",
                remedy="Give one for all, or one for each prompt.",
            )
        return [
            Request(
                request_id=RequestId(f"prompt-{next(self._ids)}"),
                prompt_token_ids=prompt,
                sampling=rule,
            )
            for prompt, rule in zip(asked, rules, strict=True)
        ]

    def _abandon(self, request_ids: list[RequestId]) -> None:
        """Abort requests, and see the steps in flight end."""
        for request_id in request_ids:
            self._serving.abort(request_id)
        while self._serving.has_unfinished():
            self._serving.step()


def _listed(prompts: object) -> list[object]:
    if isinstance(prompts, str) or not isinstance(prompts, Iterable):
        raise RequestError(
            f"{prompts!r} is not a list of prompts.",
            where="prompts",
            remedy="Give a list of prompts, each a list of token ids.",
        )
    return list(prompts)


def _token_ids(prompt: object, where: str) -> tuple[int, ...]:
    try:
        return tuple(_token_id(value) for value in prompt)  # type: ignore[attr-defined]
    except TypeError as error:
        raise RequestError(
            f"{prompt!r:.80} is not a list of token ids.",
            where=where,
            remedy="Give whole numbers; the checkpoint's tokenizer turns text into them.",
        ) from error


def _token_id(value: object) -> int:
    if isinstance(value, bool):
        raise TypeError("a bool is no token id")
    return operator.index(value)  # type: ignore[arg-type]


def _rules(sampling: object) -> list[SamplingParams]:
    rules = list(sampling) if isinstance(sampling, Iterable) else [sampling]
    for rule in rules:
        if not isinstance(rule, SamplingParams):
            raise RequestError(
                f"{rule!r} is not SamplingParams.",
                where="sampling",
                remedy="Give SamplingParams for all, or one for each prompt.",
            )
    return rules


def open_serving(config: EngineConfig, source: ModelSource | None = None) -> Serving:
    """Start what a configuration asks for: an engine here, or a group of replica processes.

    On a CPU an engine sets the number of torch's threads in this process (`num_threads`).
    """
    source = source or CheckpointSource()
    if config.data_parallel_size > 1:
        return open_apart(config, source)
    config = _with_threads(config, source)
    if config.num_threads is not None:
        set_threads(config.num_threads)
    return Engine(config, source=source)


def open_apart(config: EngineConfig, source: ModelSource | None = None) -> ReplicaGroup:
    """Start what a configuration asks for outside this process, a single engine too.

    What runs here, a client for example, then takes no time from the engine's steps.
    """
    source = source or CheckpointSource()
    return ReplicaGroup(_with_threads(config, source), source=source)


def _with_threads(config: EngineConfig, source: ModelSource) -> EngineConfig:
    if config.num_threads is not None:
        return config
    threads = default_threads(source.facts(config).hidden_size, config.data_parallel_size)
    return replace(config, num_threads=threads)


@dataclass
class _Gathered:
    """The outputs of one request, so far."""

    prompt_tokens: int
    outputs: list[RequestOutput] = field(default_factory=list)
    replica: int = 0

    def add(self, output: RequestOutput, serving: Serving) -> None:
        self.outputs.append(output)
        if output.finished:
            self.replica = serving.replica_of(output.request_id)

    @property
    def is_finished(self) -> bool:
        return bool(self.outputs) and self.outputs[-1].finished

    def completion(self) -> Completion:
        outputs, last = self.outputs, self.outputs[-1]
        assert last.finish_reason is not None, "the last output says why it is the last"
        return Completion(
            token_ids=tuple(t for o in outputs for t in o.token_ids),
            finish_reason=last.finish_reason,
            error=last.error,
            token_times_ns=tuple(o.time_ns for o in outputs for _ in o.token_ids),
            arrived_ns=last.arrived_ns,
            first_scheduled_ns=last.first_scheduled_ns,
            finished_ns=last.time_ns,
            prompt_tokens=self.prompt_tokens,
            cached_tokens=last.cached_tokens,
            proposed_tokens=sum(o.proposed for o in outputs),
            accepted_tokens=sum(o.accepted for o in outputs),
            bonus_tokens=sum(o.bonus for o in outputs),
            verify_steps=sum(o.verify_steps for o in outputs),
            preemptions=last.preemptions,
            replica=self.replica,
            logprobs=tuple(p for o in outputs for p in o.logprobs),
            prompt_logprobs=outputs[0].prompt_logprobs,
        )
