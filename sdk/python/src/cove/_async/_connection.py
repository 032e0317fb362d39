"""The connections to one server: opened when a request needs one, kept for the next request.

A request never waits for another: it takes a connection that is idle, or opens one. At most
CONNECTIONS are open; beyond that a request waits for its turn, at most for the timeout of the
client. A connection that was idle for long is not used again, because the server may be about to
close it.
"""
from __future__ import annotations

import dataclasses
import os
import time
from typing import AsyncIterable, Dict, List, Mapping, Optional, Tuple, Union
from urllib.parse import urlsplit

from .. import _aio
from .._call import connect_error
from .._settings import Proxy, Settings
from .._wire import LAST_CHUNK, AnswerParser, Headers, WireError, chunk_of, request_head
from ..errors import ConnectionLostError, TimedOutError

CONNECTIONS = 200
"""A server closes connections beyond http.maxConnectionsPerAddress, which is 256 by default."""
IDLE_CONNECTIONS = 20
IDLE_MAX = 5.0
"""Seconds."""
PIECE = 256 << 10
"""Bytes that are sent within one timeout."""


@dataclasses.dataclass(frozen=True)
class Answer:
    """An answer that was read completely."""

    status: int
    headers: Headers
    content: bytes

    @property
    def text(self) -> str:
        return self.content.decode("utf-8", "replace")


async def open_connection(settings: Settings, proxy: Optional[Proxy] = None) -> _aio.ByteConnection:
    """A connection to the server, with TLS if its URL says so."""
    parts = urlsplit(settings.url)
    secure, host = parts.scheme == "https", parts.hostname or ""
    port, timeout = parts.port or (443 if secure else 80), min(settings.timeout, 10.0)
    try:
        if proxy is None:
            return await _aio.ByteConnection.open(host, port, settings.socket, settings.trust if secure else None, timeout)
        connection = await _aio.ByteConnection.open(proxy.host, proxy.port, None, None, timeout)
        if secure:
            try:
                await ask_for_tunnel(connection, f"{host}:{port}", proxy, timeout)
                await connection.start_tls(settings.trust, host, timeout)
            except BaseException:
                await connection.aclose()
                raise
        return connection
    except (OSError, WireError) as error:
        raise connect_error(error, settings.where) from error


async def ask_for_tunnel(connection: _aio.ByteConnection, target: str, proxy: Proxy, timeout: float) -> None:
    await connection.send(request_head("CONNECT", target, {"Host": target, **proxy.headers}), timeout)
    parser = AnswerParser("HEAD")  # like the answer to HEAD, a tunnel's answer has no body
    while not parser.ended:
        data = await connection.receive(timeout)
        if data is None:
            raise OSError("the proxy did not answer")
        parser.feed(data)
    if parser.status != 200:
        raise OSError(f"the proxy {proxy.host}:{proxy.port} refused the connection with status {parser.status}")


class AsyncConnections:
    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        parts = urlsplit(settings.url)
        self._proxy = settings.proxy()
        self.closed = False
        self._prefix = parts.path.rstrip("/")
        self._host = parts.netloc.rpartition("@")[2]
        self._headers: Dict[str, str] = {}
        if self._proxy is not None and parts.scheme == "http":
            self._prefix = f"http://{self._host}{self._prefix}"
            self._headers = self._proxy.headers
        self._start()

    def _start(self) -> None:
        self._pid = os.getpid()
        self._idle: List[Tuple[_aio.ByteConnection, float]] = []
        self._turns = _aio.Turns(CONNECTIONS)

    async def aclose(self) -> None:
        """Refuses further requests, and closes the idle connections; others are closed when their
        answers end."""
        self.closed = True
        await self.close_idle()

    async def close_idle(self) -> None:
        while self._idle:
            await self._idle.pop()[0].aclose()

    def lost(self, why: object) -> ConnectionLostError:
        return ConnectionLostError(f"{self.settings.where}: {why}")

    async def request(self, method: str, target: str, headers: Mapping[str, str], body: Union[None, bytes, AsyncIterable[bytes]],
                      read_timeout: float) -> AsyncResponse:
        """Sends a request and reads the head of its answer. A body in pieces is sent in chunks,
        unless the headers have its length."""
        if self.closed:
            raise RuntimeError("this client is closed; make another")
        framing: Dict[str, str] = {}
        if "Content-Length" not in headers:
            framing = {"Content-Length": str(len(body or b""))} if body is None or isinstance(body, bytes) else {"Transfer-Encoding": "chunked"}
        head = request_head(method, self._prefix + target, {"Host": self._host, **self._headers, **headers, **framing})
        if self._pid != os.getpid():  # connections of the parent of a forked process
            self._start()
        if not await self._turns.take(self.settings.timeout):
            raise TimedOutError("all connections of this client are in use", fix="Close streams that are no longer read, or use a second client.")
        connection: Optional[_aio.ByteConnection] = None
        try:
            connection = await self._idle_connection() or await open_connection(self.settings, self._proxy)
            response = AsyncResponse(self, connection, AnswerParser(method), read_timeout)
            await self._send(response, connection, head, body, "Transfer-Encoding" in framing)
            await response.read_head()
            return response
        except BaseException:
            await self.give_back(connection, False)
            raise

    async def _idle_connection(self) -> Optional[_aio.ByteConnection]:
        while self._idle:
            connection, since = self._idle.pop()
            if time.monotonic() - since < IDLE_MAX and not connection.has_input():
                return connection
            await connection.aclose()
        return None

    async def give_back(self, connection: Optional[_aio.ByteConnection], keep: bool) -> None:
        """Ends the turn of a request. The connection is kept if another request can use it."""
        try:
            if keep and not self.closed and connection is not None and len(self._idle) < IDLE_CONNECTIONS:
                self._idle.append((connection, time.monotonic()))
            elif connection is not None:
                await connection.aclose()
        finally:
            self._turns.give()

    async def _send(self, response: AsyncResponse, connection: _aio.ByteConnection, head: bytes, body: Union[None, bytes, AsyncIterable[bytes]],
                    chunked: bool) -> None:
        """Sends head and body. A server that refuses a body answers and closes its side. The answer
        is read then, and the failure to send is reported only without an answer."""
        timeout = self.settings.timeout
        if body is None or isinstance(body, bytes):
            whole = head + (body or b"")
            for at in range(0, len(whole), PIECE):
                if not await response.put(connection, whole[at:at + PIECE], timeout):
                    return
            return
        await response.put(connection, head, timeout)
        async for piece in body:
            if not await response.put(connection, chunk_of(piece) if chunked else piece, timeout):
                return
        if chunked:
            await response.put(connection, LAST_CHUNK, timeout)


class AsyncResponse:
    """An answer whose body is read in pieces. Its connection is returned when the body has ended,
    and closed when `aclose` comes first."""

    def __init__(self, connections: AsyncConnections, connection: _aio.ByteConnection, parser: AnswerParser, read_timeout: float) -> None:
        self._connections = connections
        self._connection: Optional[_aio.ByteConnection] = connection
        self._parser = parser
        self._read_timeout = read_timeout
        self._pieces: List[bytes] = []
        self._failure: Optional[OSError] = None  # of sending the request

    @property
    def status(self) -> int:
        return self._parser.status

    @property
    def headers(self) -> Headers:
        return self._parser.headers

    async def put(self, connection: _aio.ByteConnection, data: bytes, timeout: float) -> bool:
        try:
            await connection.send(data, timeout)
        except TimeoutError as error:
            raise self._connections.lost("it took no data for too long") from error
        except OSError as error:
            self._failure = error
            return False
        return True

    async def read_head(self) -> None:
        while not self.status:
            await self._read()

    async def piece(self) -> Optional[bytes]:
        """The next piece of the body; None after the last."""
        while not self._pieces:
            if self._parser.ended or self._connection is None:
                await self._finish(self._parser.ended and self._parser.keeps and self._failure is None)
                return None
            await self._read()
        return self._pieces.pop(0)

    async def _read(self) -> None:
        assert self._connection is not None
        lost = self._connections.lost
        try:
            data = await self._connection.receive(self._read_timeout)
            if data is None:
                raise ConnectionLostError(f"{self._connections.settings.where} sent nothing for too long")
            self._pieces += self._parser.feed(data)
        except (OSError, ValueError) as error:  # ValueError: the connection was closed meanwhile, or the answer is malformed
            raise lost(self._failure or error) from error

    async def _finish(self, keep: bool) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            await self._connections.give_back(connection, keep)

    async def aclose(self) -> None:
        await self._finish(False)
