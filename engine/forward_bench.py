"""Time the forward of a model alone, captured: `python -m engine.forward_bench --shape NAME`.

A decode step of each batch size at each context, replayed from a graph; and a step of prompts,
run as it comes. No scheduler, no sampling but the highest logit.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from kernels.interrupt import quiet_imports

with quiet_imports(__name__):
    import torch

    from engine.accelerator.find import find_accelerator
    from engine.batch import ForwardBatch, StepShape
    from engine.cache.storage import CacheStorage
    from engine.choices import AcceleratorKind, Precision
    from engine.config import EngineConfig
    from engine.models.dummy_causal import SHAPES, CausalDummySource
    from engine.models.registry import torch_dtype
    from engine.resolution import resolve
    from kernels.program import ended

if TYPE_CHECKING:
    from collections.abc import Callable

    from engine.models.protocol import Model

_BLOCK_TOKENS = 64
_ROUNDS = 7
_CALLS = 4  # between two looks at the clock


@dataclass(frozen=True, kw_only=True)
class StepTime:
    """Seconds of one step, launch included."""

    sequences: int
    rows: int  # of each
    context: int
    seconds: float
    captured: bool


def decode_batch(sequences: int, context: int, device: str) -> ForwardBatch:
    """Each sequence runs one token at the end of a context of its own blocks."""
    each = torch.arange(sequences, device=device)
    blocks = -(-context // _BLOCK_TOKENS)
    return ForwardBatch(
        token_ids=each + 5,
        positions=torch.full_like(each, context - 1),
        sequence_index=each,
        query_start=tuple(range(sequences + 1)),
        context_length=(context - 1,) * sequences,
        behind=torch.zeros_like(each),
        lookback_ids=each.new_zeros(sequences, 0),
        slots=each,
        block_table=torch.randperm(sequences * blocks, device=device).view(sequences, blocks),
        decoder_start=(0,) * sequences,
        decoder_floor=torch.zeros_like(each),
        decoder_rows=None,
        logit_rows=each,
        shape=StepShape(sequences=sequences, rows=1, context=context),
    )


def prompt_batch(sequences: int, rows: int, device: str) -> ForwardBatch:
    """Each sequence runs its first rows."""
    at = torch.arange(sequences * rows, device=device)
    owner = at // rows
    blocks = -(-rows // _BLOCK_TOKENS)
    each = torch.arange(sequences, device=device)
    return ForwardBatch(
        token_ids=at % 1000,
        positions=at % rows,
        sequence_index=owner,
        query_start=tuple(range(0, sequences * rows + 1, rows)),
        context_length=(0,) * sequences,
        lookback_ids=at.new_zeros(len(at), 0),
        slots=each,
        block_table=torch.arange(sequences * blocks, device=device).view(sequences, blocks),
        decoder_start=(0,) * sequences,
        decoder_rows=None,
        logit_rows=(each + 1) * rows - 1,
    )


class Bench:
    """One model on the device that there is."""

    def __init__(self, shape: str, dtype: str) -> None:
        accelerator = find_accelerator(AcceleratorKind.AUTO, index=0)
        config = EngineConfig(model=shape, dtype=Precision(dtype))
        source = CausalDummySource.named(shape)
        self.resolved = resolve(config, source.facts(config), accelerator.kind)
        self.device = accelerator.device
        self.model: Model = source.load(self.resolved, accelerator)
        self._synchronize = accelerator.synchronize
        self._is_captured = accelerator.runs_ahead

    def time(self, batch: ForwardBatch) -> StepTime:
        """The median of some rounds."""
        caches = self._caches(batch)

        def step() -> object:
            return self.model.forward(batch, caches).logits.max(-1)

        shape = batch.shape
        run = self._captured(step) if shape is not None and self._is_captured else step
        sequences = len(batch.query_start) - 1
        return StepTime(
            sequences=sequences,
            rows=len(batch.token_ids) // sequences,
            context=max(batch.context_length) + len(batch.token_ids) // sequences,
            seconds=self._seconds(run),
            captured=run is not step,
        )

    def _caches(self, batch: ForwardBatch) -> CacheStorage:
        return CacheStorage.allocate(
            self.model.cache_groups(max_backtrack=0),
            blocks=batch.block_table.numel(),
            block_tokens=_BLOCK_TOKENS,
            slots=1,
            dtype=torch_dtype(self.resolved.dtype),
            device=self.device,
        )

    def _captured(self, step: Callable[[], object]) -> Callable[[], object]:
        stream = torch.cuda.Stream()  # noqa: TID251
        with torch.cuda.stream(stream):  # noqa: TID251
            for _ in range(3):
                step()
        self._synchronize()
        graph = torch.cuda.CUDAGraph()  # noqa: TID251
        with torch.cuda.graph(graph):  # noqa: TID251
            step()
        return graph.replay

    def _seconds(self, step: Callable[[], object]) -> float:
        for _ in range(3):
            step()
        self._synchronize()
        times = []
        for _ in range(_ROUNDS):
            start = time.perf_counter()
            for _ in range(_CALLS):
                step()
            self._synchronize()
            times.append((time.perf_counter() - start) / _CALLS)
        return statistics.median(times)


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m engine.forward_bench", description=__doc__)
    parser.add_argument("--shape", choices=sorted(SHAPES), default="qwen3-0.6b")
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 32, 256])
    parser.add_argument("--context", type=int, nargs="+", default=[192])
    parser.add_argument("--dtype", choices=("auto", "float32", "bfloat16"), default="auto")
    parser.add_argument("--prompt", type=int, default=128)
    options = parser.parse_args()
    bench = Bench(options.shape, options.dtype)
    for sequences in options.batch:
        batches = [decode_batch(sequences, c, bench.device) for c in options.context]
        batches.append(prompt_batch(min(sequences, 16), options.prompt, bench.device))
        for batch in batches:
            print(json.dumps(asdict(bench.time(batch))), flush=True)  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(ended(torch.inference_mode()(main)))
