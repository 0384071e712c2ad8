"""Time steps with rows of a prompt: `python -m engine.prompt_bench [--model nano] ...`.

Each counted step runs one prompt of `--prompt-tokens`, alone or beside requests that decode, with
graphs on and off. The two take turns, one pass each a round; the first round is not counted, since
it compiles and records. Without overlap, so that the time of a step is all there is of it: plan,
launch, the device's work, settle. `busy` is the device's part, by marks in its own order. Texts
must be the same in all rounds of a variant; `other` counts requests that say something else with
graphs off, where a sum that is split otherwise may turn a near tie. `--profile N` also tells which
N functions of the host take longest with graphs off, in a pass of its own.
"""

from __future__ import annotations

import argparse
import cProfile
import io
import pstats
import random
import sys
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from kernels.interrupt import quiet_imports

with quiet_imports(__name__):
    import numpy as np
    import torch

    from engine.collector import calm_collector
    from engine.config import EngineConfig
    from engine.core import Engine
    from engine.request import Request, SamplingParams
    from engine.step_bench import DUMMIES, engine_asked
    from engine.step_timing import LoadedOnce, Watched
    from kernels.bench_document import BenchDocument
    from kernels.program import ended, positive_count
    from kernels.surroundings import surroundings

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from engine.config import ConfigValue
    from engine.models.registry import ModelSource

FORMAT = "prompt bench"
VARIANTS = {f"graphs={graphs}": graphs for graphs in ("auto", "off")}
_DECODING_PROMPT = 32  # tokens of the prompts of those that decode
_SKIPPED_STEPS = 3  # of a pass, before the counted ones


@dataclass(frozen=True, kw_only=True)
class PromptLoad:
    """One prompt a step, beside so many requests that decode."""

    decoding: int
    prompt_tokens: int
    steps: int  # counted ones of a pass
    rounds: int  # counted ones


@dataclass(frozen=True, kw_only=True)
class PromptSteps:
    """Of one variant, over all counted steps of all counted rounds. Seconds."""

    variant: str
    steps: int
    replayed_steps: int
    repeats: bool  # every counted round said the same
    other_texts: int  # requests that said something else than with graphs off
    p50_s: dict[str, float]
    p99_s: dict[str, float]


@dataclass
class _Samples:
    seconds: dict[str, list[float]] = field(default_factory=lambda: {"step": [], "busy": []})
    replayed: int = 0
    said: list[dict[str, list[int]]] = field(default_factory=list)  # by round and request


def measure(
    source: ModelSource, values: dict[str, ConfigValue], load: PromptLoad
) -> Iterator[PromptSteps]:
    """Serve the load under every variant; `values` configure the engine."""
    device, once = Watched(EngineConfig.from_mapping(values).accelerator), LoadedOnce(source)
    engines = {name: _engine(once, values, load, device, name) for name in VARIANTS}
    samples = {name: _Samples() for name in VARIANTS}
    for number in range(load.rounds + 1):
        for name, engine in engines.items():
            _pass(engine, device, load, samples[name] if number else _Samples())
    *_, plain = samples.values()
    for name, found in samples.items():
        yield _found(name, found, plain)


def profile(
    source: ModelSource, values: dict[str, ConfigValue], load: PromptLoad, functions: int
) -> str:
    """Which functions of the host take longest with graphs off, as `pstats` tells it."""
    device = Watched(EngineConfig.from_mapping(values).accelerator)
    *_, name = VARIANTS
    engine = _engine(LoadedOnce(source), values, load, device, name)
    _pass(engine, device, load, _Samples())
    profiler, told = cProfile.Profile(), io.StringIO()
    profiler.runcall(_pass, engine, device, load, _Samples())
    pstats.Stats(profiler, stream=told).sort_stats("tottime").print_stats(functions)
    return told.getvalue()


def _engine(
    source: LoadedOnce, values: dict[str, ConfigValue], load: PromptLoad, device: Watched, name: str
) -> Engine:
    passed = load.steps + _SKIPPED_STEPS
    longest = max(load.prompt_tokens, _DECODING_PROMPT) + 6 * (passed + 4)
    room = {
        "max_num_seqs": load.decoding + 1,
        "max_model_len": longest,
        "cache_tokens": (load.decoding + 1) * (-(-longest // 64) * 64),
        "max_num_batched_tokens": load.decoding + max(load.prompt_tokens, 512),
        "prefill_chunk_tokens": load.prompt_tokens,
        "draft_length": 0,
        "overlap": False,
    }
    config = EngineConfig.from_mapping({**room, **values, "graphs": VARIANTS[name]})
    return Engine(config, source=source, accelerator=device)


def _pass(engine: Engine, device: Watched, load: PromptLoad, samples: _Samples) -> None:
    said: dict[str, list[int]] = {}
    draw, vocabulary = random.Random(0), engine.limits.facts.vocab_size

    def ask(name: str, tokens: int, answer: int) -> None:
        prompt = tuple(draw.choices(range(vocabulary), k=tokens))
        params = SamplingParams(temperature=0.0, max_tokens=answer, ignore_eos=True)
        engine.add_request(Request(request_id=name, prompt_token_ids=prompt, sampling=params))
        said[name] = []

    for number in range(load.decoding):
        ask(f"decoding {number}", _DECODING_PROMPT, 10**6)
    while not all(said.values()):
        _step(engine, said)
    for number in range(_SKIPPED_STEPS + load.steps):
        ask(f"prompt {number}", load.prompt_tokens, 1)
        device.synchronize()
        device.marks.clear()
        before, start = engine.stats().replayed_steps, time.perf_counter()
        _step(engine, said)
        passed_s = time.perf_counter() - start
        if number >= _SKIPPED_STEPS:
            ((begun, done),) = device.marks
            samples.seconds["step"].append(passed_s)
            samples.seconds["busy"].append(done.seconds_since(begun))
            samples.replayed += engine.stats().replayed_steps - before
    samples.said.append(said)
    for number in range(load.decoding):
        engine.abort(f"decoding {number}")  # type: ignore[arg-type]
    while engine.has_unfinished():
        engine.step()


def _step(engine: Engine, said: dict[str, list[int]]) -> None:
    for output in engine.step():
        said[output.request_id] += output.token_ids


def _found(name: str, samples: _Samples, plain: _Samples) -> PromptSteps:
    said, other = samples.said[-1], plain.said[-1]
    each = samples.seconds
    return PromptSteps(
        variant=name,
        steps=len(each["step"]),
        replayed_steps=samples.replayed,
        repeats=all(one == said for one in samples.said),
        other_texts=sum(other[key] != tokens for key, tokens in said.items()),
        p50_s={key: float(np.quantile(values, 0.5)) for key, values in each.items()},
        p99_s={key: float(np.quantile(values, 0.99)) for key, values in each.items()},
    )


def _line(found: PromptSteps) -> str:
    times = " ".join(
        f"{key}={1e6 * found.p50_s[key]:.0f}/{1e6 * found.p99_s[key]:.0f}" for key in found.p50_s
    )
    return (
        f"{found.variant}: {found.replayed_steps} of {found.steps} replayed, "
        f"{'' if found.repeats else 'not '}the same in all rounds, {found.other_texts} other "
        f"texts; us p50/p99: {times}"
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m engine.prompt_bench")
    parser.add_argument("--model", default="nano", help="a checkpoint")
    parser.add_argument("--shape", choices=sorted(DUMMIES), help="random weights of a shape")
    parser.add_argument(
        "--decoding",
        type=positive_count,
        action="append",
        help="requests beside it; repeatable; without: none, and 31",
    )
    parser.add_argument("--prompt-tokens", type=positive_count, default=128)
    parser.add_argument("--steps", type=positive_count, default=16)
    parser.add_argument("--rounds", type=positive_count, default=2)
    parser.add_argument("--set", action="append", default=[], metavar="FIELD=VALUE")
    parser.add_argument("--profile", type=positive_count, metavar="N", help="longest functions")
    parser.add_argument("--json", type=Path, help="also write the document here")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit 1 where rounds of one variant said different things."""
    given = _parser().parse_args(arguments)
    calm_collector()  # as in a process that serves
    values, source = engine_asked(given)
    device = Watched(EngineConfig.from_mapping(values).accelerator).device
    facts = surroundings(torch.device(device))
    document = BenchDocument(given.json, {"format": FORMAT, "version": 1, **facts})
    is_right = True
    for decoding in given.decoding or [0, 31]:
        load = PromptLoad(
            decoding=decoding,
            prompt_tokens=given.prompt_tokens,
            steps=given.steps,
            rounds=given.rounds,
        )
        found = list(measure(source, values, load))
        sys.stdout.write(f"one prompt of {load.prompt_tokens} beside {decoding} that decode\n")
        sys.stdout.write("".join(f"  {_line(one)}\n" for one in found))
        sys.stdout.flush()
        row = {"engine": values, "load": asdict(load), "variants": [asdict(one) for one in found]}
        document.add(prompted=[row])
        is_right &= all(one.repeats for one in found)
        if given.profile is not None:
            sys.stdout.write(profile(source, values, load, given.profile))
    return int(not is_right)


if __name__ == "__main__":
    sys.exit(ended(main))
