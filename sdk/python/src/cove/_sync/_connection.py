# Written by tools/unasync.py from _async/_connection.py: change that.
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
from typing import Iterable, Dict, List, Mapping, Optional, Tuple, Union
from urllib.parse import urlsplit

from .. import _sio
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


def open_connection(settings: Settings, proxy: Optional[Proxy] = None) -> _sio.ByteConnection:
    """A connection to the server, with TLS if its URL says so."""
    parts = urlsplit(settings.url)
    secure, host = parts.scheme == "https", parts.hostname or ""
    port, timeout = parts.port or (443 if secure else 80), min(settings.timeout, 10.0)
    try:
        if proxy is None:
            return _sio.ByteConnection.open(host, port, settings.socket, settings.trust if secure else None, timeout)
        connection = _sio.ByteConnection.open(proxy.host, proxy.port, None, None, timeout)
        if secure:
            try:
                ask_for_tunnel(connection, f"{host}:{port}", proxy, timeout)
                connection.start_tls(settings.trust, host, timeout)
            except BaseException:
                connection.close()
                raise
        return connection
    except (OSError, WireError) as error:
        raise connect_error(error, settings.where) from error


def ask_for_tunnel(connection: _sio.ByteConnection, target: str, proxy: Proxy, timeout: float) -> None:
    connection.send(request_head("CONNECT", target, {"Host": target, **proxy.headers}), timeout)
    parser = AnswerParser("HEAD")  # like the answer to HEAD, a tunnel's answer has no body
    while not parser.ended:
        data = connection.receive(timeout)
        if data is None:
            raise OSError("the proxy did not answer")
        parser.feed(data)
    if parser.status != 200:
        raise OSError(f"the proxy {proxy.host}:{proxy.port} refused the connection with status {parser.status}")


class Connections:
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
        self._idle: List[Tuple[_sio.ByteConnection, float]] = []
        self._turns = _sio.Turns(CONNECTIONS)

    def close(self) -> None:
        """Refuses further requests, and closes the idle connections; others are closed when their
        answers end."""
        self.closed = True
        self.close_idle()

    def close_idle(self) -> None:
        while self._idle:
            self._idle.pop()[0].close()

    def lost(self, why: object) -> ConnectionLostError:
        return ConnectionLostError(f"{self.settings.where}: {why}")

    def request(self, method: str, target: str, headers: Mapping[str, str], body: Union[None, bytes, Iterable[bytes]],
                      read_timeout: float) -> Response:
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
        if not self._turns.take(self.settings.timeout):
            raise TimedOutError("all connections of this client are in use", fix="Close streams that are no longer read, or use a second client.")
        connection: Optional[_sio.ByteConnection] = None
        try:
            connection = self._idle_connection() or open_connection(self.settings, self._proxy)
            response = Response(self, connection, AnswerParser(method), read_timeout)
            self._send(response, connection, head, body, "Transfer-Encoding" in framing)
            response.read_head()
            return response
        except BaseException:
            self.give_back(connection, False)
            raise

    def _idle_connection(self) -> Optional[_sio.ByteConnection]:
        while self._idle:
            connection, since = self._idle.pop()
            if time.monotonic() - since < IDLE_MAX and not connection.has_input():
                return connection
            connection.close()
        return None

    def give_back(self, connection: Optional[_sio.ByteConnection], keep: bool) -> None:
        """Ends the turn of a request. The connection is kept if another request can use it."""
        try:
            if keep and not self.closed and connection is not None and len(self._idle) < IDLE_CONNECTIONS:
                self._idle.append((connection, time.monotonic()))
            elif connection is not None:
                connection.close()
        finally:
            self._turns.give()

    def _send(self, response: Response, connection: _sio.ByteConnection, head: bytes, body: Union[None, bytes, Iterable[bytes]],
                    chunked: bool) -> None:
        """Sends head and body. A server that refuses a body answers and closes its side. The answer
        is read then, and the failure to send is reported only without an answer."""
        timeout = self.settings.timeout
        if body is None or isinstance(body, bytes):
            whole = head + (body or b"")
            for at in range(0, len(whole), PIECE):
                if not response.put(connection, whole[at:at + PIECE], timeout):
                    return
            return
        response.put(connection, head, timeout)
        for piece in body:
            if not response.put(connection, chunk_of(piece) if chunked else piece, timeout):
                return
        if chunked:
            response.put(connection, LAST_CHUNK, timeout)


class Response:
    """An answer whose body is read in pieces. Its connection is returned when the body has ended,
    and closed when `aclose` comes first."""

    def __init__(self, connections: Connections, connection: _sio.ByteConnection, parser: AnswerParser, read_timeout: float) -> None:
        self._connections = connections
        self._connection: Optional[_sio.ByteConnection] = connection
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

    def put(self, connection: _sio.ByteConnection, data: bytes, timeout: float) -> bool:
        try:
            connection.send(data, timeout)
        except TimeoutError as error:
            raise self._connections.lost("it took no data for too long") from error
        except OSError as error:
            self._failure = error
            return False
        return True

    def read_head(self) -> None:
        while not self.status:
            self._read()

    def piece(self) -> Optional[bytes]:
        """The next piece of the body; None after the last."""
        while not self._pieces:
            if self._parser.ended or self._connection is None:
                self._finish(self._parser.ended and self._parser.keeps and self._failure is None)
                return None
            self._read()
        return self._pieces.pop(0)

    def _read(self) -> None:
        assert self._connection is not None
        lost = self._connections.lost
        try:
            data = self._connection.receive(self._read_timeout)
            if data is None:
                raise ConnectionLostError(f"{self._connections.settings.where} sent nothing for too long")
            self._pieces += self._parser.feed(data)
        except (OSError, ValueError) as error:  # ValueError: the connection was closed meanwhile, or the answer is malformed
            raise lost(self._failure or error) from error

    def _finish(self, keep: bool) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            self._connections.give_back(connection, keep)

    def close(self) -> None:
        self._finish(False)
