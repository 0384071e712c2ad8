"""One request over HTTP, from its first byte to its last."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass, field

import httpx

from engine.request import FinishReason, Request, RequestOutput
from experiments.targets.base import Exchange, Received
from experiments.targets.http_apis import DONE, Said, read_event
from experiments.targets.http_json import Json, is_mapping
from experiments.targets.http_lanes import UnansweredError
from experiments.targets.http_spec import Api
from experiments.targets.sse import Event, EventParser
from experiments.token_counts import Piece, TextTokenizer

OK = 200
_MOST_BODY = 64 * 2**20  # of an answer that is not streamed
_MOST_QUOTED = 300


class _ExchangeError(Exception):
    """The exchange failed: what its record calls it, and the sentence."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


@dataclass(kw_only=True)
class HttpExchange:
    """Sends `prepared` and tells `deliver` everything that comes of it, in order.

    Every network read is stamped before it is looked at. The last delivery has a finish reason
    and the `Exchange`, whatever happened; a cancelled exchange ends with ABORT.

    With `resend_unanswered` a request that a kept connection lost before one byte of an answer
    came is written once more, on a fresh connection: servers close connections that were idle or
    used often, and a client learns of it too late. HTTP allows that for a POST whose repetition
    is known to be harmless (RFC 9110 section 9.2.2, RFC 9112 section 9.3.1). Ours is: the server
    keeps nothing of it that a client could see, and no token of a first answer reached anybody.
    The times of the request count from the first writing.
    """

    request: Request
    prepared: httpx.Request
    api: Api
    timeout_s: float
    now_ns: Callable[[], int]
    deliver: Callable[[Received], None]
    tokenizer: TextTokenizer | None = None
    resend_unanswered: bool = True
    _resent: bool = False
    _sent_ns: int | None = None
    _headers_ns: int | None = None
    _finish: FinishReason | None = None
    _done: bool = False  # the server said that this is all
    _tokens: bool = False
    _prompt_tokens: int | None = None
    _output_tokens: int | None = None
    _cached_tokens: int = 0
    _parser: EventParser = field(default_factory=EventParser)
    _closed: bool = False

    async def run(self, transport: httpx.AsyncBaseTransport) -> None:
        """Returns when the exchange is over; never raises for what the server or network did."""
        try:
            async with asyncio.timeout(self.timeout_s):
                await self._talk(transport)
            self._judge_end()
        except asyncio.CancelledError:
            self._close(FinishReason.ABORT)
        except _ExchangeError as failure:
            self._fail(failure.kind, str(failure))
        except (TimeoutError, httpx.TimeoutException):
            self._fail("timeout", f"nothing ended the request within {self.timeout_s:g} s")
        except httpx.ConnectError as error:
            self._fail("connect", f"no connection: {error}")
        except httpx.TransportError as error:
            self._fail("reset", f"the connection broke: {error or type(error).__name__}")
        else:
            self._close(self._finish or FinishReason.STOP)

    def break_off(self) -> None:
        """For an exchange that was cancelled before it began; harmless when it is over."""
        if not self._closed:
            self._close(FinishReason.ABORT)

    async def _talk(self, transport: httpx.AsyncBaseTransport) -> None:
        self.prepared.extensions = {**self.prepared.extensions, "trace": self._trace}
        response = await self._asked(transport)
        if self._headers_ns is None:  # a transport that tells nothing of its steps
            self._headers_ns = self.now_ns()
        try:
            if response.status_code != OK:
                raise _ExchangeError(
                    f"http_{response.status_code}",
                    f"HTTP {response.status_code}: {await _quoted(response)}",
                )
            if response.headers.get("content-type", "").startswith("text/event-stream"):
                await self._heed_stream(response)
            else:
                await self._heed_whole(response)
        finally:
            await response.aclose()

    async def _asked(self, transport: httpx.AsyncBaseTransport) -> httpx.Response:
        """The head of the answer."""
        try:
            return await transport.handle_async_request(self.prepared)
        except UnansweredError:
            if not self.resend_unanswered:
                raise
            self._resent = True
        return await transport.handle_async_request(self.prepared)

    async def _trace(self, event: str, _details: object) -> None:
        if event.endswith("send_request_body.started"):
            if self._sent_ns is None:  # after the write it may be late, to the server's credit
                self._sent_ns = self.now_ns()
        elif event.endswith("receive_response_headers.complete"):
            self._headers_ns = self.now_ns()

    async def _heed_stream(self, response: httpx.Response) -> None:
        assert isinstance(response.stream, httpx.AsyncByteStream)
        async for received in response.stream:
            now_ns = self.now_ns()
            for event in self._parser.feed(received):
                self._heed(event, now_ns)
        now_ns = self.now_ns()
        for event in self._parser.end():
            self._heed(event, now_ns)

    async def _heed_whole(self, response: httpx.Response) -> None:
        assert isinstance(response.stream, httpx.AsyncByteStream)
        body, now_ns = bytearray(), self.now_ns()
        async for received in response.stream:
            now_ns = self.now_ns()
            body += received
            if len(body) > _MOST_BODY:
                raise _ExchangeError("malformed", f"the answer has more than {_MOST_BODY} bytes")
        self._take(read_event(self.api, "", _parsed(bytes(body))), now_ns)
        self._done = True

    def _heed(self, event: Event, now_ns: int) -> None:
        if event.data.strip() == DONE:
            self._done = True
        else:
            self._take(read_event(self.api, event.name, _parsed(event.data)), now_ns)

    def _take(self, said: Said, now_ns: int) -> None:
        if said.error is not None:
            raise _ExchangeError("stream_error", f"the stream holds an error: {said.error}")
        self._finish = said.finish or self._finish
        self._prompt_tokens = _newer(said.prompt_tokens, self._prompt_tokens)
        self._output_tokens = _newer(said.output_tokens, self._output_tokens)
        self._cached_tokens = said.cached_tokens or self._cached_tokens
        piece = said.piece
        if piece is not None and _says_something(piece):
            self._tokens |= bool(piece.text or piece.usage or piece.token_ids)
            self.deliver(Received(output=self._output(now_ns), received_ns=now_ns, piece=piece))

    def _judge_end(self) -> None:
        """A stream that just stops is cut off, and one without a token answered nothing."""
        if self._finish is None and not self._done:
            raise _ExchangeError("truncated", "the stream ended before the answer did")
        if not self._tokens:
            raise _ExchangeError("empty", "the answer holds no token")

    def _fail(self, kind: str, message: str) -> None:
        """An answer that was whole before the connection broke is whole."""
        if self._done and self._tokens and kind in ("timeout", "reset"):
            self._close(self._finish or FinishReason.STOP)
        else:
            self._close(FinishReason.ERROR, kind, message)

    def _close(
        self, reason: FinishReason, kind: str | None = None, message: str | None = None
    ) -> None:
        self._closed = True
        now_ns = self.now_ns()
        exchange = Exchange(
            sent_ns=self._sent_ns,
            headers_ns=self._headers_ns,
            closed_ns=now_ns,
            error_kind=kind,
            resent=self._resent,
            server_prompt_tokens=self._prompt_tokens,
            server_output_tokens=self._output_tokens,
            tokenizer=self.tokenizer,
        )
        output = self._output(now_ns, reason, message)
        self.deliver(Received(output=output, received_ns=now_ns, exchange=exchange))

    def _output(
        self, now_ns: int, reason: FinishReason | None = None, error: str | None = None
    ) -> RequestOutput:
        return RequestOutput(
            request_id=self.request.request_id,
            token_ids=(),
            time_ns=now_ns,
            finish_reason=reason,
            error=error,
            cached_tokens=self._cached_tokens,
        )


def _newer(said: int | None, known: int | None) -> int | None:
    return known if said is None else said


def _says_something(piece: Piece) -> bool:
    return bool(piece.text or piece.token_ids) or piece.usage is not None


def _parsed(data: str | bytes) -> Json:
    try:
        found: object = json.loads(data)
    except (ValueError, RecursionError) as error:
        shown = repr(data[:_MOST_QUOTED])
        raise _ExchangeError(
            "malformed", f"the answer is not JSON: {error}; it holds {shown}"
        ) from error
    if not is_mapping(found):
        raise _ExchangeError(
            "malformed", f"the answer is no JSON object: {repr(found)[:_MOST_QUOTED]}"
        )
    return found


async def _quoted(response: httpx.Response) -> str:
    """The beginning of an error page."""
    assert isinstance(response.stream, httpx.AsyncByteStream)
    said = bytearray()
    async for received in response.stream:
        said += received
        if len(said) > 4 * _MOST_QUOTED:
            break
    return said.decode("utf-8", errors="replace").strip()[:_MOST_QUOTED]
