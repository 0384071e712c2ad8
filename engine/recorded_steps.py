"""Steps that are padded to few shapes and replayed: those that decode, and those with short chunks.

Long chunks keep a device busy while the host launches what comes next; a graph of theirs would
save nothing, and their lengths are many.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from engine.decode_inputs import DecodeInputsBuilder
from engine.decode_step import DecodeStep
from engine.graphs import StepGraphs
from engine.mixed_inputs import MixedInputsBuilder
from engine.mixed_step import MixedStep
from engine.stats import GraphCounts
from engine.step_results import decode_results_of, mixed_results_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from engine.accelerator.interface import GraphRecorder
    from engine.decode_inputs import StepKey
    from engine.resolution import ResolvedConfig
    from engine.step import ScheduledBatch, StepResults


class RecordedSteps:
    """Those of one engine, in the order of their launch."""

    def __init__(
        self, step: DecodeStep, resolved: ResolvedConfig, recorder: GraphRecorder, device: str
    ) -> None:
        self._table = step.table
        self._decode, self._mixed = step, MixedStep(decode=step)
        self._graphs = StepGraphs(recorder, self._run, device)
        config, facts = resolved.config, step.model.facts
        self._decodes = DecodeInputsBuilder(
            draft_length=resolved.draft_length,
            block_tokens=config.block_tokens,
            most_sequences=config.max_num_seqs,
            spare=step.spare,
            device=device,
        )
        self._mixes: MixedInputsBuilder | None = None
        if step.model.can_capture_chunks:
            self._mixes = MixedInputsBuilder(
                ngram=facts.ngram,
                draft_length=resolved.draft_length,
                block_tokens=config.block_tokens,
                most_sequences=config.max_num_seqs,
                spare=step.spare,
                device=device,
            )

    def prepare(
        self, batch: ScheduledBatch
    ) -> tuple[Callable[[], tuple[Tensor, ...]], Callable[..., StepResults]] | None:
        """What the device is to do for the rows of a step, and how to read what it finds.

        None for a step of another kind.
        """
        decode = self._decodes.build(batch, self._table)
        if decode is not None:
            return partial(self._graphs.run, decode), partial(decode_results_of, decode)
        mixed = self._mixes.build(batch, self._table) if self._mixes is not None else None
        if mixed is not None:
            return partial(self._graphs.run, mixed), partial(mixed_results_of, mixed)
        return None

    def count(self) -> GraphCounts:
        """Of the graphs, and of the steps replayed so far."""
        graphs = self._graphs
        return GraphCounts(
            graphs=graphs.count, graph_bytes=graphs.held_bytes, replayed_steps=graphs.replayed
        )

    def _run(self, numbers: Tensor, key: StepKey) -> tuple[Tensor, ...]:
        step = self._mixed if key.shape.chunks else self._decode
        return step.run(numbers, key)
