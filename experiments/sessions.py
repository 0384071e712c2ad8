"""Conversations under load: each turn repeats what was said before it, the answers as they came."""

from __future__ import annotations

import heapq
from dataclasses import dataclass, replace

from engine.request import FinishReason
from experiments.arrival import WHOLE, Arrival, Share
from experiments.errors import TargetError, WorkloadError
from experiments.flight import Flight
from experiments.identity import generator
from experiments.load_specs import SessionsLoad, TraceLoad
from experiments.load_tally import SessionTally
from experiments.workload import WorkItem, Workload


@dataclass(frozen=True, kw_only=True)
class Conversations:
    """What is said in every session of a phase, as far as it is known beforehand."""

    load: SessionsLoad | TraceLoad
    workload: Workload
    salt: str

    def turns(self, session: int) -> tuple[int, ...]:
        """The workload's request of each turn."""
        fixed = self.load.turns if isinstance(self.load, SessionsLoad) else None
        if fixed is None:
            return self.workload.session(session)
        return tuple(range(session * fixed, (session + 1) * fixed))

    def opening(self, session: int) -> WorkItem:
        """The first turn."""
        return self._said(session, 0, ())

    def reply(self, item: WorkItem, answer: tuple[int, ...]) -> WorkItem | None:
        """The turn after `item` was answered; None where that was the last."""
        assert item.session is not None, f"request {item.index} belongs to no session"
        assert item.turn is not None, f"request {item.index} is no turn"
        if item.turn + 1 >= len(self.turns(item.session)):
            return None
        return self._said(item.session, item.turn + 1, item.prompt_token_ids + answer)

    def due_s(self, item: WorkItem, ended_s: float) -> float:
        """When that turn is sent, after the answer before it came: a pause, and not early."""
        if isinstance(self.load, TraceLoad):
            pause_s = self.workload.delay_s(item.index) or 0.0
            own_s = self.workload.arrival_s(item.index) or 0.0
            scale = self.load.time_scale
            return max(ended_s + pause_s / scale, own_s / scale)
        return ended_s + self._pause_s(self.load, item)

    def _pause_s(self, load: SessionsLoad, item: WorkItem) -> float:
        if load.think_s is None:
            return self.workload.delay_s(item.index) or 0.0
        if load.think == "constant":
            return load.think_s
        stream = generator(self.salt, "think", item.session, item.turn)
        return float(stream.exponential(load.think_s))

    def _said(self, session: int, turn: int, before: tuple[int, ...]) -> WorkItem:
        new = self.workload.item(self.turns(session)[turn], self.salt)
        prompt = before + new.prompt_token_ids
        return replace(new, prompt_token_ids=prompt, session=session, turn=turn)


class SessionFeed:
    """A `Feed` of conversations: they start as `starts` says, their turns follow the answers.

    A turn that fails ends its session. So does one whose prompt and output together would not
    fit the context.
    """

    scheduled = True
    queues = False

    def __init__(self, said: Conversations, starts: Arrival, share: Share = WHOLE) -> None:
        self._said = said
        self._starts = starts
        self._share = share
        self._ready: list[tuple[float, int, WorkItem]] = []  # (due, session, turn), a heap
        self._freed_s = 0.0  # when a session last ended
        self._started = self._completed = self._failed = self._context_ended = 0

    def due_s(self, in_flight: int) -> float | None:
        """The next turn of a session under way, or the next session."""
        del in_flight
        found = [due for due in (self._start_s(), self._turn_s()) if due is not None]
        return min(found, default=None)

    def take(self) -> WorkItem:
        """That turn."""
        start_s, turn_s = self._start_s(), self._turn_s()
        if start_s is None or (turn_s is not None and turn_s <= start_s):
            return heapq.heappop(self._ready)[2]
        self._started += 1
        return self._said.opening(self._share.nth(self._started - 1))

    def open_with(self, most: int) -> None:
        """Openings are made as they are taken."""

    def look_ahead(self, most: int) -> bool:
        """Turns follow from answers."""
        del most
        return False

    def ended(self, flight: Flight, ended_s: float) -> None:
        """Have the next turn wait for its instant, or the session be over."""
        answer = _answer(flight)
        if answer is None:
            self._failed += 1
            self._freed_s = ended_s
            return
        item = self._said.reply(flight.item, answer)
        if item is not None and self._fits(item):
            assert item.session is not None
            heapq.heappush(self._ready, (self._said.due_s(item, ended_s), item.session, item))
            return
        self._completed += item is None
        self._context_ended += item is not None
        self._freed_s = ended_s

    def due_before(self, elapsed_s: float) -> int | None:
        """The answers decide how many turns there are."""
        del elapsed_s
        return None

    def sessions(self) -> SessionTally:
        """So far."""
        return SessionTally(
            started=self._started,
            completed=self._completed,
            failed=self._failed,
            context_ended=self._context_ended,
        )

    def _start_s(self) -> float | None:
        due_s = self._starts.due_s(self._started, self.sessions().unfinished)
        if due_s is None:
            return None
        return due_s if self._starts.scheduled else max(due_s, self._freed_s)

    def _turn_s(self) -> float | None:
        return self._ready[0][0] if self._ready else None

    def _fits(self, item: WorkItem) -> bool:
        most = self._said.workload.facts.max_positions
        return most is None or len(item.prompt_token_ids) + item.output_tokens <= most


def check_sessions(load: SessionsLoad | TraceLoad, workload: Workload) -> None:
    """WorkloadError where sessions cannot be formed, or are known not to fit the context."""
    turns = load.turns if isinstance(load, SessionsLoad) else None
    name = f"workload {workload.spec.name}"
    if turns is None and not workload.has_sessions:
        raise WorkloadError(
            "has no sessions", where=name, remedy="Give load.turns, or a trace with session_id."
        )
    most = workload.facts.max_positions
    longest = workload.session_tokens(turns)
    if most is not None and longest > most:
        raise WorkloadError(
            f"its longest session comes to {longest} tokens and the context holds {most}",
            where=name,
            remedy="Lower load.turns, or the lengths of the workload.",
        )


def _answer(flight: Flight) -> tuple[int, ...] | None:
    """What was said; None where the turn failed. TargetError where its ids cannot be known."""
    if flight.error is not None or flight.finish_reason in (None, FinishReason.ABORT):
        return None
    ids = flight.answer_ids()
    if ids is None:
        raise TargetError(
            "the server sends no token ids, so the next turn cannot repeat its answer",
            where="load: sessions",
            remedy="Give http.tokenizer.",
        )
    return ids or None
