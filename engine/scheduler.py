"""Keeps the sequences of one replica: what steps run of them, and what came of it. No torch.

Steps are planned while the one before is in flight, so plans count with the most that it may
find; `settle` corrects them. First is who arrived first, or would have with the head start of
its priority: nobody waits for ever.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import chain, repeat
from typing import TYPE_CHECKING

from engine.errors import RequestError
from engine.holdings import Holdings
from engine.planner import Planner
from engine.queues import Queues
from engine.request import FinishReason, RequestOutput
from engine.sequence import Sequence, SequenceState, check_prompt_fits
from engine.stats import SchedulerCounts
from engine.step import ScheduledBatch
from engine.tuples import new_tuple

if TYPE_CHECKING:
    from concurrent.futures import Future

    from engine.request import RequestId
    from engine.step import SchedulerLimits, SequenceFields, StepPlan, StepResults


class Scheduler:
    """Owns the sequences, the slots and the blocks of one replica. Not thread safe."""

    def __init__(self, limits: SchedulerLimits) -> None:
        self.limits = limits
        self.counts = SchedulerCounts()
        self._holdings = Holdings(limits)
        self._queues = Queues()
        self._planner = Planner(limits, self._queues, self._holdings, self.counts)
        self._in_flight: list[ScheduledBatch] = []  # oldest first
        self._undelivered: list[RequestOutput] = []
        self._planned = 0

    @property
    def waiting(self) -> int:
        """Sequences without a slot."""
        return len(self._queues.waiting) + len(self._queues.preparing)

    @property
    def running(self) -> int:
        """Sequences with a slot."""
        return len(self._queues.running)

    @property
    def blocks_used(self) -> int:
        """Blocks that sequences, or steps in flight, hold."""
        return self._holdings.blocks.used

    @property
    def host_blocks_used(self) -> int:
        """Blocks of preempted sequences in host memory."""
        return self._holdings.host_blocks_used

    def has_unfinished(self) -> bool:
        """Whether a sequence or a step is under way, or an output not collected yet."""
        return bool(self._queues.unfinished or self._undelivered or self._in_flight)

    def preparations(self) -> list[Future[object]]:
        """What everything that is unfinished waits for; [] when there is a step to run."""
        preparing = self._queues.preparing
        if self._in_flight or len(preparing) < len(self._queues.unfinished):
            return []
        return [s.preparing for s in preparing if s.preparing is not None]

    def add(self, sequence: Sequence) -> None:
        """Queue a sequence.

        PromptTooLongError: no room for one generated token. RequestError: the id is in use.
        """
        where = f"request {sequence.request.request_id}"
        if sequence.request.request_id in self._queues.unfinished:
            raise RequestError("the id is in use.", where=where, remedy="Use one id a request.")
        check_prompt_fits(sequence.prompt_tokens, self.limits.longest_sequence, where=where)
        asked = sequence.request.sampling
        eos = () if asked.ignore_eos else (self.limits.eos_token_id,)
        sequence.stops = _shared(frozenset((*asked.stop_token_ids, *eos)))
        self._queues.add(sequence)

    def abort(self, request_id: RequestId, time_ns: int) -> bool:
        """End a sequence early; False if there is none. `collect` returns its last output."""
        sequence = self._queues.unfinished.get(request_id)
        if sequence is not None:
            self._end_early(sequence, time_ns, FinishReason.ABORT)
        return sequence is not None

    def collect(self) -> list[RequestOutput]:
        """Outputs of sequences that ended outside `settle`, once."""
        outputs, self._undelivered = self._undelivered, []
        return outputs

    def schedule(self, time_ns: int) -> ScheduledBatch:
        """Plan a step. It counts as in flight from here on, if it is not empty."""
        for sequence in self._queues.take_late(time_ns):
            self._end_early(sequence, time_ns, FinishReason.TIMEOUT)
        self._wake(time_ns)
        batch = self._commit(self._planner.plan(self._planned, time_ns))
        if not batch.is_empty:
            self._planned += 1
            self._in_flight.append(batch)
        idle = len(self._queues.preparing) == len(self._queues.unfinished)
        assert self._in_flight or idle, "nothing to run, yet something is unfinished"
        return batch

    def settle(
        self, batch: ScheduledBatch, results: StepResults, time_ns: int
    ) -> list[RequestOutput]:
        """Take in the results of the oldest step in flight; returns what clients should hear."""
        assert batch is self._in_flight[0], "steps settle in the order of their plans"
        self._in_flight.remove(batch)
        if batch.decoding < len(batch.fields):
            self._settle_prompts(batch, results)
        if any(batch.columns.drafts):
            self._take_back(batch, results)
        outputs = self._deliver(batch, results, time_ns)
        self._holdings.settle(batch.number)
        return outputs

    def fail(self, batch: ScheduledBatch, error: str, time_ns: int) -> None:
        """End every sequence of a step in flight that the device could not run, or never got."""
        is_oldest = batch is self._in_flight[0]
        self._in_flight.remove(batch)
        for touched in (*batch.sequences, *batch.swaps_out, *batch.swaps_in):
            if touched.sequence.state is not SequenceState.FINISHED:
                self._end_early(touched.sequence, time_ns, FinishReason.ERROR, error)
        if is_oldest:
            self._holdings.settle(batch.number)

    def check_idle(self) -> None:
        """Assert, in no time, that nothing leaked; when nothing is unfinished only."""
        assert self._holdings.is_empty, "blocks or slots leaked"
        assert not (self._queues.running or self._queues.waiting or self._queues.preparing)

    def check_integrity(self) -> None:
        """Assert that every block and slot has one owner, and that the counts sum up."""
        everyone = self._queues.unfinished.values()
        self._queues.check_integrity()
        self._holdings.check_integrity(everyone, self._in_flight)
        for sequence in everyone:
            steps = [e for b in self._in_flight for e in b.sequences if e.sequence is sequence]
            sampling = [entry for entry in steps if entry.samples]
            drafts = sum(entry.drafts for entry in sampling)
            assert sequence.least_tokens == len(sequence.tokens) + len(sampling)
            assert sequence.most_tokens == sequence.least_tokens + drafts
            assert self._holdings.is_in_flight(sequence) == bool(steps)
            assert sequence.computed < sequence.most_tokens

    def _commit(self, plan: StepPlan) -> ScheduledBatch:
        """Fix what each sequence runs, and count with the most that may come of it."""
        number, fields = plan.number, list["SequenceFields"]()
        dealt = chain(plan.drafts.values(), repeat(0))
        for (sequence, known), drafts in zip(plan.known.items(), dealt, strict=False):
            first, settled, blocks = sequence.computed, len(sequence.tokens), sequence.blocks
            slot, least, most = sequence.slot, sequence.least_tokens, sequence.most_tokens
            assert slot is not None, "what runs has a slot"
            samples = first + known == most
            fields.append((
                sequence, first, known, drafts, settled, samples, least > settled,
                slot, blocks, len(blocks),
            ))  # fmt: skip
            sequence.computed = first + known + drafts
            sequence.last_step = number
            if samples:
                sequence.least_tokens = least + 1
                sequence.most_tokens = most + 1 + drafts
        return ScheduledBatch(
            number,
            tuple(fields),
            decoding=plan.decoding,
            tokens=self.limits.max_num_batched_tokens - plan.budget,
            swaps_out=tuple(plan.swaps_out),
            swaps_in=tuple(plan.swaps_in),
        )

    def _settle_prompts(self, batch: ScheduledBatch, results: StepResults) -> None:
        own = slice(batch.decoding, None)
        found = zip(results.prompt_logprobs[own], results.errors[own], strict=True)
        for entry, (logprobs, error) in zip(batch.sequences[own], found, strict=True):
            sequence = entry.sequence
            rows = min(entry.known, sequence.prompt_tokens - entry.first)
            if rows > 0 and error is None and sequence.state is not SequenceState.FINISHED:
                self.counts.prompt_tokens += rows
                sequence.prompt_logprobs.update(logprobs)

    def _take_back(self, batch: ScheduledBatch, results: StepResults) -> None:
        """Lengths counted with all drafts; now some fell."""
        scheduled = batch.columns
        for sequence, drafts, stand in zip(
            scheduled.sequence, scheduled.drafts, results.accepted, strict=True
        ):
            fell = drafts - stand
            sequence.least_tokens += stand
            sequence.most_tokens -= fell
            if sequence.computed:  # else it was preempted since, and starts anew
                sequence.computed -= fell

    def _deliver(
        self, batch: ScheduledBatch, results: StepResults, time_ns: int
    ) -> list[RequestOutput]:
        """Hand out the tokens of a step; a loop of few calls, as hundreds go through it."""
        scheduled, outputs, finished = batch.columns, list[RequestOutput](), SequenceState.FINISHED
        delivered = proposed = stood = 0
        found = zip(
            results.token_ids, results.accepted, results.logprobs, results.errors, strict=True
        )
        for sequence, drafts, (token_ids, accepted, logprobs, error) in zip(
            scheduled.sequence, scheduled.drafts, found, strict=True
        ):
            if sequence.state is finished:
                self.counts.wasted_steps += 1
                continue
            if error is not None:
                self._finish(sequence)
                outputs.append(sequence.last_output(time_ns, FinishReason.ERROR, error))
                continue
            if not token_ids:
                continue
            tokens, reason = sequence.tokens, None
            is_first = len(tokens) == sequence.prompt_tokens
            if sequence.stop_strings is not None or not sequence.stops.isdisjoint(token_ids):
                token_ids, reason = sequence.until_stop(token_ids)
                logprobs, accepted = logprobs[: len(token_ids)], min(accepted, len(token_ids))
            tokens += token_ids
            delivered += len(token_ids)
            proposed += drafts
            stood += accepted
            if reason is not None or len(tokens) >= sequence.last_length:
                reason = self._end(sequence, reason)
            outputs.append(
                new_tuple(RequestOutput, (
                    sequence.request_id, token_ids, time_ns, reason, error, logprobs,
                    sequence.whole_prompt_logprobs() if is_first else None,
                    drafts, accepted, 1 if drafts else 0,
                    sequence.arrived_ns, sequence.first_scheduled_ns, sequence.preemptions,
                    0,  # cached_tokens
                ))
            )  # fmt: skip
        self.counts.output_tokens += delivered
        self.counts.proposed_tokens += proposed
        self.counts.accepted_tokens += stood
        return outputs

    def _end(self, sequence: Sequence, reason: FinishReason | None) -> FinishReason:
        """Learn from a sequence that ended by itself, and let it go; why it ended."""
        self._planner.forecast.record(sequence)
        self._finish(sequence)
        return reason or FinishReason.LENGTH

    def _finish(self, sequence: Sequence) -> None:
        self._queues.move(sequence, SequenceState.FINISHED)
        self._holdings.give_back(sequence)
        if sequence.preparing is not None:
            sequence.preparing.cancel()

    def _end_early(
        self, sequence: Sequence, time_ns: int, reason: FinishReason, error: str | None = None
    ) -> None:
        self._finish(sequence)
        self._undelivered.append(sequence.last_output(time_ns, reason, error))

    def _wake(self, time_ns: int) -> None:
        """Queue what is ready, end what could not be prepared."""
        for sequence, preparing in self._queues.prepared():
            error = None if preparing.cancelled() else preparing.exception()
            if error is None and not preparing.cancelled():
                self._queues.move(sequence, SequenceState.WAITING)
                continue
            why = f"its preparation failed: {error or 'it was cancelled'}"
            self._end_early(sequence, time_ns, FinishReason.ERROR, why)


@lru_cache(maxsize=64)
def _shared(stops: frozenset[int]) -> frozenset[int]:
    """One set for all that end by the same tokens, as every step looks it up for each of them."""
    return stops
