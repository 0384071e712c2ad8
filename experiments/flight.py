"""One request on its way, and what a client writes down of it."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field

from engine.request import FinishReason, Request, RequestOutput
from experiments.records import Chunk, RequestRecord
from experiments.workload import WorkItem


@dataclass
class Flight:
    """A request on its way; becomes a RequestRecord when the phase is over."""

    item: WorkItem
    request: Request
    intended_s: float
    dispatched_s: float  # left the client's queue
    sent_s: float
    warm_up: bool = False
    replica: int | None = None
    chunks: list[Chunk] = field(default_factory=list)
    ids: list[int] = field(default_factory=list)
    ended_s: float | None = None
    finish_reason: str | None = None
    error: str | None = None
    cached_tokens: int = 0
    preemptions: int = 0
    verify_steps: int = 0
    emitted_tokens: int = 0
    accepted: list[int] = field(default_factory=list)  # of each verify step
    proposed: list[int] = field(default_factory=list)

    def take(self, output: RequestOutput, now_s: float) -> None:
        """Add what an output brings; `now_s` is when the client received it."""
        if output.token_ids:
            self.chunks.append(Chunk(time_s=now_s, tokens=len(output.token_ids)))
            self.ids += output.token_ids
        self.cached_tokens = max(self.cached_tokens, output.cached_tokens)
        self.preemptions = max(self.preemptions, output.preemptions)
        if output.verify_steps:
            self.verify_steps += output.verify_steps
            self.emitted_tokens += len(output.token_ids)
            self.proposed.append(output.proposed)
            self.accepted.append(output.accepted)
        if output.finished:
            self.end(str(output.finish_reason), output.error, now_s)

    def end(self, reason: str, error: str | None, now_s: float) -> None:
        """The request is over: at its last chunk if it ended well, else now."""
        self.finish_reason = reason
        failed = reason == FinishReason.ERROR
        self.error = error or ("the engine gave no reason" if failed else None)
        ended_well = self.chunks and self.error is None and reason != FinishReason.ABORT
        self.ended_s = self.chunks[-1].time_s if ended_well else now_s

    def record(self) -> RequestRecord:
        """The facts so far; an unfinished request has no finish reason."""
        request = self.request
        text = hashlib.sha256(",".join(map(str, self.ids)).encode()).hexdigest()[:16]
        return RequestRecord(
            request_id=request.request_id,
            index=self.item.index,
            intended_s=self.intended_s,
            dispatched_s=self.dispatched_s,
            sent_s=self.sent_s,
            chunks=tuple(self.chunks),
            ended_s=self.ended_s,
            finish_reason=self.finish_reason,
            error=self.error,
            prompt_tokens=len(request.prompt_token_ids),
            output_tokens=len(self.ids),
            requested_output_tokens=request.sampling.max_tokens,
            exact_output_length=request.sampling.ignore_eos,
            cached_tokens=self.cached_tokens,
            proposed_tokens=sum(self.proposed),
            accepted_tokens=sum(self.accepted),
            verify_steps=self.verify_steps,
            emitted_tokens=self.emitted_tokens,
            accepted_by_position=_reached(self.accepted),
            proposed_by_position=_reached(self.proposed),
            reached_by_position=_reached(
                [min(n + 1, m) for n, m in zip(self.accepted, self.proposed, strict=True)]
            ),
            preemptions=self.preemptions,
            replica=self.replica,
            warm_up=self.warm_up,
            text_hash=text if self.ids else None,
            session=self.item.session,
            turn=self.item.turn,
        )


def _reached(lengths: list[int]) -> tuple[int, ...]:
    """How many steps reached draft position 1, 2, ..."""
    return tuple(sum(n > position for n in lengths) for position in range(max(lengths, default=0)))
