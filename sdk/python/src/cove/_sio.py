"""The I/O primitives of the sync half of the package. `_aio.py` has the same names for the async
half.
"""
from __future__ import annotations

import contextlib
import inspect
import socket as sockets
import threading
import time
from typing import TYPE_CHECKING, Any, Callable, ContextManager, Generator, Iterator, Optional, TypeVar

from ._local import body_of as body_of
from ._sockets import is_readable

if TYPE_CHECKING:
    import ssl

T = TypeVar("T")
ByteStream = Generator[bytes, None, None]
Lock = threading.Lock
sleep = time.sleep


def shielded() -> ContextManager[None]:
    return contextlib.nullcontext()


def blocking(function: Callable[..., T], *args: Any) -> T:
    return function(*args)


def call(function: Callable[[T], object], value: T) -> None:
    """Calls a function of the user."""
    found = function(value)
    if inspect.iscoroutine(found):
        found.close()
        raise TypeError(f"{function!r}: is asynchronous; give a plain function, or use AsyncSandbox or AsyncCove")


def pieces(source: Any) -> Iterator[bytes]:
    return iter(source)


class ByteConnection:
    """A connection as a stream of bytes. Every failure is an OSError; a timeout is an OSError too.

    One thread reads and others write. The lock is for TLS, where both directions share one object;
    a thread that holds the lock never waits for the peer, except for the rest of a record or for
    space in a buffer.
    """

    def __init__(self, sock: sockets.socket) -> None:
        self._sock: Any = sock
        self._secure = False
        self._lock = threading.Lock()

    @classmethod
    def open(cls, host: str, port: int, socket: Optional[str], context: Optional[ssl.SSLContext], timeout: float) -> ByteConnection:
        if socket is not None:
            sock = sockets.socket(sockets.AF_UNIX, sockets.SOCK_STREAM)
            sock.settimeout(timeout)
            try:
                sock.connect(socket)
            except BaseException:
                sock.close()
                raise
            return cls(sock)
        plain = sockets.create_connection((host, port), timeout)
        plain.setsockopt(sockets.IPPROTO_TCP, sockets.TCP_NODELAY, 1)
        connection = cls(plain)
        if context is not None:
            try:
                connection.start_tls(context, host, timeout)
            except BaseException:
                plain.close()
                raise
        return connection

    def start_tls(self, context: ssl.SSLContext, host: str, timeout: float) -> None:
        self._sock.settimeout(timeout)
        self._sock, self._secure = context.wrap_socket(self._sock, server_hostname=host), True

    def has_input(self) -> bool:
        """Whether bytes wait, or the other side has closed the connection."""
        return is_readable(self._sock)

    def send(self, data: bytes, timeout: float) -> None:
        with self._lock:
            self._sock.settimeout(timeout)
            self._sock.sendall(data)

    def receive(self, timeout: float) -> Optional[bytes]:
        """The bytes that arrived; b"" after the last byte, None if nothing arrives within `timeout`
        seconds."""
        if not self._has_bytes(timeout):
            return None
        with self._lock:
            self._sock.settimeout(60)
            try:
                data: bytes = self._sock.recv(65536)
            except OSError as error:
                if self._secure and type(error).__name__ == "SSLEOFError":
                    return b""
                raise
            return data

    def _has_bytes(self, timeout: float) -> bool:
        return self._secure and bool(self._sock.pending()) or is_readable(self._sock, timeout)

    def cut(self) -> None:
        """Closes the connection while another thread may be reading from it."""
        with contextlib.suppress(OSError):
            self._sock.shutdown(sockets.SHUT_RDWR)

    def close(self) -> None:
        self._sock.close()


class Turns:
    """At most `count` turns at the same time."""

    def __init__(self, count: int) -> None:
        self._count = threading.Semaphore(count)

    def take(self, timeout: float) -> bool:
        """Whether a turn became free within `timeout` seconds."""
        return self._count.acquire(timeout=timeout)

    def give(self) -> None:
        self._count.release()


class ReaderTurn:
    """Lets one of several threads that wait for the same connection read for all of them.

    `count` grows with every message that may concern a waiting thread.
    """

    def __init__(self) -> None:
        self.count = 0
        self._busy = False
        self._changed = threading.Condition()

    def take(self) -> bool:
        with self._changed:
            free, self._busy = not self._busy, True
            return free

    def give(self) -> None:
        with self._changed:
            self._busy = False
            self.count += 1
            self._changed.notify_all()

    def notify(self) -> None:
        with self._changed:
            self.count += 1
            self._changed.notify_all()

    def wait(self, seen: int, timeout: Optional[float]) -> None:
        """Waits until `count` differs from `seen`."""
        with self._changed:
            self._changed.wait_for(lambda: self.count != seen, timeout)
