"""Time decode steps where they are served: `python -m engine.step_bench [--model nano] ...`.

As many requests as asked for are prefilled, then all of them decode together for some steps,
under each of: overlap on and off, graphs on and off. The variants take turns, one pass each a
round; the first round is not counted, since it compiles and records. Of every step: its time by
the host's clock, the time that the host spent planning, launching, waiting and settling, and by
marks in the device's own order how long it worked on the step and how long it idled before it.
`--json FILE` holds after each load what `workbench import` stores as a run; `--beside FILE` leaves
out the loads of an earlier one. Texts must be the same in all rounds of a variant, whose steps are
the same: else steps disturb each other. Under all variants they must be the same where rounding is:
a sum that is split otherwise, since a step is planned for a wider context, may turn a near tie, so
it is counted in how many requests they differ; `--may-turn` lets them differ between variants.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import sys
import time
from dataclasses import asdict, dataclass, field
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

from engine.accelerator.find import find_accelerator
from engine.choices import AcceleratorKind
from engine.collector import calm_collector
from engine.config import EngineConfig
from engine.core import Engine
from engine.models.dummy_causal import SHAPES, CausalDummySource
from engine.models.dummy_v41 import V41DummySource
from engine.models.registry import CheckpointSource
from engine.random_shapes import EIGHT_LAYERS
from engine.request import Request, SamplingParams
from kernels.bench_document import BenchDocument, earlier, rows_of
from kernels.surroundings import surroundings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from engine.accelerator.interface import Mark, Ticket, Work
    from engine.config import ConfigValue
    from engine.models.protocol import Model, ModelFacts
    from engine.models.registry import ModelSource
    from engine.resolution import ResolvedConfig
    from engine.stats import EngineStats

FORMAT = "step bench"
VARIANTS = {
    f"overlap={overlap} graphs={graphs}": {"overlap": overlap == "on", "graphs": graphs}
    for overlap in ("on", "off")
    for graphs in ("auto", "off")
}
_DUMMIES: dict[str, Callable[[], ModelSource]] = {
    "eight-layers": partial(V41DummySource, shape=EIGHT_LAYERS),
    **{name: partial(CausalDummySource.named, name) for name in SHAPES},
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


def _line(found: Found) -> str:
    each = " ".join(
        f"{name}={1e6 * found.p50_s[name]:.0f}/{1e6 * found.p99_s[name]:.0f}"
        for name in found.p50_s
    )
    return (
        f"{found.variant}: {found.tokens_per_s:.0f} tok/s, idle {100 * found.idle_share:.1f} %, "
        f"{found.replayed_steps} of {found.steps} replayed, text {found.text} "
        f"({'' if found.repeats else 'not '}the same in all rounds, {found.other_texts} other "
        f"than first); us p50/p99: {each}"
    )


def _loads(given: argparse.Namespace) -> Iterator[Load]:
    for requests in given.requests or [32]:
        yield Load(
            requests=requests,
            prompt_tokens=given.prompt_tokens,
            steps=given.steps,
            rounds=given.rounds,
            temperature=given.temperature,
        )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m engine.step_bench")
    parser.add_argument("--model", default="nano", help="a checkpoint")
    parser.add_argument("--shape", choices=sorted(_DUMMIES), help="random weights of a shape")
    parser.add_argument("--requests", type=int, action="append", help="at once; repeatable")
    parser.add_argument("--draft-length", type=int, action="append", help="repeatable")
    parser.add_argument("--prompt-tokens", type=int, default=64)
    parser.add_argument("--steps", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("--set", action="append", default=[], metavar="FIELD=VALUE")
    parser.add_argument("--variant", choices=VARIANTS, action="append", help="all, if not given")
    parser.add_argument("--may-turn", action="store_true", help="variants may say other things")
    parser.add_argument("--json", type=Path, help="also write the document here")
    parser.add_argument("--beside", type=Path, action="append", default=[], metavar="FILE",
                        help="an earlier document, whose loads are left out")  # fmt: skip
    return parser


def main(arguments: Sequence[str]) -> int:
    """Exit 1 where variants of one load, or rounds of one variant, said different things."""
    given = _parser().parse_args(arguments)
    calm_collector()  # as in a process that serves
    pairs = (text.partition("=") for text in given.set)
    values = {name: json.loads(v) if v[:1].isdigit() else v for name, _, v in pairs}
    values["model"] = given.shape or given.model
    source = LoadedOnce(_DUMMIES[given.shape]() if given.shape else CheckpointSource())
    before = [row for one in earlier(given.beside, FORMAT) for row in rows_of(one, "served")]
    document = _document(values, given.json)
    for draft_length in given.draft_length or [None]:
        engine = {**values, "draft_length": draft_length}
        for load in _loads(given):
            if not any(_is_of(row, engine, load) for row in before):
                found = list(measure(source, engine, load, given.variant or tuple(VARIANTS)))
                sys.stdout.write(f"{load.requests} requests, drafts {draft_length}\n")
                sys.stdout.write("".join(f"  {_line(one)}\n" for one in found))
                sys.stdout.flush()
                variants = [asdict(one) for one in found]
                row = {"engine": engine, "load": asdict(load), "variants": variants}
                document.add(served=[row])
    return int(
        not all(
            _agrees(row, given.may_turn) for row in (*before, *rows_of(document.value(), "served"))
        )
    )


def _document(values: Mapping[str, ConfigValue], path: Path | None) -> BenchDocument:
    device = find_accelerator(EngineConfig.from_mapping(values).accelerator).device
    about = surroundings(torch.device(device))
    return BenchDocument(path, {"format": FORMAT, "version": 1, **about, "served": []})


def _is_of(row: Mapping[str, object], engine: Mapping[str, ConfigValue], load: Load) -> bool:
    return row.get("engine") == engine and row.get("load") == asdict(load)


def _agrees(row: Mapping[str, object], may_turn: bool) -> bool:
    """Whether all rounds of a variant said the same, and all variants if they must."""
    return all(
        one.get("repeats") is True and (may_turn or one.get("other_texts") == 0)
        for one in rows_of(row, "variants")
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
