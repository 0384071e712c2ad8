"""Which sequences a step runs, and how many rows of each: plans, without torch.

Order of a step: one token for each sequence that decodes, first come first served; drafts for
them, dealt round by round, so that no one's drafts keep another's token waiting, nor the next
chunk of a prompt; one chunk for each sequence that is being prefilled; then waiting ones. A
chunk ends at a multiple of `prefill_chunk_tokens` of its own sequence, whatever else is in the
batch, and waits for a step with room for all of it.

When blocks run out, the last running sequence that this step has not placed yet, and that
comes after the one in need, is preempted: its caches go to host memory where they fit, else
it replays its tokens later as if they were prompt. The first one can preempt all others, and
no sequence may grow past the pool, so some sequence advances.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.choices import AdmissionMode
from engine.forecast import LengthForecast
from engine.sequence import SequenceState, those_decoding
from engine.step import StepPlan

if TYPE_CHECKING:
    from engine.holdings import Holdings
    from engine.queues import Queues
    from engine.sequence import Sequence
    from engine.stats import SchedulerCounts
    from engine.step import SchedulerLimits


class Planner:
    """Plans steps over the queues and holdings of one replica; both are the scheduler's."""

    def __init__(
        self, limits: SchedulerLimits, queues: Queues, holdings: Holdings, counts: SchedulerCounts
    ) -> None:
        self.forecast = LengthForecast()
        self._limits = limits
        self._queues = queues
        self._holdings = holdings
        self._counts = counts
        self._promise: tuple[int, int] = (-1, 0)  # the moves when it was summed, and its blocks

    def plan(self, step: int, time_ns: int) -> StepPlan:
        """Choose the rows of step number `step`; takes slots and blocks, preempts."""
        plan = StepPlan(number=step, budget=self._limits.max_num_batched_tokens)
        running = self._queues.running
        decoding = those_decoding(running)
        prefilling: dict[Sequence, int] = {}
        if len(decoding) < len(running):
            prefilling = {s: self._next_known(s) for s in running if not s.is_decoding}
        self._place_decoding(decoding, plan)
        plan.decoding = len(plan.known)
        if self._limits.draft_length:
            self._deal_drafts(plan, self._next_chunk(prefilling))
        self._place_all(prefilling, plan)
        if plan.short is None:
            self._admit(plan, time_ns)
        return plan

    def _place_decoding(self, decoding: list[Sequence], plan: StepPlan) -> None:
        """Place all at once where one after the other would come to that."""
        holdings, block_tokens = self._holdings, self._limits.block_tokens
        growing = [s for s in decoding if s.computed >= len(s.blocks) * block_tokens]
        if len(decoding) > plan.budget or len(growing) > holdings.blocks.available:
            self._place_all(dict.fromkeys(decoding, 1), plan)
            return
        holdings.grow_all(growing)
        plan.place_newest(decoding)

    def _place_all(self, wanted: dict[Sequence, int], plan: StepPlan) -> None:
        """Place sequences in order, with the rows that each wants next."""
        block_tokens = self._limits.block_tokens
        for sequence, known in wanted.items():
            if sequence.state is not SequenceState.RUNNING:
                continue
            if known > plan.budget:
                break  # nobody overtakes
            if sequence.computed + known > len(sequence.blocks) * block_tokens:
                if not self._make_room(sequence, known, plan):
                    plan.lacks_blocks(sequence)
                    continue
                self._holdings.grow(sequence, sequence.computed + known)
            plan.place(sequence, known)

    def _next_known(self, sequence: Sequence) -> int:
        """Rows of its next step: the newest token, or the next chunk of what must be replayed."""
        chunk = self._limits.prefill_chunk_tokens
        boundary = (sequence.computed // chunk + 1) * chunk
        return min(boundary, sequence.most_tokens) - sequence.computed

    def _next_chunk(self, prefilling: dict[Sequence, int]) -> int:
        """Rows that the next chunk of a prompt wants; 0 where no prompt can have one."""
        waiting = self._queues.waiting[:1] if self._holdings.slots.available else []
        first = [*prefilling][:1] or [s for s in waiting if self._has_room(s)]
        return self._next_known(first[0]) if first else 0

    def _make_room(self, sequence: Sequence, tokens: int, plan: StepPlan) -> bool:
        """Whether its blocks, with those free or freed by preemption, hold `tokens` more rows.

        False leaves it where it is: there is no one to preempt, or what settles next will do.
        """
        blocks = self._holdings.blocks
        missing = self._holdings.missing(sequence, sequence.computed + tokens)
        if missing and not plan.may_take_blocks(sequence):
            return False
        while missing > blocks.available:
            ending = sum(len(s.blocks) for s in self._queues.running if s.will_end)
            if missing <= blocks.available + blocks.retiring + ending:
                return False
            victim = self._victim(sequence, plan)
            if victim is None:
                return False
            self._preempt(victim, plan)
        return True

    def _deal_drafts(self, plan: StepPlan, kept: int) -> None:
        """One draft each, in order, and again, while budget (but for `kept`) and blocks last."""
        if self._deal_all(plan, kept):
            return
        plan.drafts = dict.fromkeys(plan.known, 0)
        wanting = list(plan.known)
        for count in range(1, self._limits.draft_length + 1):
            wanting = [s for s in wanting if self._deal_one(s, count, plan, kept)]

    def _deal_all(self, plan: StepPlan, kept: int) -> bool:
        """Give everyone all drafts at once, where the rounds would come to that; else nothing."""
        most, holdings = self._limits.draft_length, self._holdings
        block_tokens = self._limits.block_tokens
        drafts: dict[Sequence, int] = {}
        growing: list[Sequence] = []
        for sequence, known in plan.known.items():
            wanted = sequence.last_length - sequence.most_tokens - 1  # `can_draft`, in line
            count = drafts[sequence] = most if wanted >= most else max(0, wanted)
            rows = sequence.computed + known + count
            if rows > len(sequence.blocks) * block_tokens:
                growing += [sequence] * holdings.missing(sequence, rows)
        is_tight = sum(drafts.values()) > plan.budget - kept
        if is_tight or plan.short is not None or len(growing) > holdings.blocks.available:
            return False
        holdings.grow_all(growing)
        plan.draft_all(drafts)
        return True

    def _deal_one(self, sequence: Sequence, count: int, plan: StepPlan, kept: int) -> bool:
        """Give a sequence its draft number `count`, if it wants it and there is room."""
        if plan.budget <= kept or sequence.can_draft < count:
            return False
        rows = sequence.computed + plan.known[sequence] + count
        missing = self._holdings.missing(sequence, rows)
        free = self._holdings.blocks.available if plan.may_take_blocks(sequence) else 0
        if missing > free:
            return False
        self._holdings.grow(sequence, rows)
        plan.draft(sequence)
        return True

    def _victim(self, needy: Sequence, plan: StepPlan) -> Sequence | None:
        for candidate in reversed(self._queues.running):
            if candidate is needy:
                return None
            if candidate not in plan.known and not candidate.will_end:
                return candidate
        return None

    def _preempt(self, sequence: Sequence, plan: StepPlan) -> None:
        move = self._holdings.swap_out(sequence, plan.number)
        if move is None:
            self._holdings.give_back(sequence)
            sequence.computed = 0
        else:
            plan.swaps_out.append(move)
            self._counts.swaps_out += 1
        sequence.preemptions += 1
        self._counts.preemptions += 1
        self._queues.move(sequence, SequenceState.WAITING)

    def _admit(self, plan: StepPlan, time_ns: int) -> None:
        while self._queues.waiting and self._holdings.slots.available:
            sequence = self._queues.waiting[0]
            known = self._next_known(sequence)
            if (
                self._holdings.is_in_flight(sequence)
                or known > plan.budget
                or not self._has_room(sequence)
            ):
                break
            promised = self._promised() + self._final_blocks(sequence)
            self._queues.move(sequence, SequenceState.RUNNING)
            self._promise = (self._queues.moves, promised)
            if sequence.host_copy is not None:
                plan.swaps_in.append(self._holdings.swap_in(sequence, plan.number))
            else:
                self._holdings.take_slot(sequence)
            if sequence.first_scheduled_ns is None:
                sequence.first_scheduled_ns = time_ns
            self._holdings.grow(sequence, sequence.computed + known)
            plan.place(sequence, known)

    def _promised(self) -> int:
        """Blocks that those which run are expected to hold in the end.

        Summed where one has come or gone since: with hundreds it takes as long as all else.
        """
        moves, promised = self._promise
        if moves != self._queues.moves:
            promised = sum(map(self._final_blocks, self._queues.running))
            self._promise = (self._queues.moves, promised)
        return promised

    def _final_blocks(self, sequence: Sequence) -> int:
        return self._limits.blocks_for(self.forecast.final_tokens(sequence))

    def _has_room(self, sequence: Sequence) -> bool:
        """Whether it fits now, and is expected to fit beside the others until they end."""
        limits = self._limits
        # One that was preempted comes back when it fits whole, else it would thrash.
        whole = sequence.preemptions > 0
        now = len(sequence.tokens) if whole else self._next_known(sequence)
        copied = sequence.host_copy.blocks if sequence.host_copy is not None else ()
        if max(limits.blocks_for(now), len(copied)) > self._holdings.blocks.available:
            return False
        if limits.admission is AdmissionMode.GREEDY or not self._queues.running:
            return True
        return self._promised() + self._final_blocks(sequence) <= limits.blocks
