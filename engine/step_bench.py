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
import json
import sys
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from kernels.interrupt import quiet_imports

with quiet_imports(__name__):
    import torch

    from engine.accelerator.find import find_accelerator
    from engine.collector import calm_collector
    from engine.config import EngineConfig
    from engine.models.dummy_causal import SHAPES, CausalDummySource
    from engine.models.dummy_v41 import V41DummySource
    from engine.models.registry import CheckpointSource
    from engine.random_shapes import EIGHT_LAYERS
    from engine.step_timing import VARIANTS, Found, Load, LoadedOnce, measure
    from kernels.bench_document import BenchDocument, earlier, rows_of
    from kernels.program import ended, positive_count
    from kernels.surroundings import surroundings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from engine.config import ConfigValue
    from engine.models.registry import ModelSource

FORMAT = "step bench"
DUMMIES: dict[str, Callable[[], ModelSource]] = {
    "eight-layers": partial(V41DummySource, shape=EIGHT_LAYERS),
    **{name: partial(CausalDummySource.named, name) for name in SHAPES},
}


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


def _steps(text: str) -> int:
    """For `type=`: at least two, between which the device may idle."""
    count = positive_count(text)
    if count == 1:
        raise argparse.ArgumentTypeError("one step has no time between steps: at least 2")
    return count


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m engine.step_bench")
    parser.add_argument("--model", default="nano", help="a checkpoint")
    parser.add_argument("--shape", choices=sorted(DUMMIES), help="random weights of a shape")
    parser.add_argument(
        "--requests", type=positive_count, action="append", help="at once; repeatable"
    )
    parser.add_argument("--draft-length", type=int, action="append", help="repeatable")
    parser.add_argument("--prompt-tokens", type=positive_count, default=64)
    parser.add_argument("--steps", type=_steps, default=64)
    parser.add_argument("--rounds", type=positive_count, default=2)
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("--set", action="append", default=[], metavar="FIELD=VALUE")
    parser.add_argument("--variant", choices=VARIANTS, action="append", help="all, if not given")
    parser.add_argument("--may-turn", action="store_true", help="variants may say other things")
    parser.add_argument("--json", type=Path, help="also write the document here")
    parser.add_argument("--beside", type=Path, action="append", default=[], metavar="FILE",
                        help="an earlier document, whose loads are left out")  # fmt: skip
    return parser


def engine_asked(given: argparse.Namespace) -> tuple[dict[str, ConfigValue], LoadedOnce]:
    """What `--set`, `--model` and `--shape` say: fields of the engine, and its model."""
    pairs = (text.partition("=") for text in given.set)
    values = {name: json.loads(v) if v[:1].isdigit() else v for name, _, v in pairs}
    values["model"] = given.shape or given.model
    return values, LoadedOnce(DUMMIES[given.shape]() if given.shape else CheckpointSource())


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit 1 where variants of one load, or rounds of one variant, said different things."""
    given = _parser().parse_args(arguments)
    calm_collector()  # as in a process that serves
    values, source = engine_asked(given)
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
    sys.exit(ended(main))
