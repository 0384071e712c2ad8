"""Servers close kept connections when they like: what a client then sends again, and what not."""

import contextlib
import socket
import struct
import threading
import time

import pytest

from experiments.clock import SystemClock
from experiments.measurement import succeeded, ttft_s
from experiments.targets.http_answers import Usage, chunk, closing
from experiments.targets.http_spec import Api
from experiments.targets.openai_http import HttpTarget
from tests.fakes.openai_server import flown, request, spec

USAGE = Usage(prompt=3, output=2)
BODY = chunk(Api.COMPLETIONS, " a a", usage=USAGE) + closing(Api.COMPLETIONS, USAGE)
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: %d\r\n\r\n" % len(
    BODY
)
WHOLE = HEAD + BODY
NOTHING, HALF_HEAD, HALF_BODY = b"", HEAD[:20], HEAD + BODY[:20]
PATIENCE_S = 60.0  # for a server that a busy host keeps waiting
HEARD_S = 0.3  # how long a server of these tests keeps a request that it will not answer


class RawServer:
    """Writes `script(connection, request)` for each request; closes where that is not WHOLE.

    Connections and the requests of each count from 0. `idle_s` closes what waits longer once it
    has had an answer.
    """

    def __init__(self, script, *, resets=False, idle_s=None):
        self.script, self.resets, self.idle_s = script, resets, idle_s
        self.asked = []  # (connection, request), as they came
        self.closed = threading.Event()  # a connection was
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.listener.getsockname()[1]}"
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        with contextlib.suppress(OSError):
            for connection in range(100):
                taken, _ = self.listener.accept()
                threading.Thread(target=self.serve, args=(taken, connection), daemon=True).start()

    def serve(self, taken, connection):
        with taken, contextlib.suppress(OSError):
            for number in range(100):
                if not self.read(taken):
                    return
                self.asked.append((connection, number))
                said = self.script(connection, number)
                if said == NOTHING and number:
                    time.sleep(HEARD_S)
                taken.sendall(said)
                taken.settimeout(self.idle_s)
                if said != WHOLE:
                    break
            if self.resets:
                taken.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.closed.set()

    def read(self, taken):
        """One whole request; False where the connection is over."""
        found = b""
        while b"\r\n\r\n" not in found:
            part = taken.recv(65536)
            if not part:
                return False
            found += part
        head, _, body = found.partition(b"\r\n\r\n")
        length = int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0])
        while len(body) < length:
            body += taken.recv(65536)
        return True


def records(server, *, requests=2, pause=lambda: None, **fields):
    """One request after the other, with pauses, over as few connections as the server allows."""
    target, clock = HttpTarget(spec(server.url, **fields), clock=SystemClock()), SystemClock()
    found = []
    for index in range(requests):
        if index:
            pause()
            target.poll(0.0)
        found += flown(target, clock, request(index))
    target.close()
    server.listener.close()
    return found


def at(place, said):
    """WHOLE but for one request."""
    return lambda connection, number: said if (connection, number) == place else WHOLE


@pytest.mark.parametrize("resets", [False, True], ids=["closed", "reset"])
def test_a_request_that_a_kept_connection_lost_is_sent_again_on_a_fresh_one(resets):
    server = RawServer(at((0, 1), NOTHING), resets=resets)
    first, second = records(server)
    assert succeeded(first)
    assert succeeded(second)
    assert (first.resent, second.resent) == (False, True)
    assert server.asked == [(0, 0), (0, 1), (1, 0)]


def test_its_times_count_from_the_first_writing():
    [_, second] = records(RawServer(at((0, 1), NOTHING)))
    assert ttft_s(second) >= HEARD_S


def test_every_connection_may_be_closed_after_so_many_requests():
    server = RawServer(lambda _, number: WHOLE if number < 3 else NOTHING)
    found = records(server, requests=8)
    assert all(map(succeeded, found))
    assert [index for index, record in enumerate(found) if record.resent] == [3, 6]


def test_a_connection_that_was_seen_to_close_while_idle_costs_no_second_writing():
    server = RawServer(lambda *_: WHOLE, idle_s=0.1)
    found = records(server, pause=lambda: server.closed.wait(PATIENCE_S))
    assert all(map(succeeded, found))
    assert [record.resent for record in found] == [False, False]
    assert server.asked == [(0, 0), (1, 0)]


@pytest.mark.parametrize("begun", [HALF_HEAD, HALF_BODY], ids=["head", "body"])
def test_an_answer_that_had_begun_is_a_failure_and_is_not_asked_for_again(begun):
    server = RawServer(at((0, 1), begun))
    [_, second] = records(server)
    assert (second.error_kind, second.resent) == ("reset", False)
    assert server.asked == [(0, 0), (0, 1)]


def test_what_fails_on_a_fresh_connection_is_a_failure_at_once():
    server = RawServer(at((0, 0), NOTHING))
    [only] = records(server, requests=1)
    assert (only.error_kind, only.resent) == ("reset", False)
    assert server.asked == [(0, 0)]


def test_a_request_is_sent_twice_at_the_most():
    server = RawServer(lambda connection, number: WHOLE if (connection, number) == (0, 0) else b"")
    [_, second] = records(server)
    assert (second.error_kind, second.resent) == ("reset", True)
    assert server.asked == [(0, 0), (0, 1), (1, 0)]


def test_a_plan_can_have_every_request_written_once():
    server = RawServer(at((0, 1), NOTHING))
    [_, second] = records(server, resend_unanswered=False)
    assert (second.error_kind, second.resent) == ("reset", False)
    assert "closed" in second.error or "disconnected" in second.error
    assert server.asked == [(0, 0), (0, 1)]
