"""Who runs what in the next step: continuous batching over slots and blocks, without torch.

Order of a step: one token for each sequence that decodes, oldest first; drafts for them, dealt
round by round, so that no one's drafts keep another's token waiting; sequences that are still
being prefilled, oldest first, by chunks; then waiting ones, in order of arrival. When blocks run
out, the youngest running sequence that this step has not placed yet, and that is younger than
the one in need, is preempted: it gives everything back, keeps its tokens, and replays them
later as if they were prompt. The oldest sequence can preempt all others, and no sequence may
grow past the pool, so some sequence advances in every step.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from engine.cache.blocks import Pool
from engine.errors import RequestError
from engine.request import FinishReason, RequestOutput
from engine.sequence import Sequence, SequenceState, check_prompt_fits
from engine.step import StepPlan

if TYPE_CHECKING:
    from collections.abc import Sequence as Many

    from engine.cache.blocks import Handle
    from engine.request import RequestId
    from engine.step import (
        ScheduledBatch,
        ScheduledSequence,
        SchedulerLimits,
        SequenceResult,
    )


class Scheduler:
    """Owns the sequences, the slots and the blocks of one replica. Not thread safe."""

    def __init__(self, limits: SchedulerLimits) -> None:
        self.limits = limits
        self.preemptions = 0
        self.prompt_tokens = 0  # run, replays included
        self.output_tokens = 0  # delivered
        self.proposed_tokens = 0
        self.accepted_tokens = 0
        self._blocks = Pool(limits.blocks)
        self._slots = Pool(limits.max_num_seqs)
        self._waiting: deque[Sequence] = deque()
        self._running: list[Sequence] = []  # oldest first
        self._unfinished: dict[RequestId, Sequence] = {}
        self._undelivered: list[RequestOutput] = []

    @property
    def waiting(self) -> int:
        """Sequences without a slot."""
        return len(self._waiting)

    @property
    def running(self) -> int:
        """Sequences with a slot."""
        return len(self._running)

    @property
    def blocks_used(self) -> int:
        """Blocks that sequences hold."""
        return self._blocks.used

    def has_unfinished(self) -> bool:
        """Whether a sequence is under way, or an output not collected yet."""
        return bool(self._unfinished or self._undelivered)

    def add(self, sequence: Sequence) -> None:
        """Queue a sequence.

        PromptTooLongError: no room for one generated token. RequestError: the id is in use.
        """
        where = f"request {sequence.request.request_id}"
        if sequence.request.request_id in self._unfinished:
            raise RequestError("the id is in use.", where=where, remedy="Use one id a request.")
        check_prompt_fits(sequence.prompt_tokens, self.limits.longest_sequence, where=where)
        self._unfinished[sequence.request.request_id] = sequence
        self._waiting.append(sequence)

    def abort(self, request_id: RequestId, time_ns: int) -> bool:
        """End a sequence early; False if there is none. `collect` returns its last output."""
        return self._end_early(request_id, time_ns, FinishReason.ABORT, None)

    def fail(self, batch: ScheduledBatch, error: str, time_ns: int) -> None:
        """End every sequence of a step that could not be run."""
        for entry in batch.sequences:
            request_id = entry.sequence.request.request_id
            self._end_early(request_id, time_ns, FinishReason.ERROR, error)

    def collect(self) -> list[RequestOutput]:
        """Outputs of sequences that ended outside `settle`, once."""
        outputs, self._undelivered = self._undelivered, []
        return outputs

    def schedule(self, time_ns: int) -> ScheduledBatch:
        """Plan a step: take slots and blocks, preempt where they run out."""
        plan = StepPlan(budget=self.limits.max_num_batched_tokens)
        decoding = [s for s in self._running if s.is_decoding]
        prefilling = [s for s in self._running if not s.is_decoding]
        self._place_all(decoding, plan)
        self._deal_drafts(plan)
        self._place_all(prefilling, plan)
        if not plan.is_short_of_blocks:
            self._admit(plan, time_ns)
        assert plan.known or not self._unfinished, "nothing to run, yet something is unfinished"
        return plan.batch()

    def settle(
        self, batch: ScheduledBatch, results: Many[SequenceResult], time_ns: int
    ) -> list[RequestOutput]:
        """Take in the results of a step, in its order; returns what clients should hear."""
        outputs: list[RequestOutput] = []
        for entry, result in zip(batch.sequences, results, strict=True):
            if entry.sequence.state is SequenceState.RUNNING:
                output = self._settle_one(entry, result, time_ns)
                if output is not None:
                    outputs.append(output)
        return outputs

    def check_integrity(self) -> None:
        """Assert that every block and slot has one owner, and that the counts sum up."""
        self._blocks.check_integrity([b for s in self._running for b in s.blocks])
        self._slots.check_integrity([s.slot for s in self._running if s.slot is not None])
        assert self._slots.used == len(self._running)
        assert all(not s.blocks and s.slot is None for s in self._waiting)
        assert len(self._unfinished) == len(self._running) + len(self._waiting)

    # -- placing

    def _place_all(self, sequences: list[Sequence], plan: StepPlan) -> None:
        for sequence in sequences:
            if plan.budget and sequence.state is SequenceState.RUNNING:
                known = min(len(sequence.tokens) - sequence.computed, plan.budget)
                if self._make_room(sequence, known, plan):
                    self._grow(sequence, sequence.computed + known)
                    plan.place(sequence, known)
                else:
                    plan.is_short_of_blocks = True

    def _make_room(self, sequence: Sequence, tokens: int, plan: StepPlan) -> bool:
        while self._room(sequence) < tokens:
            victim = self._victim(sequence, plan)
            if victim is None:
                return False
            self._preempt(victim)
        return True

    def _deal_drafts(self, plan: StepPlan) -> None:
        """One draft each, oldest first, and again, while budget and free blocks last."""
        for dealt in range(self.limits.draft_length):
            for sequence in plan.known:
                rows = plan.known[sequence] + dealt + 1
                wants = plan.drafts[sequence] == dealt < sequence.can_draft
                if wants and plan.budget and self._room(sequence) >= rows:
                    self._grow(sequence, sequence.computed + rows)
                    plan.draft(sequence)

    def _room(self, sequence: Sequence) -> int:
        blocks = len(sequence.blocks) + self._blocks.available
        return blocks * self.limits.block_tokens - sequence.computed

    def _grow(self, sequence: Sequence, tokens: int) -> None:
        missing = self._blocks_for(tokens) - len(sequence.blocks)
        if missing > 0:
            sequence.blocks.extend(self._blocks.take(missing))

    def _blocks_for(self, tokens: int) -> int:
        return -(-tokens // self.limits.block_tokens)

    def _victim(self, needy: Sequence, plan: StepPlan) -> Sequence | None:
        for candidate in reversed(self._running):
            if candidate is needy:
                return None
            if candidate not in plan.known:
                return candidate
        return None

    def _preempt(self, sequence: Sequence) -> None:
        self._give_back(sequence)
        sequence.computed = 0
        sequence.state = SequenceState.WAITING
        sequence.preemptions += 1
        self.preemptions += 1
        self._waiting.appendleft(sequence)

    def _give_back(self, sequence: Sequence) -> None:
        self._running.remove(sequence)
        for block in sequence.blocks:
            self._blocks.release(block)
        sequence.blocks = []
        self._slots.release(_slot(sequence))
        sequence.slot = None

    def _admit(self, plan: StepPlan, time_ns: int) -> None:
        while self._waiting and plan.budget and self._slots.available:
            sequence = self._waiting[0]
            known = min(len(sequence.tokens), plan.budget)
            # One that was preempted comes back when it fits whole, else it would thrash.
            needed = len(sequence.tokens) if sequence.preemptions else known
            if self._blocks_for(needed) > self._blocks.available:
                break
            self._waiting.popleft()
            self._running.append(sequence)
            sequence.state = SequenceState.RUNNING
            sequence.slot = self._slots.take(1)[0]
            if sequence.first_scheduled_ns is None:
                sequence.first_scheduled_ns = time_ns
            self._grow(sequence, known)
            plan.place(sequence, known)

    # -- settling

    def _settle_one(
        self, entry: ScheduledSequence, result: SequenceResult, time_ns: int
    ) -> RequestOutput | None:
        sequence = entry.sequence
        if result.error is not None:
            self._finish(sequence)
            return sequence.last_output(time_ns, FinishReason.ERROR, result.error)
        self.prompt_tokens += max(0, min(entry.known, sequence.prompt_tokens - entry.first))
        sequence.computed += entry.known
        sequence.prompt_logprobs.update(result.prompt_logprobs)
        if not result.token_ids:
            return None
        return self._deliver(entry, result, time_ns)

    def _deliver(
        self, entry: ScheduledSequence, result: SequenceResult, time_ns: int
    ) -> RequestOutput:
        sequence = entry.sequence
        is_first = sequence.output_tokens == 0
        token_ids, reason = sequence.until_stop(result.token_ids, self.limits.eos_token_id)
        accepted = min(result.accepted, len(token_ids))
        sequence.tokens.extend(token_ids)
        sequence.computed += result.accepted
        self.output_tokens += len(token_ids)
        self.proposed_tokens += entry.drafts
        self.accepted_tokens += accepted
        if reason is not None:
            self._finish(sequence)
        return RequestOutput(
            request_id=sequence.request.request_id,
            token_ids=token_ids,
            time_ns=time_ns,
            finish_reason=reason,
            logprobs=result.logprobs[: len(token_ids)],
            prompt_logprobs=sequence.whole_prompt_logprobs() if is_first else None,
            proposed=entry.drafts,
            accepted=accepted,
            verify_steps=int(entry.drafts > 0),
            arrived_ns=sequence.arrived_ns,
            first_scheduled_ns=sequence.first_scheduled_ns,
            preemptions=sequence.preemptions,
        )

    def _finish(self, sequence: Sequence) -> None:
        if sequence.state is SequenceState.RUNNING:
            self._give_back(sequence)
        else:
            self._waiting.remove(sequence)
        sequence.state = SequenceState.FINISHED
        del self._unfinished[sequence.request.request_id]

    def _end_early(
        self, request_id: RequestId, time_ns: int, reason: FinishReason, error: str | None
    ) -> bool:
        sequence = self._unfinished.get(request_id)
        if sequence is None:
            return False
        self._finish(sequence)
        self._undelivered.append(sequence.last_output(time_ns, reason, error))
        return True


def _slot(sequence: Sequence) -> Handle:
    assert sequence.slot is not None, "a running sequence has a slot"
    return sequence.slot
