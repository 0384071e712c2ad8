"""Time whole steps beside the sum of their floors: `python -m engine.model_bench`.

Eight layers of the released widths, one of every role, with random weights made on the device,
through the engine's own model and caches. Decode: one row of each sequence at a context, in a
captured graph where the model keeps the graph rule. Prefill: one chunk of a prompt, truncated as
the engine truncates. The floor of a step is the sum over its parts of what each must move or
multiply (`engine.models.deepseek_v41.costs`), under ceilings measured in the same run. Under
each step stands what took its time, by kernel. `--json FILE` holds all steps so far;
`--beside FILE` leaves out those of an earlier one.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from kernels.interrupt import quiet_imports

with quiet_imports(__name__):
    import torch
    from torch import Tensor

    from engine.accelerator.find import find_accelerator
    from engine.assembly import allocate_caches
    from engine.batch import ForwardBatch, StepShape
    from engine.cache.storage import CacheStorage
    from engine.config import configure
    from engine.models.deepseek_v41.config import DeepseekV41Config
    from engine.models.deepseek_v41.costs import StepSize, step_costs
    from engine.models.dummy_v41 import V41DummySource
    from engine.models.protocol import Model
    from engine.random_shapes import EIGHT_LAYERS, TOY
    from engine.resolution import ResolvedConfig, resolve
    from kernels.bench import Watch
    from kernels.bench_document import BenchDocument, earlier, rows_of
    from kernels.cost import Ceilings
    from kernels.ops import Ops
    from kernels.program import ended, positive_count
    from kernels.routing.reference import Router
    from kernels.stopwatch import Stopwatch, Work
    from kernels.stopwatch_host import HostStopwatch
    from kernels.surroundings import surroundings

FORMAT = "model bench"
SHAPES = {"eight-layers": EIGHT_LAYERS, "toy": TOY}
FILLED_ROWS = 1 << 16  # of a cache at once
EAGER_ROUNDS = 5
SHOWN_KERNELS = 16


class Busy:
    """How many experts the rows of a forward choose, by layer; waits for the device."""

    def __init__(self) -> None:
        self.counts: list[int] | None = None  # None: not counted now

    def watched(self, ops: Ops) -> Ops:
        """The same operations, whose choices are counted."""

        def route(x: Tensor, router: Router, live: Tensor | None) -> tuple[Tensor, Tensor]:
            chosen, weights = ops.route(x, router, live)
            if self.counts is not None:
                self.counts.append(len(chosen.unique()))
            return chosen, weights

        return replace(ops, route=route)

    def of(self, work: Work) -> tuple[int, ...]:
        """The counts of one forward."""
        self.counts = []
        work()
        found, self.counts = tuple(self.counts), None
        return found


@dataclass(frozen=True, kw_only=True)
class Subject:
    """A model with caches full of random rows."""

    config: DeepseekV41Config
    resolved: ResolvedConfig
    model: Model
    caches: CacheStorage
    device: torch.device
    busy: Busy


@dataclass(frozen=True, kw_only=True)
class StepTime:
    """One step. Seconds on the device; `kernels` are seconds by name, of one eager run."""

    name: str
    rows: int
    context: int
    captured: bool
    busy_experts: tuple[int, ...]  # that the rows chose, by layer
    step_s: float
    floor_s: dict[str, float]  # by part of the model
    kernels: dict[str, float]

    @property
    def fraction(self) -> float:
        """Of the sum of the floors."""
        return sum(self.floor_s.values()) / self.step_s


def open_subject(
    source: V41DummySource, *, sequences: int, context: int, **changes: str | int
) -> Subject:
    """Weights and caches for so many sequences of a context, on the first device."""
    config = configure(
        {
            "model": "random",
            "max_num_seqs": sequences,
            "cache_tokens": sequences * _tokens_held(context),
            "max_model_len": _tokens_held(context),
            "max_num_batched_tokens": max(context, sequences),
            **changes,
        }
    )
    accelerator = find_accelerator(config.accelerator)
    resolved = resolve(config, source.facts(config), accelerator.kind)
    busy = Busy()
    source = replace(source, change=busy.watched)
    model = source.load(resolved, accelerator)
    caches = allocate_caches(model, resolved, accelerator).device
    fill(caches)
    return Subject(
        config=source.config, resolved=resolved, model=model, caches=caches,
        device=torch.device(accelerator.device), busy=busy,
    )  # fmt: skip


def _tokens_held(context: int) -> int:
    """Of the blocks that hold a context and a token more."""
    return (context // 64 + 1) * 64


def fill(caches: CacheStorage) -> None:
    """Random rows everywhere: selections without ties, values without NaN."""
    for name, group in caches.groups.items():
        tensor = caches.tensors[name]
        for rows in torch.arange(len(tensor), device=tensor.device).split(FILLED_ROWS):
            values = torch.randn(len(rows), group.width, device=tensor.device)
            caches.write(name, rows, values)


def decode_batch(subject: Subject, sequences: int, context: int) -> ForwardBatch:
    """The next row of each sequence, as a uniform decode step where the model can be captured."""
    device, count = subject.device, sequences
    shape = StepShape(sequences=count, rows=1, context=_power_of_two(context + 1))
    rows = torch.arange(count, device=device)
    return ForwardBatch(
        **_inputs(subject, rows=count),
        positions=torch.full((count,), context, device=device),
        sequence_index=rows,
        query_start=tuple(range(count + 1)),
        context_length=(shape.context - 1 if subject.model.can_capture else context,) * count,
        behind=torch.full((count,), shape.context - 1 - context, device=device)
        if subject.model.can_capture
        else None,
        slots=rows,
        block_table=_block_table(subject, count, context),
        decoder_start=(0,) * count,
        decoder_floor=torch.zeros(count, dtype=torch.int64, device=device),
        decoder_rows=None,
        logit_rows=rows,
        shape=shape if subject.model.can_capture else None,
        live=torch.ones(count, dtype=torch.bool, device=device),
    )


def prefill_batch(subject: Subject, tokens: int) -> ForwardBatch:
    """A whole prompt of one sequence, whose tail alone runs the decoder half."""
    device = subject.device
    start = max(0, tokens - subject.resolved.replay_keep_tokens)
    zero = torch.zeros(1, dtype=torch.int64, device=device)
    return ForwardBatch(
        **_inputs(subject, rows=tokens),
        positions=torch.arange(tokens, device=device),
        sequence_index=zero.expand(tokens),
        query_start=(0, tokens),
        context_length=(0,),
        slots=zero,
        block_table=_block_table(subject, 1, tokens),
        decoder_start=(start,),
        decoder_floor=zero + start,
        decoder_rows=torch.arange(start, tokens, device=device),
        logit_rows=zero + tokens - 1,
    )


def _inputs(subject: Subject, *, rows: int) -> dict[str, torch.Tensor]:
    vocab, back = subject.config.vocab_size, subject.model.facts.ngram - 1
    drawn = torch.randint(vocab, (rows, back + 1), device=subject.device)
    return {"token_ids": drawn[:, 0].contiguous(), "lookback_ids": drawn[:, 1:].contiguous()}


def _block_table(subject: Subject, sequences: int, context: int) -> torch.Tensor:
    each = -(-(context + 1) // subject.caches.block_tokens)
    blocks = torch.arange(sequences * each, device=subject.device)
    return blocks.view(sequences, each)


def _power_of_two(count: int) -> int:
    return 1 << (count - 1).bit_length()


def time_step(
    subject: Subject, name: str, batch: ForwardBatch, size: StepSize, watch: Watch,
    ceilings: Ceilings,
) -> StepTime:  # fmt: skip
    """Captured where the batch has a shape, else eagerly, launches and waits included."""

    def work() -> object:
        return subject.model.forward(batch, subject.caches)

    size = replace(size, busy_experts=subject.busy.of(work))
    captured = batch.shape is not None
    if captured:
        step_s = watch.compare({name: watch.capture([work])})[name]
    else:
        step_s = min(watch.seconds(work) for _ in range(EAGER_ROUNDS))
    floors = {
        part: sum(map(ceilings.floor_s, costs))
        for part, costs in step_costs(subject.config, size).items()
    }
    return StepTime(
        name=name, rows=size.rows, context=size.context, captured=captured,
        busy_experts=size.busy_experts or (), step_s=step_s, floor_s=floors,
        kernels=dict(kernel_seconds(work)) if subject.device.type == "cuda" else {},
    )  # fmt: skip


def kernel_seconds(work: Work) -> Iterator[tuple[str, float]]:
    """Seconds on the device by kernel, of one run, the longest first."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA]) as profiler:
        work()
        torch.accelerator.synchronize()
    events = sorted(profiler.key_averages(), key=lambda e: -e.self_device_time_total)
    for event in events:
        if event.self_device_time_total:
            yield f"{event.key[:60]} x{event.count}", event.self_device_time_total / 1e6


def lines(step: StepTime) -> Iterator[str]:
    """A step for people."""
    how = "captured" if step.captured else "eager"
    floor_s = sum(step.floor_s.values())
    yield (
        f"{step.name}: {step.step_s * 1e6:.0f} us {how}, floor {floor_s * 1e6:.0f} us, "
        f"{step.fraction:.2f}"
    )
    yield f"  experts chosen by layer: {', '.join(map(str, step.busy_experts))}"
    yield "  floors: " + ", ".join(f"{k} {v * 1e6:.0f}" for k, v in step.floor_s.items())
    total_s = sum(step.kernels.values())
    yield f"  kernels: {total_s * 1e6:.0f} us of one eager run"
    for kernel, seconds in list(step.kernels.items())[:SHOWN_KERNELS]:
        yield f"    {seconds * 1e6:9.1f} us  {kernel}"


def main(arguments: Sequence[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m engine.model_bench", description=__doc__)
    parser.add_argument(
        "--batch", type=positive_count, action="append", help="sequences of a decode step"
    )
    parser.add_argument("--context", type=int, default=8192, help="tokens behind a decode step")
    parser.add_argument("--prefill", type=int, default=8192, help="tokens of a prompt; 0: none")
    parser.add_argument("--weights", default="released", help="packed or released")
    parser.add_argument("--shape", choices=SHAPES, default="eight-layers")
    parser.add_argument("--accelerator", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--json", type=Path, help="also write the document here")
    parser.add_argument("--beside", type=Path, action="append", default=[], metavar="FILE",
                        help="an earlier document, whose steps are left out")  # fmt: skip
    options = parser.parse_args(arguments)
    batches = options.batch or [1, 32, 128]
    held = {row.get("name") for one in earlier(options.beside, FORMAT)
            for row in rows_of(one, "steps")}  # fmt: skip
    subject = open_subject(
        V41DummySource(shape=SHAPES[options.shape]),
        sequences=max(batches), context=max(options.context, options.prefill),
        weights=options.weights, accelerator=options.accelerator,
    )  # fmt: skip
    watch = Stopwatch(subject.device) if subject.device.type == "cuda" else HostStopwatch()
    ceilings = watch.ceilings()
    about = {"format": FORMAT, "version": 1, **surroundings(subject.device)}
    document = BenchDocument(options.json, {**about, "ceilings": asdict(ceilings), "steps": []})
    for name, batch, size in _steps(subject, batches, options.context, options.prefill):
        if name in held:
            continue
        try:
            step = time_step(subject, name, batch, size, watch, ceilings)
        except torch.OutOfMemoryError as error:
            print(f"{name}: {str(error).splitlines()[0]}", flush=True)  # noqa: T201
        else:
            print(*lines(step), sep="\n", flush=True)  # noqa: T201
            document.add(steps=[asdict(step)])
    return 0


def _steps(
    subject: Subject, batches: Sequence[int], context: int, prefill: int
) -> Iterator[tuple[str, ForwardBatch, StepSize]]:
    for count in batches:
        size = StepSize(
            rows=count, decoder_rows=count, logit_rows=count, context=context, sequences=count
        )
        yield f"decode {count} x {context}", decode_batch(subject, count, context), size
    if prefill:
        batch = prefill_batch(subject, prefill)
        assert batch.decoder_rows is not None
        yield f"prefill {prefill}", batch, StepSize(
            rows=prefill, decoder_rows=len(batch.decoder_rows), logit_rows=1, context=prefill,
            sequences=1,
        )  # fmt: skip


if __name__ == "__main__":
    sys.exit(ended(main))
