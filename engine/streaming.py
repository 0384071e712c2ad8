"""Streams of outputs for asyncio clients: a thread runs the steps."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from engine.errors import EngineError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from engine.core import Serving
    from engine.request import Request, RequestId, RequestOutput

    _Letter = tuple[asyncio.Queue[RequestOutput | Exception], RequestOutput | Exception]

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Mailbox:
    """Where the thread leaves what one client waits for."""

    loop: asyncio.AbstractEventLoop
    queue: asyncio.Queue[RequestOutput | Exception]

    def put(self, item: RequestOutput | Exception) -> None:
        _put_all(self.loop, [(self.queue, item)])


class AsyncEngine:
    """Owns an engine, or a group of replicas, and the one thread that touches it.

    Streams may be opened from any event loop. No stream is left waiting: a request that cannot
    be added ends its own stream with the exception that says why; a step that raises ends every
    open stream with an EngineError, and later requests are served.
    """

    def __init__(self, serving: Serving) -> None:
        self._serving = serving
        self._mailboxes: dict[RequestId, _Mailbox] = {}
        self._orders: list[tuple[Callable[[_Mailbox], object], _Mailbox]] = []
        self._wake = threading.Condition()
        self._is_closing = False
        self._has_more = False  # a step is in flight though no one waits for it
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)
        self._thread.start()

    async def stream(self, request: Request) -> AsyncIterator[RequestOutput]:
        """Yield the outputs of a request as steps bring them; the last one is `finished`.

        RequestError before the first output if it cannot be served; EngineError if the engine
        is closed or a step failed. Leaving the iterator early (cancellation, `aclose`) aborts
        the request.
        """
        mailbox = _Mailbox(asyncio.get_running_loop(), asyncio.Queue())
        if not self._order(partial(self._add, request), mailbox):
            raise EngineError("the engine was closed")
        is_open = True
        try:
            while is_open:
                item = await mailbox.queue.get()
                is_open = not (isinstance(item, Exception) or item.finished)
                if isinstance(item, Exception):
                    raise item
                yield item
        finally:
            if is_open:
                self._order(partial(self._abort, request.request_id), mailbox)

    def close(self) -> None:
        """Stop the thread after its current step, end open streams and close the engine."""
        with self._wake:
            self._is_closing = True
            self._wake.notify()
        self._thread.join()
        self._serving.close()

    def _order(self, order: Callable[[_Mailbox], object], mailbox: _Mailbox) -> bool:
        """Have the thread do something for a client; False when it has stopped."""
        with self._wake:
            if self._is_closing:
                return False
            self._orders.append((order, mailbox))
            self._wake.notify()
        return True

    def _run(self) -> None:
        try:
            while self._obey():
                self._step()
        finally:
            self._stop()

    def _obey(self) -> bool:
        """Carry out what clients ordered; waits when no stream is open. False to stop."""
        with self._wake:
            while not (self._orders or self._is_closing or self._mailboxes or self._has_more):
                self._wake.wait()
            orders, self._orders = self._orders, []
        for order, mailbox in orders:
            try:
                order(mailbox)
            except Exception as error:  # noqa: BLE001  its client must hear of it
                mailbox.put(error)
        return not self._is_closing

    def _step(self) -> None:
        self._has_more = False
        try:
            self._deliver(self._serving.step())
            self._has_more = self._serving.has_unfinished()
        except EngineError as error:
            self._fail(error)
        except Exception as error:  # noqa: BLE001  clients must hear of it
            failure = EngineError(f"a step failed: {error}")
            failure.__cause__ = error
            self._fail(failure)

    def _fail(self, error: EngineError) -> None:
        _log.error("a step failed", exc_info=error)
        for request_id in self._end_all(error):
            self._serving.abort(request_id)

    def _stop(self) -> None:
        """Refuse what comes, and end what is open: the thread ends here, whatever ended it."""
        with self._wake:
            self._is_closing = True
            orders, self._orders = self._orders, []
        error = EngineError("the engine was closed")
        self._end_all(error)
        for _, mailbox in orders:
            mailbox.put(error)

    def _end_all(self, error: EngineError) -> list[RequestId]:
        mailboxes, self._mailboxes = self._mailboxes, {}
        for mailbox in mailboxes.values():
            mailbox.put(error)
        return list(mailboxes)

    def _add(self, request: Request, mailbox: _Mailbox) -> None:
        self._serving.add_request(request)
        self._mailboxes[request.request_id] = mailbox

    def _abort(self, request_id: RequestId, mailbox: _Mailbox) -> None:
        if self._mailboxes.get(request_id) is mailbox:
            self._serving.abort(request_id)

    def _deliver(self, outputs: list[RequestOutput]) -> None:
        """Wake each event loop once a step, not once a token."""
        mail: dict[asyncio.AbstractEventLoop, list[_Letter]] = {}
        for output in outputs:
            mailbox = self._mailboxes.get(output.request_id)
            if mailbox is not None:
                mail.setdefault(mailbox.loop, []).append((mailbox.queue, output))
            if output.finished:
                self._mailboxes.pop(output.request_id, None)
        for loop, letters in mail.items():
            _put_all(loop, letters)


def _put_all(loop: asyncio.AbstractEventLoop, letters: list[_Letter]) -> None:
    with contextlib.suppress(RuntimeError):  # the event loop is closed: no one waits
        loop.call_soon_threadsafe(_drop_in, letters)


def _drop_in(letters: list[_Letter]) -> None:
    for queue, item in letters:
        queue.put_nowait(item)
