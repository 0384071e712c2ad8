"""The connections of a client: as many as it has requests in flight, each a lane of its own."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Callable, Iterable

import httpcore
import httpx

KEEP_ALIVE_S = 4.0  # below the 5 s after which common servers close an idle connection

Connect = Callable[[], httpx.AsyncBaseTransport]


class UnansweredError(httpx.RemoteProtocolError):
    """A kept connection was closed by the server before one byte of an answer came.

    Nothing was wrong with it when the request was written, as far as could be seen from here.
    """


class Lanes:
    """As many connections as requests in flight, each with a transport of its own.

    One pool for all of them searches its connections at every request, which makes a client's
    own cost grow with the load.
    """

    def __init__(self, connect: Connect) -> None:
        self._connect = connect
        self._idle: list[httpx.AsyncBaseTransport] = []

    def take(self) -> httpx.AsyncBaseTransport:
        """The connection that was used last, which is the least likely to be closed by now."""
        return self._idle.pop() if self._idle else self._connect()

    def give(self, lane: httpx.AsyncBaseTransport) -> None:
        """The lane is free again."""
        self._idle.append(lane)

    async def open(self, request: httpx.Request) -> None:
        """One connection, with a request of which nothing is expected."""
        lane = self.take()
        with contextlib.suppress(httpx.TransportError):
            response = await lane.handle_async_request(request)
            assert isinstance(response.stream, httpx.AsyncByteStream)
            async for _ in response.stream:
                pass
            await response.aclose()
        self.give(lane)

    async def close(self) -> None:
        """Close what is idle."""
        await asyncio.sleep(0)  # what was just cancelled gives its lane back
        while self._idle:
            await self._idle.pop().aclose()


class Lane(httpx.AsyncHTTPTransport):
    """One connection at a time to one server, kept between requests and opened when needed.

    It is `httpx.AsyncHTTPTransport` with a network that tells whether anything was heard.
    """

    def __init__(self, context: ssl.SSLContext) -> None:
        super().__init__(verify=context)
        self._network = _Network()
        self._pool = httpcore.AsyncConnectionPool(
            ssl_context=context,
            max_connections=1,
            max_keepalive_connections=1,
            keepalive_expiry=KEEP_ALIVE_S,
            network_backend=self._network,
        )

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """The head of the answer. UnansweredError where the connection was kept and is gone."""
        network = self._network
        network.opened = network.heard = False
        try:
            return await super().handle_async_request(request)
        except (httpx.ReadError, httpx.WriteError, httpx.RemoteProtocolError) as error:
            if network.opened or network.heard:
                raise
            raise UnansweredError(str(error), request=request) from error


class _Network(httpcore.AsyncNetworkBackend):
    """TCP by the event loop; knows what happened on it since its two marks were last cleared."""

    def __init__(self) -> None:
        self.opened = False  # a connection was
        self.heard = False  # a byte came
        self._tcp = httpcore.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        self.opened = True
        stream = await self._tcp.connect_tcp(host, port, timeout, local_address, socket_options)
        return _Stream(stream, self)

    async def sleep(self, seconds: float) -> None:
        await self._tcp.sleep(seconds)


class _Stream(httpcore.AsyncNetworkStream):
    """A connection that marks in its network that something was read."""

    def __init__(self, stream: httpcore.AsyncNetworkStream, network: _Network) -> None:
        self._stream = stream
        self._network = network

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        found = await self._stream.read(max_bytes, timeout)
        if found:
            self._network.heard = True
        return found

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        await self._stream.write(buffer, timeout)

    async def aclose(self) -> None:
        await self._stream.aclose()

    async def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,
    ) -> httpcore.AsyncNetworkStream:
        inner = await self._stream.start_tls(ssl_context, server_hostname, timeout)
        return _Stream(inner, self._network)

    def get_extra_info(self, info: str) -> object:
        return self._stream.get_extra_info(info)


def connector(url: str) -> Connect:
    """Makes transports to a server: one connection each, certificates read once."""
    context = (
        httpx.create_ssl_context()
        if url.startswith("https:")
        else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # never used, and dear to make each time
    )
    return lambda: Lane(context)
