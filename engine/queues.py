"""Where unfinished sequences stand, in the order in which they are served."""

from __future__ import annotations

import heapq
from bisect import insort
from operator import attrgetter
from typing import TYPE_CHECKING

from engine.request import PRIORITY_HEAD_START_S
from engine.sequence import Sequence, SequenceState

if TYPE_CHECKING:
    from concurrent.futures import Future

    from engine.request import RequestId

_order = attrgetter("order")


class Queues:
    """The sequences of one replica by state. Every change of state goes through here."""

    def __init__(self) -> None:
        self.moves = 0  # changes of state so far
        self.unfinished: dict[RequestId, Sequence] = {}
        self._by_state: dict[SequenceState, list[Sequence]] = {
            SequenceState.PREPARING: [],
            SequenceState.WAITING: [],
            SequenceState.RUNNING: [],
        }
        self._deadlines: list[tuple[int, int, Sequence]] = []  # a heap
        self._added = 0

    @property
    def preparing(self) -> list[Sequence]:
        """Those for which something must be ready first."""
        return self._by_state[SequenceState.PREPARING]

    @property
    def waiting(self) -> list[Sequence]:
        """Those without a slot, the next one first."""
        return self._by_state[SequenceState.WAITING]

    @property
    def running(self) -> list[Sequence]:
        """Those with a slot, the first served first."""
        return self._by_state[SequenceState.RUNNING]

    def add(self, sequence: Sequence) -> None:
        """Queue a sequence behind those that came before it or have more of a head start."""
        request = sequence.request
        head_start_ns = request.priority * PRIORITY_HEAD_START_S * 10**9
        sequence.order = (sequence.arrived_ns - head_start_ns, self._added)
        sequence.state = SequenceState.WAITING
        if sequence.preparing is not None:
            sequence.state = SequenceState.PREPARING
        self.unfinished[request.request_id] = sequence
        insort(self._by_state[sequence.state], sequence, key=_order)
        if sequence.deadline_ns is not None:
            heapq.heappush(self._deadlines, (sequence.deadline_ns, self._added, sequence))
        self._added += 1

    def move(self, sequence: Sequence, state: SequenceState) -> None:
        """Change its state."""
        self.moves += 1
        self._by_state[sequence.state].remove(sequence)
        sequence.state = state
        if state is SequenceState.FINISHED:
            del self.unfinished[sequence.request.request_id]
        else:
            insort(self._by_state[state], sequence, key=_order)

    def take_late(self, time_ns: int) -> list[Sequence]:
        """Unfinished sequences whose deadline has passed, once."""
        late: list[Sequence] = []
        while self._deadlines and self._deadlines[0][0] <= time_ns:
            sequence = heapq.heappop(self._deadlines)[2]
            if sequence.state is not SequenceState.FINISHED:
                late.append(sequence)
        return late

    def prepared(self) -> list[tuple[Sequence, Future[object]]]:
        """Sequences whose preparation has ended, well or not, with what became of it."""
        return [
            (sequence, sequence.preparing)
            for sequence in self.preparing
            if sequence.preparing is not None and sequence.preparing.done()
        ]

    def check_integrity(self) -> None:
        """Assert that every unfinished sequence stands in one queue, and all are in order."""
        everyone = [s for queue in self._by_state.values() for s in queue]
        assert set(everyone) == set(self.unfinished.values())
        assert len(everyone) == len(self.unfinished), "a sequence stands in two queues"
        for state, queue in self._by_state.items():
            assert queue == sorted(queue, key=_order), f"{state} ones are out of order"
            assert all(s.state is state for s in queue)
            assert all((s.slot is not None) == (state is SequenceState.RUNNING) for s in queue)
            assert all(s.slot is not None or not s.blocks for s in queue)
