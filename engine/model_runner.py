"""Runs the steps of one replica on one device: draft, forward, choose, verify.

A step is built on the host and submitted; nothing it does waits for the host, nor the host for
it, until its results are asked for. What the next step needs of it stays on the device, in the
request table. Steps that decode, or run short chunks of prompts besides, are padded to few shapes
and, from the second one of a shape on, replayed from a graph (`engine/recorded_steps.py`); all
others run operation by operation.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import torch

from engine import sampling
from engine.cache.storage import CacheStorage
from engine.decode_inputs import Spare, context_bucket
from engine.decode_step import DecodeStep
from engine.errors import EngineError
from engine.recorded_steps import RecordedSteps
from engine.repeated_inputs import RepeatedInputs
from engine.request_table import RequestTable
from engine.stats import GraphCounts
from engine.step import StepResults
from engine.step_inputs import StepInputsBuilder
from engine.step_results import results_of
from engine.step_tensors import StepTensors
from kernels.ops import REFERENCE
from kernels.plan import resolve
from kernels.registry import ModelShape
from kernels.target import KernelChoice

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from engine.accelerator.interface import Accelerator, Ticket
    from engine.models.protocol import Model
    from engine.resolution import ResolvedConfig
    from engine.step import ScheduledBatch
    from engine.step_inputs import StepInputs
    from engine.swapping import HostCaches
    from kernels.logprobs.reference import LogprobRows
    from kernels.ops import Ops


@dataclass(frozen=True, kw_only=True)
class DeviceCaches:
    """Cache rows on the device, and in host memory for sequences that were preempted."""

    device: CacheStorage
    host: HostCaches | None
    spare: Spare | None = None  # of `device`, for padding; None: no step is padded

    @property
    def blocks(self) -> int:
        """Blocks on the device that sequences may hold."""
        return self.device.blocks - (self.spare is not None)

    def prepare_swap(self, batch: ScheduledBatch) -> Callable[[], None] | None:
        """What the device is to copy before the rows of a step; None where it is nothing."""
        if not (batch.swaps_out or batch.swaps_in):
            return None
        assert self.host is not None, "a copy has somewhere to go"
        return self.host.prepare(batch).run


@dataclass(frozen=True, slots=True)
class LaunchedStep:
    """A step that the device has been given."""

    batch: ScheduledBatch
    read: Callable[..., StepResults]  # what the numbers that it brings back say
    ticket: Ticket

    def wait(self) -> StepResults:
        """Block until it is done; one result for each of its sequences, in order.

        RuntimeError, MemoryError or EngineError when the device failed.
        """
        return self.read(*self.ticket.wait())


class ModelRunner:
    """A model with its caches. Not thread safe."""

    def __init__(
        self,
        model: Model,
        caches: DeviceCaches,
        resolved: ResolvedConfig,
        accelerator: Accelerator,
    ) -> None:
        self.decoder_rows_run = 0
        self.decoder_rows_skipped = 0
        self._model = model
        self._caches = caches
        self._accelerator = accelerator
        self._failed: int | None = None  # the newest step that raised on the device
        facts, storage = model.facts, caches.device
        self._ngram = facts.ngram
        builder = StepInputsBuilder(
            ngram=facts.ngram,
            replay_mode=resolved.replay_mode,
            eos_token_id=facts.eos_token_id,
            device=accelerator.device,
        )
        self._builder = RepeatedInputs(builder, accelerator.device)
        self._ops = _choosing_ops(resolved, accelerator)
        self._table = RequestTable(
            rows=storage.slots,
            ngram=facts.ngram,
            draft_length=resolved.draft_length,
            most_blocks=_most_blocks(resolved, caches),
            device=accelerator.device,
            ops=self._ops,
        )
        self._recorded: RecordedSteps | None = None
        if caches.spare is not None and accelerator.recorder is not None:
            step = DecodeStep(
                model=model,
                caches=storage,
                table=self._table,
                spare=caches.spare,
                ops=self._ops,
            )
            self._recorded = RecordedSteps(step, resolved, accelerator.recorder, accelerator.device)

    def count_graphs(self) -> GraphCounts:
        """Of the graphs, and of the steps replayed so far."""
        return self._recorded.count() if self._recorded is not None else GraphCounts()

    def launch(self, batch: ScheduledBatch) -> LaunchedStep:
        """Give a step to the device; at most one before it may be unfinished."""
        swap = self._caches.prepare_swap(batch)
        work, read = self._prepare(batch)
        ticket = self._accelerator.submit(partial(self._run, batch, swap, work))
        return LaunchedStep(batch, read, ticket)

    def _prepare(
        self, batch: ScheduledBatch
    ) -> tuple[Callable[[], tuple[Tensor, ...]], Callable[..., StepResults]]:
        """What the device is to do for the rows of a step, and how to read what it finds."""
        if not batch.fields:
            return tuple, partial(StepResults.of_tokens, [], [])  # it only moves caches
        recorded = self._recorded.prepare(batch) if self._recorded is not None else None
        if recorded is not None:
            self.decoder_rows_run += batch.tokens
            return recorded
        inputs = self._builder.build(batch.sequences, self._table)
        self.decoder_rows_run += inputs.decoder_rows
        self.decoder_rows_skipped += batch.tokens - inputs.decoder_rows
        return partial(self._run_rows, inputs), partial(results_of, inputs)

    def _run(
        self,
        batch: ScheduledBatch,
        swap: Callable[[], None] | None,
        work: Callable[[], tuple[Tensor, ...]],
    ) -> tuple[Tensor, ...]:
        """The device's part. What raises here spoils what continues it."""
        failed_before, self._failed = self._failed, batch.number
        if failed_before == batch.number - 1 and any(e.is_ahead for e in batch.sequences):
            raise EngineError("the step before it failed")
        if swap is not None:
            swap()
        found = work()
        self._failed = failed_before
        return found

    @torch.inference_mode()
    def _run_rows(self, inputs: StepInputs) -> tuple[Tensor, ...]:
        step = StepTensors.of(inputs, self._table, ngram=self._ngram)
        if inputs.longest_draft:
            step.take_guesses(self._model.draft(step.draft_batch(), self._caches.device))
        forward = step.forward_batch()
        logits = self._model.forward(forward, self._caches.device).logits
        if not len(inputs.ints["logit_rows"]):
            return (logits.new_zeros(0, dtype=torch.int64),)
        ints = inputs.ints
        rows = logits[ints["choices"]] if inputs.has_prompt_rows else logits
        positions = forward.positions[ints["logit_rows"][ints["choices"]]] + 1
        choice = sampling.choose(rows, positions, inputs.rules, self._ops)
        accepted = step.verify(choice)
        packed = torch.cat((choice.token_ids, choice.is_finite.long(), accepted))
        if not len(ints["logprob_rows"]):
            return (packed,)
        return (packed, *_logprobs(inputs, logits, choice.token_ids, self._ops))


def _most_blocks(resolved: ResolvedConfig, caches: DeviceCaches) -> int:
    """Blocks of the longest sequence; where steps are padded, of the widest context."""
    block_tokens = caches.device.block_tokens
    longest = min(caches.blocks * block_tokens, resolved.max_model_len)
    if caches.spare is not None:
        longest = context_bucket(longest + resolved.draft_length + 1)
    return -(-longest // block_tokens)


def _logprobs(inputs: StepInputs, logits: Tensor, chosen: Tensor, ops: Ops) -> LogprobRows:
    ints = inputs.ints
    choices, token_ids = ints["logprob_choices"], ints["logprob_tokens"]
    if len(chosen):
        token_ids = torch.where(choices < 0, token_ids, chosen[choices.clamp(min=0)])
    return ops.log_probabilities(logits, ints["logprob_rows"], token_ids, inputs.top_logprobs)


def _choosing_ops(resolved: ResolvedConfig, accelerator: Accelerator) -> Ops:
    """Operations on logits: no shape of a model but its dtype decides what can run them."""
    if resolved.kernels is KernelChoice.REFERENCE:
        return REFERENCE
    shape = ModelShape(dtype=resolved.dtype, width=1, head_dim=1, streams=1)
    return resolve(accelerator.target(), shape, resolved.kernels).ops
