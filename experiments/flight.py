"""One request on its way, and what a client writes down of it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field

from engine.request import FinishReason, Request, RequestOutput
from experiments.identity import digest
from experiments.records import Chunk, ChunkKind, RequestRecord, TokenSource
from experiments.targets.base import Exchange, Received
from experiments.token_counts import Counts, Piece, count_tokens
from experiments.workload import WorkItem

_FAILURES: dict[str, str] = {
    FinishReason.ERROR: "the engine gave no reason",
    FinishReason.TIMEOUT: "its time was over before it ended",
}
"""Ends that are failures, and what to say of them where the engine says nothing."""


@dataclass(slots=True)
class Flight:
    """A request on its way; becomes a RequestRecord when the phase is over."""

    item: WorkItem
    request: Request
    intended_s: float
    dispatched_s: float | None  # could leave the client's queue; None: it never did
    sent_s: float | None
    scheduled: bool = True  # False: intended when it is sent
    warm_up: bool = False
    replica: int | None = None
    chunks: list[tuple[float, int]] = field(default_factory=list[tuple[float, int]])  # at, tokens
    ids: list[int] = field(default_factory=list[int])
    pieces: list[tuple[float, Piece]] = field(
        default_factory=list[tuple[float, Piece]]
    )  # of a text stream
    exchange: Exchange | None = None
    headers_s: float | None = None
    closed_s: float | None = None
    ended_s: float | None = None
    finish_reason: str | None = None
    error: str | None = None
    error_kind: str | None = None
    cached_tokens: int = 0
    preemptions: int = 0
    verify_steps: int = 0
    emitted_tokens: int = 0
    accepted: list[int] = field(default_factory=list[int])  # of each verify step
    proposed: list[int] = field(default_factory=list[int])

    def take(self, received: Received, seconds: Callable[[int], float]) -> None:
        """Add what a delivery brings; `seconds` turns its instants into trial time."""
        output, now_s = received.output, seconds(received.received_ns)
        if output.token_ids:
            self.chunks.append((now_s, len(output.token_ids)))
            self.ids += output.token_ids
        if received.piece is not None:
            self.pieces.append((now_s, received.piece))
        if received.exchange is not None:
            self._close(received.exchange, seconds)
        self._tally(output)
        if output.finished:
            self.end(str(output.finish_reason), output.error, now_s)

    def end(self, reason: str, error: str | None, now_s: float) -> None:
        """The request is over: at its last chunk if it ended well, else now.

        The tokens of a text stream are counted when the record is made, not under load.
        """
        self.finish_reason = reason
        self.error = error or _FAILURES.get(reason)
        self.ended_s = now_s

    def _close(self, exchange: Exchange, seconds: Callable[[int], float]) -> None:
        self.exchange = exchange
        self.closed_s = seconds(exchange.closed_ns)
        self.error_kind = exchange.error_kind
        if exchange.headers_ns is not None:
            self.headers_s = seconds(exchange.headers_ns)
        if exchange.sent_ns is not None:
            self.sent_s = seconds(exchange.sent_ns)
            self.intended_s = self.intended_s if self.scheduled else self.sent_s

    def _tally(self, output: RequestOutput) -> None:
        if output.cached_tokens > self.cached_tokens:
            self.cached_tokens = output.cached_tokens
        if output.preemptions > self.preemptions:
            self.preemptions = output.preemptions
        if output.verify_steps:
            self.verify_steps += output.verify_steps
            self.emitted_tokens += len(output.token_ids)
            self.proposed.append(output.proposed)
            self.accepted.append(output.accepted)

    def output_token_ids(self) -> tuple[int, ...] | None:
        """The output in ids of the engine; None where a server sent text without them."""
        if not self.pieces:
            return tuple(self.ids)
        ids = [piece.token_ids for _, piece in self.pieces if piece.token_ids or piece.text]
        if any(found is None for found in ids):
            return None
        return tuple(token for found in ids if found is not None for token in found)

    def answer_ids(self) -> tuple[int, ...] | None:
        """The output as a next prompt holds it: text in the ids of the client's tokenizer."""
        ids = self.output_token_ids()
        tokenizer = self.exchange.tokenizer if self.exchange else None
        if ids is not None or tokenizer is None:
            return ids
        return tuple(tokenizer.encode("".join(piece.text for _, piece in self.pieces)))

    def output_text(self) -> str | None:
        """What a text stream said, thoughts and tool calls left out, where that is wanted."""
        if not self.item.keeps_text or not self.pieces:
            return None
        said = (piece.text for _, piece in self.pieces if piece.kind is ChunkKind.CONTENT)
        return "".join(said)

    def record(self) -> RequestRecord:
        """The facts so far; an unfinished request has no finish reason."""
        request, exchange = self.request, self.exchange
        counts = self._counts()
        chunks = self._chunks(counts)
        cut_short = self.error is not None or self.finish_reason == FinishReason.ABORT
        return RequestRecord(
            request_id=request.request_id,
            index=self.item.index,
            intended_s=self.intended_s,
            dispatched_s=self.dispatched_s,
            sent_s=self.sent_s,
            chunks=chunks,
            ended_s=self.ended_s if cut_short or not chunks else chunks[-1].time_s,
            finish_reason=self.finish_reason,
            error=self.error,
            prompt_tokens=len(request.prompt_token_ids),
            output_tokens=sum(chunk.tokens for chunk in chunks),
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
            text_hash=self._text_hash(),
            prompt_hash=digest(request.prompt_token_ids),
            output_token_ids=self.output_token_ids() or None,
            output_text=self.output_text(),
            session=self.item.session,
            turn=self.item.turn,
            headers_s=self.headers_s,
            closed_s=self.closed_s,
            error_kind=self.error_kind,
            resent=exchange.resent if exchange else None,
            token_source=counts.source if counts else TokenSource.ENGINE,
            retokenised_tokens=counts.retokenised if counts else None,
            server_prompt_tokens=exchange.server_prompt_tokens if exchange else None,
            server_output_tokens=exchange.server_output_tokens if exchange else None,
        )

    def _counts(self) -> Counts | None:
        """Tokens of the pieces of a text stream; None where an engine gave ids itself."""
        exchange = self.exchange
        if not self.pieces:
            return None
        return count_tokens(
            [piece for _, piece in self.pieces],
            total=exchange.server_output_tokens if exchange else None,
            tokenizer=exchange.tokenizer if exchange else None,
        )

    def _chunks(self, counts: Counts | None) -> tuple[Chunk, ...]:
        if counts is None:
            return tuple(Chunk(time_s=at, tokens=n) for at, n in self.chunks)
        told = zip(self.pieces, counts.tokens, strict=True)
        return tuple(Chunk(time_s=at, tokens=n, kind=p.kind) for (at, p), n in told if n)

    def _text_hash(self) -> str | None:
        """Of the ids; of the text where a server sent nothing else."""
        ids = self.output_token_ids()
        said = "".join(piece.text for _, piece in self.pieces) if ids is None else ids
        if not said:
            return None
        text = said if isinstance(said, str) else ",".join(map(str, said))
        return hashlib.sha256(text.encode()).hexdigest()[:16]


def _reached(lengths: list[int]) -> tuple[int, ...]:
    """How many steps reached draft position 1, 2, ..."""
    return tuple(sum(n > position for n in lengths) for position in range(max(lengths, default=0)))
