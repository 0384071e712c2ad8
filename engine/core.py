"""One replica in this process: `add_request`, `step`, `abort`.

A step is `plan` (who runs what), `launch` (the device), `settle` (what clients hear). They run
one after the other; they are apart so that a launch can overlap the settling of the one before.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Protocol

from engine.accelerator.find import find_accelerator
from engine.admission import Admission, ServingLimits
from engine.cache.sizing import count_blocks
from engine.cache.storage import CacheStorage
from engine.choices import ReplayMode
from engine.config import EngineConfig, resolve
from engine.errors import EngineError
from engine.model_runner import ModelRunner
from engine.models.registry import CheckpointSource, torch_dtype
from engine.scheduler import Scheduler
from engine.sequence import Sequence
from engine.stats import EngineStats
from engine.step import SchedulerLimits

if TYPE_CHECKING:
    from collections.abc import Callable

    from engine.config import ResolvedConfig
    from engine.models.registry import ModelSource
    from engine.request import Request, RequestId, RequestOutput
    from engine.step import ScheduledBatch, SequenceResult

_NS = 1e-9

_log = logging.getLogger(__name__)


class Serving(Protocol):
    """What serves requests step by step: an engine, or a group of replicas."""

    limits: ServingLimits

    def check(self, request: Request) -> None:
        """Raise what `add_request` would."""
        ...

    def add_request(self, request: Request) -> None:
        """Queue a request."""
        ...

    def abort(self, request_id: RequestId) -> bool:
        """End a request early."""
        ...

    def step(self) -> list[RequestOutput]:
        """Do some work; what clients should hear."""
        ...

    def has_unfinished(self) -> bool:
        """Whether more steps are needed."""
        ...

    def replica_of(self, request_id: RequestId) -> int:
        """Which replica serves a request."""
        ...

    def stats(self) -> EngineStats:
        """Counters so far."""
        ...

    def close(self) -> None:
        """Give everything back."""
        ...


class Engine:
    """A model, its caches and their schedule. Not thread safe; `AsyncEngine` gives it a thread.

    ConfigError, CheckpointError and CapacityError come from the constructor, before any
    request. When the device fails in a step, the requests of that step end with
    FinishReason.ERROR and the engine serves on; any other exception is a bug and propagates.
    """

    def __init__(
        self,
        config: EngineConfig,
        *,
        source: ModelSource | None = None,
        device_index: int = 0,
        clock_ns: Callable[[], int] = time.perf_counter_ns,
    ) -> None:
        source = source or CheckpointSource()
        accelerator = find_accelerator(config.accelerator, index=device_index)
        facts = source.facts(config)
        self.resolved = resolve(config, facts, accelerator.kind)
        model = source.load(self.resolved, accelerator)
        assert model.facts == facts, "the model differs from what its configuration promised"
        groups = model.cache_groups(max_backtrack=self.resolved.ring_slack)
        dtype = torch_dtype(self.resolved.dtype)
        blocks = count_blocks(
            groups, self.resolved, dtype=dtype, free_bytes=accelerator.memory_free_bytes()
        )
        caches = CacheStorage.allocate(
            groups,
            blocks=blocks,
            block_tokens=config.block_tokens,
            slots=config.max_num_seqs,
            dtype=dtype,
            device=accelerator.device,
        )
        self._clock_ns = clock_ns
        self._runner = ModelRunner(model, caches, self.resolved, accelerator.device)
        self._scheduler = Scheduler(_scheduler_limits(self.resolved, blocks, facts.eos_token_id))
        longest = self._scheduler.limits.longest_sequence
        self.limits = ServingLimits(facts=facts, longest_sequence=longest)
        self._admission = Admission(self.limits, config.seed)
        self._steps = 0
        self._plan_ns = self._launch_ns = self._settle_ns = 0

    def check(self, request: Request) -> None:
        """Raise what `add_request` would, without queueing: RequestError and below."""
        self._admission.check(request)

    def add_request(self, request: Request) -> None:
        """Queue a request. RequestError names the field and remedy.

        A request with `prompt_logprobs` runs every prompt row through the decoder half
        (`decoder_start` 0), since a truncated row has no logits: its text is that of replay
        mode `off`.
        """
        admitted = self._admission.admit(request)
        prompt = admitted.prompt_token_ids
        longest = self.limits.longest_sequence
        seed = admitted.sampling.seq_seed
        assert seed is not None, "admission gives a seed"
        self._scheduler.add(
            Sequence(
                request=admitted,
                seed=seed,
                tokens=list(prompt),
                last_length=min(len(prompt) + admitted.sampling.max_tokens, longest),
                decoder_start=_decoder_start(admitted, self.resolved),
                arrived_ns=self._clock_ns(),
            )
        )

    def abort(self, request_id: RequestId) -> bool:
        """End a request early; its last output (FinishReason.ABORT) comes from the next step.

        False if it is unknown or has ended already.
        """
        return self._scheduler.abort(request_id, self._clock_ns())

    def has_unfinished(self) -> bool:
        """Whether a request is under way or an output is still to be returned."""
        return self._scheduler.has_unfinished()

    def step(self) -> list[RequestOutput]:
        """Run one step and return its outputs; [] when there is nothing to do."""
        batch = self.plan()
        results = self.launch(batch) if batch.sequences else None
        outputs = self.settle(batch, results) if results is not None else []
        return self._scheduler.collect() + outputs

    def plan(self) -> ScheduledBatch:
        """Decide who runs what."""
        start = self._clock_ns()
        batch = self._scheduler.schedule(start)
        self._plan_ns += self._clock_ns() - start
        return batch

    def launch(self, batch: ScheduledBatch) -> list[SequenceResult] | None:
        """Run a plan on the device and choose tokens; None if the device failed.

        The sequences of a failed launch have ended with FinishReason.ERROR.
        """
        start = self._clock_ns()
        try:
            return self._runner.run(batch)
        except (RuntimeError, MemoryError, EngineError) as error:  # as torch reports a device
            _log.exception("launch failed sequences=%d", len(batch.sequences))
            self._scheduler.fail(batch, f"the step failed: {error}", self._clock_ns())
            return None
        finally:
            self._launch_ns += self._clock_ns() - start

    def settle(self, batch: ScheduledBatch, results: list[SequenceResult]) -> list[RequestOutput]:
        """Take in what a launch found; what clients should hear of it."""
        start = self._clock_ns()
        outputs = self._scheduler.settle(batch, results, start)
        self._steps += 1
        self._settle_ns += self._clock_ns() - start
        return outputs

    def replica_of(self, _request_id: RequestId) -> int:
        """There is one replica, 0."""
        return 0

    def check_integrity(self) -> None:
        """Assert that blocks, slots and counts add up; between steps only."""
        self._scheduler.check_integrity()

    def stats(self) -> EngineStats:
        """Counters so far."""
        scheduler = self._scheduler
        return EngineStats(
            running=scheduler.running,
            waiting=scheduler.waiting,
            blocks_used=scheduler.blocks_used,
            blocks_total=scheduler.limits.blocks,
            preemptions=scheduler.preemptions,
            steps=self._steps,
            plan_s=self._plan_ns * _NS,
            launch_s=self._launch_ns * _NS,
            settle_s=self._settle_ns * _NS,
            prompt_tokens=scheduler.prompt_tokens,
            output_tokens=scheduler.output_tokens,
            proposed_tokens=scheduler.proposed_tokens,
            accepted_tokens=scheduler.accepted_tokens,
            decoder_rows_run=self._runner.decoder_rows_run,
            decoder_rows_skipped=self._runner.decoder_rows_skipped,
        )

    def close(self) -> None:
        """Nothing outlives the object itself."""


def _scheduler_limits(resolved: ResolvedConfig, blocks: int, eos: int) -> SchedulerLimits:
    config = resolved.config
    return SchedulerLimits(
        max_num_seqs=config.max_num_seqs,
        max_num_batched_tokens=config.max_num_batched_tokens,
        block_tokens=config.block_tokens,
        blocks=blocks,
        max_model_len=resolved.max_model_len,
        draft_length=resolved.draft_length,
        eos_token_id=eos,
    )


def _decoder_start(request: Request, resolved: ResolvedConfig) -> int:
    if resolved.replay_mode is ReplayMode.OFF or request.sampling.prompt_logprobs:
        return 0
    return max(0, len(request.prompt_token_ids) - resolved.replay_keep_tokens)
