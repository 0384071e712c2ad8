"""Runs the steps of one replica on one device: draft, forward, choose, verify.

A step is built on the host and submitted; nothing it does waits for the host, nor the host for
it, until its results are asked for. What the next step needs of it stays on the device, in the
request table. Captured graphs of decode steps will live in `engine/graphs.py`: the buffers
that a step reads are those of the staging ring, and its rows can be padded there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from engine import logprobs, sampling
from engine.cache.storage import CacheStorage
from engine.errors import EngineError
from engine.request_table import RequestTable
from engine.step_inputs import StepInputsBuilder
from engine.step_results import results_of
from engine.step_tensors import StepTensors

if TYPE_CHECKING:
    from torch import Tensor

    from engine.accelerator.interface import Accelerator, Ticket
    from engine.logprobs import LogprobRows
    from engine.models.protocol import Model
    from engine.resolution import ResolvedConfig
    from engine.step import CacheMove, ScheduledBatch, SequenceResult
    from engine.step_inputs import StepInputs


@dataclass(frozen=True, kw_only=True)
class DeviceCaches:
    """Cache rows on the device, and in host memory for sequences that were preempted."""

    device: CacheStorage
    host: CacheStorage | None

    def swap(self, batch: ScheduledBatch) -> None:
        """Copy what leaves the device, then what comes back."""
        for move in batch.swaps_out:
            assert self.host is not None, "a copy has somewhere to go"
            self.device.copy_sequence(self.host, *_from_device(move))
        for move in batch.swaps_in:
            assert self.host is not None, "a copy comes from somewhere"
            (blocks, slot), (host_blocks, host_slot) = _from_device(move)
            self.host.copy_sequence(self.device, (host_blocks, host_slot), (blocks, slot))


def _from_device(move: CacheMove) -> tuple[tuple[list[int], int], tuple[list[int], int]]:
    there = ([block.id for block in move.host.blocks], move.host.slot.id)
    return ([block.id for block in move.blocks], move.slot.id), there


@dataclass(frozen=True, slots=True)
class LaunchedStep:
    """A step that the device has been given."""

    batch: ScheduledBatch
    inputs: StepInputs | None  # None: it only moves caches
    ticket: Ticket

    def wait(self) -> list[SequenceResult]:
        """Block until it is done; one result for each of its sequences, in order.

        RuntimeError, MemoryError or EngineError when the device failed.
        """
        found = self.ticket.wait()
        if self.inputs is None:
            return []
        return results_of(self.inputs, *found)


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
        self._builder = StepInputsBuilder(
            ngram=facts.ngram,
            replay_mode=resolved.replay_mode,
            eos_token_id=facts.eos_token_id,
            device=accelerator.device,
        )
        self._table = RequestTable(
            rows=storage.slots,
            ngram=facts.ngram,
            draft_length=resolved.draft_length,
            most_blocks=min(storage.blocks, -(-resolved.max_model_len // storage.block_tokens)),
            device=accelerator.device,
        )

    def launch(self, batch: ScheduledBatch) -> LaunchedStep:
        """Give a step to the device; at most one before it may be unfinished."""
        inputs = None
        if batch.sequences:
            inputs = self._builder.build(batch.sequences, self._table)
            self.decoder_rows_run += inputs.decoder_rows
            self.decoder_rows_skipped += batch.tokens - inputs.decoder_rows
        return LaunchedStep(
            batch, inputs, self._accelerator.submit(lambda: self._run(batch, inputs))
        )

    def _run(self, batch: ScheduledBatch, inputs: StepInputs | None) -> tuple[Tensor, ...]:
        """The device's part. What raises here spoils what continues it."""
        failed_before, self._failed = self._failed, batch.number
        if failed_before == batch.number - 1 and any(e.is_ahead for e in batch.sequences):
            raise EngineError("the step before it failed")
        self._caches.swap(batch)
        found = () if inputs is None else self._run_rows(inputs)
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
        choice = sampling.choose(rows, positions, inputs.rules)
        accepted = step.verify(choice)
        packed = torch.cat((choice.token_ids, choice.is_finite.long(), accepted))
        if not len(ints["logprob_rows"]):
            return (packed,)
        return (packed, *_logprobs(inputs, logits, choice.token_ids))


def _logprobs(inputs: StepInputs, logits: Tensor, chosen: Tensor) -> LogprobRows:
    ints = inputs.ints
    choices, token_ids = ints["logprob_choices"], ints["logprob_tokens"]
    if len(chosen):
        token_ids = torch.where(choices < 0, token_ids, chosen[choices.clamp(min=0)])
    return logprobs.gather(logits[ints["logprob_rows"]], token_ids, top=inputs.top_logprobs)
