"""One replica in this process: `add_request`, `step`, `abort`.

The loop is `plan(N) -> launch(N) -> settle(N - 1)`: while the device runs a step, the host
settles the one before and plans the one after. Without overlap, or on a device that does
nothing on its own, the same stages run in line: `plan(N) -> launch(N) -> settle(N)`.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from concurrent.futures import FIRST_COMPLETED, Future, wait
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

from engine.accelerator.cpu import check_products
from engine.accelerator.find import find_accelerator
from engine.admission import Admission, ServingLimits
from engine.assembly import allocate_caches, new_sequence, scheduler_limits
from engine.checkpoint_directory import resolve_model_dir
from engine.choices import AcceleratorKind
from engine.config import EngineConfig
from engine.errors import CheckpointError, EngineError, RequestError
from engine.model_runner import ModelRunner
from engine.models.registry import CheckpointSource
from engine.resolution import resolve
from engine.scheduler import Scheduler
from engine.stats import EngineStats
from engine.stop_strings import StopStrings
from engine.tokenizer import Tokenizer

if TYPE_CHECKING:
    from collections.abc import Callable

    from engine.accelerator.interface import Accelerator
    from engine.model_runner import LaunchedStep
    from engine.models.registry import ModelSource
    from engine.request import Request, RequestId, RequestOutput
    from engine.step import ScheduledBatch

_NS = 1e-9
_DEVICE_FAILURES = (RuntimeError, MemoryError, EngineError)  # as torch reports them
_PATIENCE_S = 0.01  # of a step that has nothing to run but requests that are being prepared

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
    request. When the device fails in a step, the requests of that step, and of one in flight
    behind it, end with FinishReason.ERROR and the engine serves on; any other exception is a
    bug and propagates. `accelerator` None finds the one that `config` names.
    """

    def __init__(
        self,
        config: EngineConfig,
        *,
        source: ModelSource | None = None,
        device_index: int = 0,
        clock_ns: Callable[[], int] = time.perf_counter_ns,
        accelerator: Accelerator | None = None,
    ) -> None:
        source = source or CheckpointSource()
        accelerator = accelerator or find_accelerator(config.accelerator, index=device_index)
        if accelerator.kind is AcceleratorKind.CPU:
            check_products()
        facts = source.facts(config)
        self.resolved = resolve(
            config,
            facts,
            accelerator.kind,
            runs_ahead=accelerator.runs_ahead,
            can_record=accelerator.recorder is not None,
        )
        for name, reason in self.resolved.reasons.items():
            _log.info("resolved %s=%s because=%r", name, getattr(self.resolved, name), reason)
        model = source.load(self.resolved, accelerator)
        assert model.facts == facts, "the model differs from what its configuration promised"
        caches = allocate_caches(model, self.resolved, accelerator)
        self._clock_ns = clock_ns
        self._runner = ModelRunner(model, caches, self.resolved, accelerator)
        limits = scheduler_limits(self.resolved, caches.blocks, facts.eos_token_id)
        self._scheduler = Scheduler(limits)
        self.limits = ServingLimits(facts=facts, longest_sequence=limits.longest_sequence)
        self._admission = Admission(self.limits, config.seed)
        self._depth = int(self.resolved.overlap)
        self._in_flight: deque[LaunchedStep] = deque()
        self._newest: ScheduledBatch | None = None
        self._steps = self._tokens = 0
        self._plan_ns = self._launch_ns = self._wait_ns = self._settle_ns = 0

    def check(self, request: Request) -> None:
        """Raise what `add_request` would, without queueing: RequestError and below."""
        self._admission.check(request)

    def add_request(self, request: Request, preparing: Future[object] | None = None) -> None:
        """Queue a request. RequestError names the field and remedy.

        One that is `preparing` (an image, a grammar) keeps no other waiting; it starts when the
        future is done, and ends with FinishReason.ERROR if that failed. A request with
        `prompt_logprobs` runs every prompt row through the decoder half (`decoder_start` 0),
        since a truncated row has no logits: its text is that of replay mode `off`.
        """
        admitted = self._admission.admit(request)
        self._scheduler.add(
            new_sequence(
                admitted,
                self.resolved,
                longest=self.limits.longest_sequence,
                arrived_ns=self._clock_ns(),
                preparing=preparing,
                stop_strings=self._stop_strings(admitted),
            )
        )

    def abort(self, request_id: RequestId) -> bool:
        """End a request early; its last output (FinishReason.ABORT) comes from the next step.

        False if it is unknown or has ended already.
        """
        return self._scheduler.abort(request_id, self._clock_ns())

    def has_unfinished(self) -> bool:
        """Whether a request or a step is under way, or an output is still to be returned."""
        return self._scheduler.has_unfinished()

    def step(self) -> list[RequestOutput]:
        """Run the loop once and return what clients should hear; [] when there is nothing to do.

        With overlap those are the outputs of the step launched by the call before.
        """
        batch = self.plan()
        if not batch.is_empty:
            self._in_flight.append(self.launch(batch))
        keep = 0 if batch.is_empty else self._depth
        outputs: list[RequestOutput] = []
        while len(self._in_flight) > keep:
            outputs += self.settle(self._in_flight.popleft())
        heard = self._scheduler.collect() + outputs
        if not self.has_unfinished():
            self._scheduler.check_idle()
        return heard

    def plan(self) -> ScheduledBatch:
        """Decide who runs what; waits a moment where all there is is still being prepared."""
        preparations = self._scheduler.preparations()
        if preparations:
            wait(preparations, timeout=_PATIENCE_S, return_when=FIRST_COMPLETED)
        start = self._clock_ns()
        batch = self._scheduler.schedule(start)
        self._plan_ns += self._clock_ns() - start
        return batch

    def launch(self, batch: ScheduledBatch) -> LaunchedStep:
        """Give a plan to the device."""
        start = self._clock_ns()
        try:
            launched = self._runner.launch(batch)
        except BaseException as error:
            self._scheduler.fail(batch, f"the step was not launched: {error}", self._clock_ns())
            raise
        self._newest = batch
        self._tokens += batch.tokens
        self._launch_ns += self._clock_ns() - start
        return launched

    def settle(self, launched: LaunchedStep) -> list[RequestOutput]:
        """Wait for a step and take in what it found; what clients should hear of it.

        The sequences of a step that failed end with FinishReason.ERROR.
        """
        start = self._clock_ns()
        batch = launched.batch
        try:
            results = launched.wait()
        except BaseException as error:
            _log.exception("step failed number=%d sequences=%d", batch.number, len(batch.fields))
            self._scheduler.fail(batch, f"the step failed: {error}", self._clock_ns())
            if not isinstance(error, _DEVICE_FAILURES):
                raise
            return []
        done = self._clock_ns()
        outputs = self._scheduler.settle(batch, results, done)
        self._steps += 1
        self._wait_ns += done - start
        self._settle_ns += self._clock_ns() - done
        return outputs

    def replica_of(self, _request_id: RequestId) -> int:
        """There is one replica, 0."""
        return 0

    def check_integrity(self) -> None:
        """Assert that blocks, slots and counts add up; between steps only."""
        self._scheduler.check_integrity()

    def stats(self) -> EngineStats:
        """Counters so far."""
        scheduler, newest = self._scheduler, self._newest
        return EngineStats(
            **vars(scheduler.counts),
            **vars(self._runner.count_graphs()),
            running=scheduler.running,
            waiting=scheduler.waiting,
            blocks_used=scheduler.blocks_used,
            blocks_total=scheduler.limits.blocks,
            host_blocks_used=scheduler.host_blocks_used,
            batch_tokens=newest.tokens if newest is not None else 0,
            batch_sequences=len(newest.fields) if newest is not None else 0,
            steps=self._steps,
            scheduled_tokens=self._tokens,
            plan_s=self._plan_ns * _NS,
            launch_s=self._launch_ns * _NS,
            wait_s=self._wait_ns * _NS,
            settle_s=self._settle_ns * _NS,
            decoder_rows_run=self._runner.decoder_rows_run,
            decoder_rows_skipped=self._runner.decoder_rows_skipped,
        )

    def close(self) -> None:
        """Nothing outlives the object itself."""

    def _stop_strings(self, request: Request) -> StopStrings | None:
        if not request.sampling.stop_strings:
            return None
        try:
            return StopStrings(request.sampling.stop_strings, self._tokenizer.bytes_of)
        except CheckpointError as error:
            raise RequestError(
                f"stop_strings need the text of tokens: {error}",
                where=f"request {request.request_id}",
                remedy="Use stop_token_ids with this checkpoint.",
            ) from error

    @cached_property
    def _tokenizer(self) -> Tokenizer:
        return Tokenizer.load(resolve_model_dir(self.resolved.config.model))
