"""Decode steps of served requests, timed under each of several ways to serve them.

All requests are prefilled, then decode together; `engine.step_bench` is the command. The ways take
turns, one pass each a round, and the first round is not counted: it compiles and records.
"""

from __future__ import annotations

import hashlib
import random
import time
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from engine.accelerator.find import find_accelerator
from engine.config import EngineConfig
from engine.core import Engine
from engine.request import Request, SamplingParams

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from engine.accelerator.interface import Mark, Ticket, Work
    from engine.choices import AcceleratorKind
    from engine.config import ConfigValue
    from engine.models.protocol import Model, ModelFacts
    from engine.models.registry import ModelSource
    from engine.resolution import ResolvedConfig
    from engine.stats import EngineStats

VARIANTS = {
    f"overlap={overlap} graphs={graphs}": {"overlap": overlap == "on", "graphs": graphs}
    for overlap in ("on", "off")
    for graphs in ("auto", "off")
}

_STAGES = ("plan_s", "launch_s", "wait_s", "settle_s")


@dataclass(frozen=True, kw_only=True)
class Load:
    """What is served: `requests` at once, all of one length."""

    requests: int
    prompt_tokens: int
    steps: int  # counted ones of a pass, after a few that are not
    rounds: int  # counted ones
    temperature: float = 0.0
    skipped_steps: int = 4  # decode steps of a pass before the counted ones


@dataclass(frozen=True, kw_only=True)
class Found:
    """Of one variant, over all counted steps of all counted rounds. Seconds."""

    variant: str
    steps: int
    replayed_steps: int
    tokens_per_s: float
    text: str  # a hash of what was said
    repeats: bool  # every counted round said the same
    other_texts: int  # requests that said something else than under the first variant
    p50_s: dict[str, float]
    p99_s: dict[str, float]
    idle_share: float  # of the device's time between its first and its last counted step


class LoadedOnce:
    """A `ModelSource` that loads its model at the first asking."""

    def __init__(self, source: ModelSource) -> None:
        self._source = source
        self._model: Model | None = None

    def facts(self, config: EngineConfig) -> ModelFacts:
        """Those of the source."""
        return self._source.facts(config)

    def load(self, resolved: ResolvedConfig, accelerator: Watched) -> Model:
        """The one model; what is resolved may differ in scheduling only."""
        if self._model is None:
            self._model = self._source.load(resolved, accelerator)
        return self._model


class Watched:
    """An accelerator with a mark before and after every work."""

    def __init__(self, kind: AcceleratorKind) -> None:
        self.inner = find_accelerator(kind)
        self.kind, self.device = self.inner.kind, self.inner.device
        self.runs_ahead, self.recorder = self.inner.runs_ahead, self.inner.recorder
        self.name, self.uuid, self.target = self.inner.name, self.inner.uuid, self.inner.target
        self.memory_free_bytes = self.inner.memory_free_bytes
        self.zeros_on_host, self.synchronize = self.inner.zeros_on_host, self.inner.synchronize
        self.marks: list[tuple[Mark, Mark]] = []

    def submit(self, work: Work) -> Ticket:
        """As the device does, between two marks."""
        before = self.inner.mark()
        ticket = self.inner.submit(work)
        self.marks.append((before, self.inner.mark()))
        return ticket


@dataclass
class _Samples:
    """Seconds of each counted step, by what they are."""

    seconds: dict[str, list[float]] = field(default_factory=dict)
    steps: int = 0
    tokens: int = 0
    replayed: int = 0
    wall_s: float = 0.0
    said: list[list[list[int]]] = field(default_factory=list)  # by round and request

    def add(self, name: str, value: float) -> None:
        self.seconds.setdefault(name, []).append(value)


def measure(
    source: ModelSource,
    values: dict[str, ConfigValue],
    load: Load,
    variants: Sequence[str] = tuple(VARIANTS),
) -> Iterator[Found]:
    """Serve the load under every variant; `values` configure the engine."""
    device = Watched(EngineConfig.from_mapping(values).accelerator)
    once = source if isinstance(source, LoadedOnce) else LoadedOnce(source)
    engines = {name: _engine(once, values, load, device, name) for name in variants}
    samples = {name: _Samples() for name in variants}
    for number in range(load.rounds + 1):
        for name, engine in engines.items():
            target = samples[name] if number else _Samples()
            _pass(engine, device, load, target)
    first = next(iter(samples.values())).said[-1]
    for name, found in samples.items():
        yield _found(name, found, first)


def _engine(
    source: LoadedOnce, values: dict[str, ConfigValue], load: Load, device: Watched, name: str
) -> Engine:
    longest = load.prompt_tokens + 6 * (load.steps + load.skipped_steps + 2)
    room = {
        "max_num_seqs": load.requests,
        "max_model_len": longest,
        "cache_tokens": load.requests * (-(-longest // 64) * 64),
    }
    config = EngineConfig.from_mapping({**room, **values, **VARIANTS[name]})
    return Engine(config, source=source, accelerator=device)


def _pass(engine: Engine, device: Watched, load: Load, samples: _Samples) -> None:
    said: dict[str, list[int]] = {}
    for request in _requests(engine, load):
        engine.add_request(request)
        said[request.request_id] = []
    while not all(said.values()):
        _step(engine, said)
    for _ in range(load.skipped_steps):
        _step(engine, said)
    device.marks.clear()
    begun, before = time.perf_counter(), engine.stats()
    for _ in range(load.steps):
        before = _timed_step(engine, said, samples, before)
    samples.wall_s += time.perf_counter() - begun
    samples.steps += load.steps
    device.synchronize()
    _add_marks(device.marks, samples)
    samples.said.append([tokens[: load.steps] for tokens in said.values()])  # that many at least
    for name in said:
        engine.abort(name)  # type: ignore[arg-type]
    while engine.has_unfinished():
        engine.step()


def _timed_step(
    engine: Engine, said: dict[str, list[int]], samples: _Samples, before: EngineStats
) -> EngineStats:
    start = time.perf_counter()
    _step(engine, said)
    samples.add("step", time.perf_counter() - start)
    after = engine.stats()
    for stage in _STAGES:
        samples.add(stage[:-2], getattr(after, stage) - getattr(before, stage))
    samples.tokens += after.output_tokens - before.output_tokens
    samples.replayed += after.replayed_steps - before.replayed_steps
    return after


def _add_marks(marks: Sequence[tuple[Mark, Mark]], samples: _Samples) -> None:
    for (_, ended), (begun, done) in pairwise(marks):
        samples.add("idle", begun.seconds_since(ended))
        samples.add("busy", done.seconds_since(begun))


def _step(engine: Engine, said: dict[str, list[int]]) -> None:
    for output in engine.step():
        said[output.request_id] += output.token_ids


def _requests(engine: Engine, load: Load) -> Iterator[Request]:
    draw, facts = random.Random(0), engine.limits.facts
    for number in range(load.requests):
        prompt = tuple(draw.choices(range(facts.vocab_size), k=load.prompt_tokens))
        params = SamplingParams(
            temperature=load.temperature, max_tokens=10**6, ignore_eos=True, seq_seed=number
        )
        yield Request(request_id=str(number), prompt_token_ids=prompt, sampling=params)


def _found(name: str, samples: _Samples, first: list[list[int]]) -> Found:
    said = samples.said[-1]
    idle, busy = sum(samples.seconds["idle"]), sum(samples.seconds["busy"])
    each = {key: np.array(values) for key, values in samples.seconds.items()}
    each["plan+settle"] = each["plan"] + each["settle"]
    return Found(
        variant=name,
        steps=samples.steps,
        replayed_steps=samples.replayed,
        tokens_per_s=samples.tokens / samples.wall_s,
        text=hashlib.sha256(repr(said).encode()).hexdigest()[:12],
        repeats=all(other == said for other in samples.said),
        other_texts=sum(one != other for one, other in zip(said, first, strict=True)),
        p50_s={key: float(np.quantile(values, 0.5)) for key, values in each.items()},
        p99_s={key: float(np.quantile(values, 0.99)) for key, values in each.items()},
        idle_share=idle / (idle + busy),
    )
