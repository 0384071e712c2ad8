"""A stand-in for a model server: it answers by a script, in the forms of the APIs.

Without a script it answers everything at once, so that what a client measures on it is the
client: the yardstick of `workbench calibrate`. `python -m experiments.targets.null_server
--port 8000` serves one.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from kernels.interrupt import quiet_imports

with quiet_imports(__name__):
    from experiments.targets.http_answers import Usage, chunk, closing, opening, whole
    from experiments.targets.http_apis import FACES
    from experiments.targets.http_json import Json, count, dig, items, mapping, text
    from experiments.targets.http_spec import Api

MODEL = "null"
_TOKEN = " a"
_STREAM_HEAD = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
)


@dataclass(frozen=True, kw_only=True)
class Act:
    """One thing that a stream does, `delay_s` after the one before it."""

    delay_s: float = 0.0
    data: bytes = b""
    tokens: int = 0  # that `data` makes known; for the server's own notes
    resets: bool = False  # instead: the connection is cut


@dataclass(frozen=True, kw_only=True)
class Answer:
    """How one request is answered."""

    acts: Iterable[Act] = ()
    head_delay_s: float = 0.0
    status: int = 200
    body: bytes | None = None  # of an answer that is no stream


@dataclass(frozen=True, kw_only=True)
class Ask:
    """One request as it arrived."""

    number: int  # from 0
    api: Api
    body: Json

    @property
    def prompt_tokens(self) -> int:
        """Ids as given; of a text, its words."""
        prompt = self.body.get("prompt") or self.body.get("input")
        messages = items(self.body.get("messages"))
        said = text(prompt) or " ".join(text(dig(m, "content")) for m in messages)
        return len(items(prompt)) or len(said.split())

    @property
    def output_tokens(self) -> int:
        """As many as were asked for."""
        return count(self.body.get(FACES[self.api].most_tokens)) or 1


@dataclass
class Note:
    """What the server did for one request, on `time.perf_counter_ns`."""

    ask: Ask
    arrived_ns: int
    written: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])  # (ns, tokens)


Script = Callable[[Ask], Answer]


def at_once(ask: Ask) -> Answer:
    """Every token in an event of its own, without a delay."""
    api, usage = ask.api, Usage(prompt=ask.prompt_tokens, output=ask.output_tokens)
    if not ask.body.get("stream"):
        return Answer(body=whole(api, _TOKEN * usage.output, usage))
    counted = bool(dig(ask.body, "stream_options", "continuous_usage_stats"))
    pieces = [
        chunk(api, _TOKEN, usage=Usage(prompt=usage.prompt, output=n + 1) if counted else None)
        for n in range(usage.output)
    ]
    data = b"".join((opening(api, usage.prompt), *pieces, closing(api, usage)))
    return Answer(acts=[Act(data=data, tokens=usage.output)])


class StandInServer:
    """HTTP/1.1 with kept-alive connections. One event loop; counts what reaches it."""

    def __init__(self, script: Script = at_once, *, keep_notes: bool = False) -> None:
        self._script = script
        self._keep_notes = keep_notes
        self._server: asyncio.Server | None = None
        self.notes: list[Note] = []
        self.requests = 0
        self.in_flight = 0
        self.peak_in_flight = 0
        self.connections = 0

    async def start(self, port: int = 0) -> int:
        """Listen on this host; returns the port."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", port, backlog=4096)
        return int(self._server.sockets[0].getsockname()[1])

    def close(self) -> None:
        """Stop listening; connections end with the loop."""
        if self._server is not None:
            self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        with contextlib.suppress(
            ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError
        ):
            while await self._exchange(reader, writer):
                pass
        writer.close()

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        arrived_ns = time.perf_counter_ns()
        method, path, _ = head.split(" ", 2)
        body = await reader.readexactly(_length(head))
        api = _APIS.get(path)
        if api is None or method != "POST":
            writer.write(_plain(*_page(path)))
            return True
        ask = Ask(number=self.requests, api=api, body=_document(body))
        self.requests += 1
        note = Note(ask=ask, arrived_ns=arrived_ns)
        if self._keep_notes:
            self.notes.append(note)
        self.in_flight += 1
        self.peak_in_flight = max(self.peak_in_flight, self.in_flight)
        try:
            return await self._answer(self._script(ask), note, writer)
        finally:
            self.in_flight -= 1

    async def _answer(self, answer: Answer, note: Note, writer: asyncio.StreamWriter) -> bool:
        """False: the connection is over."""
        if answer.head_delay_s:
            await asyncio.sleep(answer.head_delay_s)
        if answer.body is not None:
            writer.write(_plain(answer.status, answer.body))
            return True
        writer.write(_STREAM_HEAD)
        for act in answer.acts:
            if act.delay_s:
                await asyncio.sleep(act.delay_s)
            if act.resets:
                writer.transport.abort()
                return False
            note.written.append((time.perf_counter_ns(), act.tokens))
            writer.write(b"%x\r\n%b\r\n" % (len(act.data), act.data))
            await writer.drain()
        writer.write(b"0\r\n\r\n")
        return True


_APIS = {face.path: api for api, face in FACES.items()}


def _page(path: str) -> tuple[int, bytes]:
    if path == "/health":
        return 200, b"{}"
    if path == "/metrics":
        return 200, b""
    if path == "/v1/models":
        return 200, json.dumps({"data": [{"id": MODEL}]}).encode()
    return 404, b"no such page"


def _plain(status: int, body: bytes) -> bytes:
    head = (
        f"HTTP/1.1 {status} {'OK' if status == 200 else 'Error'}\r\n"
        f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


def _document(body: bytes) -> Json:
    """An ask that is no JSON object asks for nothing in particular."""
    try:
        return mapping(json.loads(body))
    except ValueError:
        return mapping(None)


def _length(head: str) -> int:
    for line in head.split("\r\n"):
        name, _, value = line.partition(":")
        if name.lower() == "content-length":
            return int(value)
    return 0


async def serve(port: int, tell: Callable[[int], None]) -> None:
    """Serve until cancelled; `tell` gets the port once it listens."""
    server = StandInServer()
    tell(await server.start(port))
    await asyncio.Event().wait()


def main() -> None:
    """The command: prints the address, serves until interrupted."""
    parser = argparse.ArgumentParser(description="A model server that answers at once.")
    parser.add_argument("--port", type=int, default=0, help="0: one that is free")
    port = int(parser.parse_args().port)

    def tell(found: int) -> None:
        sys.stdout.write(f"http://127.0.0.1:{found} serves the model {MODEL}\n")
        sys.stdout.flush()

    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(serve(port, tell))


if __name__ == "__main__":
    main()
