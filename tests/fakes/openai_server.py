"""Model servers with known token times: on a socket, and on a clock that only we move."""

import asyncio
import contextlib
import threading
from dataclasses import dataclass

import httpx

from engine.request import Request, RequestId, SamplingParams
from experiments.flight import Flight
from experiments.records import ChunkKind
from experiments.targets.http_answers import Usage, chunk, closing, failure, opening
from experiments.targets.http_spec import Api, HttpSpec
from experiments.targets.null_server import Act, Answer, StandInServer
from experiments.targets.openai_http import HttpTarget
from experiments.workload import WorkItem

CONTENT, REASONING, TOOL = ChunkKind.CONTENT, ChunkKind.REASONING, ChunkKind.TOOL
TOKENIZER = "engine/checkpoints/nano/tokenizer.json"


@dataclass(frozen=True)
class Say:
    """So many tokens, `delay_s` after what came before; `text` None: as many words."""

    delay_s: float
    tokens: int
    kind: ChunkKind = CONTENT
    text: str | None = None

    def words(self):
        return " a" * self.tokens if self.text is None else self.text


def acts(api, says, *, prompt=5, counted=True, end=True, ids=False):
    """The acts of a stream: an opening, the pieces, the end at once after the last one."""
    found, made = [Act(data=opening(api, prompt) or b": hello\n\n")], 0
    for say in says:
        made += say.tokens
        usage = Usage(prompt=prompt, output=made) if counted else None
        token_ids = list(range(say.tokens)) if ids else None
        data = chunk(api, say.words(), say.kind, usage=usage, token_ids=token_ids)
        found.append(Act(delay_s=say.delay_s, data=data, tokens=say.tokens))
    if end:
        last = closing(api, Usage(prompt=prompt, output=made))
        found.append(Act(data=last))
    return found


def broken(api, message):
    return Act(data=failure(api, message))


@contextlib.contextmanager
def serving(script):
    """A stand-in server in a thread of its own; yields it with its `url`."""
    server = StandInServer(script, keep_notes=True)
    loop = asyncio.new_event_loop()
    loop.set_exception_handler(lambda *_: None)  # of connections that end with the server
    server.url = f"http://127.0.0.1:{loop.run_until_complete(server.start())}"
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        loop.call_soon_threadsafe(server.close)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        for task in asyncio.all_tasks(loop):
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                loop.run_until_complete(task)
        loop.close()


def answering(*says, **options):
    """A script that answers every request alike."""
    return lambda ask: Answer(acts=acts(ask.api, says, prompt=ask.prompt_tokens, **options))


class ScriptedTransport(httpx.AsyncBaseTransport):
    """Gives `reads`, (seconds since the one before, bytes), and moves the clock to each of them."""

    def __init__(self, clock, reads, status=200, content_type="text/event-stream"):
        self.clock, self.reads = clock, reads
        self.status, self.content_type = status, content_type
        self.bodies = []

    async def handle_async_request(self, request):
        self.bodies.append(request.content)
        headers = {"content-type": self.content_type}
        return httpx.Response(self.status, headers=headers, stream=_Reads(self))


class _Reads(httpx.AsyncByteStream):
    def __init__(self, transport):
        self.transport = transport

    async def __aiter__(self):
        for delay_s, data in self.transport.reads:
            self.transport.clock.sleep(delay_s)
            if isinstance(data, Exception):
                raise data
            yield data
            await asyncio.sleep(0)


def reads_of(script):
    """The acts of a stream as network reads."""
    return [(act.delay_s, act.data) for act in script]


def spec(url="http://test", api=Api.COMPLETIONS, **fields):
    values = {"url": url, "model": "null", "api": api, "vocab_size": 512}
    if api is not Api.COMPLETIONS:
        values["tokenizer"] = TOKENIZER
    return HttpSpec(**{**values, **fields})


def request(index=0, tokens=8, prompt=(5, 6, 7)):
    return Request(
        request_id=RequestId(f"r{index}"),
        prompt_token_ids=tuple(prompt),
        sampling=SamplingParams(max_tokens=tokens, temperature=0.0, ignore_eos=True, seq_seed=7),
    )


def flown(target, clock, *requests):
    """The records of requests that are all sent at once, on a clock that counts from 0."""

    def seconds(ns):
        return ns / 1e9

    flights = {}
    for index, sent in enumerate(requests):
        now_s = seconds(clock.now_ns())
        item = WorkItem(
            index=index,
            prompt_token_ids=sent.prompt_token_ids,
            output_tokens=sent.sampling.max_tokens,
            seed=0,
            kind="test",
        )
        flights[sent.request_id] = Flight(
            item=item, request=sent, intended_s=now_s, dispatched_s=now_s, sent_s=now_s
        )
        target.submit(sent)
    live = set(flights)
    while live:
        for received in target.poll(0.05):
            flights[received.output.request_id].take(received, seconds)
            if received.output.finished:
                live.discard(received.output.request_id)
    return [flight.record() for flight in flights.values()]


def scripted(clock, reads, *, status=200, content_type="text/event-stream", **fields):
    """A target whose one server is a script on that clock."""
    transport = ScriptedTransport(clock, reads, status, content_type)
    target = HttpTarget(spec(**fields), clock=clock, connect=lambda: transport)
    target.transport = transport
    return target
