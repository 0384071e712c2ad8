"""Requests in flight over HTTP, all in the thread of the load generator.

The event loop runs while `poll` waits: nothing competes with it for the interpreter, and a
request that is submitted is written in the next call.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping

import httpx

from engine.request import Request, RequestId
from experiments.targets.base import Received
from experiments.targets.http_apis import FACES, MESSAGES_VERSION, request_body
from experiments.targets.http_exchange import HttpExchange
from experiments.targets.http_lanes import Lanes
from experiments.targets.http_spec import Api, HttpSpec
from experiments.token_counts import TextTokenizer

CONNECT_S = 10.0


class HttpClient:
    """Submits to one server and hands over what comes back, stamped on `now_ns`."""

    def __init__(
        self, spec: HttpSpec, headers: Mapping[str, str], now_ns: Callable[[], int], lanes: Lanes
    ) -> None:
        self._spec = spec
        self._url = httpx.URL(spec.url + FACES[spec.api].path)
        self._headers = headers
        self._now_ns = now_ns
        self._lanes = lanes
        self._loop = asyncio.new_event_loop()
        self._tasks: dict[RequestId, asyncio.Task[None]] = {}
        self._received: list[Received] = []

    def submit(
        self, request: Request, prompt: str | list[int], tokenizer: TextTokenizer | None
    ) -> None:
        """Have the request written as soon as `poll` is called."""
        body = json.dumps(request_body(self._spec, prompt, request.sampling))
        exchange = HttpExchange(
            request=request,
            prepared=self._prepared(body.encode()),
            api=self._spec.api,
            timeout_s=self._spec.timeout_s,
            resend_unanswered=self._spec.resend_unanswered,
            now_ns=self._now_ns,
            deliver=self._deliver,
            tokenizer=tokenizer,
        )
        task = self._loop.create_task(self._run(exchange))
        self._tasks[request.request_id] = task
        task.add_done_callback(lambda ended: self._over(exchange, ended))

    def connect(self) -> None:
        """Open one connection; that the server refuses it is for the first request to find."""
        self._loop.run_until_complete(self._lanes.open(self._greeting()))

    def poll(self, timeout_s: float) -> list[Received]:
        """What came; waits at most about `timeout_s` for the first of it."""
        timer = self._loop.call_later(0.0 if self._received else timeout_s, self._loop.stop)
        self._loop.run_forever()
        timer.cancel()
        received, self._received = self._received, []
        return received

    def abort(self, request_id: RequestId) -> None:
        """Break the request off; its last delivery comes with a later `poll`."""
        task = self._tasks.get(request_id)
        if task is not None:
            task.cancel()

    def close(self) -> None:
        """Break off everything and close the connections."""
        for task in self._tasks.values():
            task.cancel()
        self._loop.run_until_complete(self._lanes.close())
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self._loop.close()

    async def _run(self, exchange: HttpExchange) -> None:
        lane = self._lanes.take()
        try:
            await exchange.run(lane)
        finally:
            self._lanes.give(lane)

    def _over(self, exchange: HttpExchange, ended: asyncio.Task[None]) -> None:
        """The id may be in use again: its last delivery came before this."""
        if self._tasks.get(exchange.request.request_id) is ended:
            del self._tasks[exchange.request.request_id]
        exchange.break_off()

    def _deliver(self, received: Received) -> None:
        self._received.append(received)
        self._loop.stop()  # after what else is ready now

    def _greeting(self) -> httpx.Request:
        return httpx.Request(
            "GET",
            self._spec.url + self._spec.ready_path,
            headers=dict(self._headers),
            extensions={"timeout": _patience(CONNECT_S)},
        )

    def _prepared(self, body: bytes) -> httpx.Request:
        return httpx.Request(
            "POST",
            self._url,
            headers=dict(self._headers),
            content=body,
            extensions={"timeout": _patience(None)},
        )


def _patience(answer_s: float | None) -> dict[str, float | None]:
    """None waits for as long as the whole request may take, which is bounded elsewhere."""
    return {"connect": CONNECT_S, "read": answer_s, "write": answer_s, "pool": None}


def request_headers(spec: HttpSpec, key: str | None) -> dict[str, str]:
    """The headers of every request; `key` goes where the API looks for it."""
    headers = {"content-type": "application/json", "accept-encoding": "identity", **spec.headers}
    if spec.api is Api.MESSAGES:
        headers.setdefault("anthropic-version", MESSAGES_VERSION)
    if key is not None:
        headers |= (
            {"x-api-key": key} if spec.api is Api.MESSAGES else {"authorization": f"Bearer {key}"}
        )
    return headers
