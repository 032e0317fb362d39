"""The I/O primitives of the async half of the package. `_sio.py` has the same names for the sync
half.
"""
from __future__ import annotations

import functools
import inspect
import ssl
from typing import Any, AsyncGenerator, AsyncIterable, AsyncIterator, Callable, Optional, TypeVar, Union

import anyio
import anyio.abc
import anyio.to_thread
from anyio.streams.tls import TLSStream

from . import _local
from ._call import Body
from ._local import Content
from ._sockets import is_readable

T = TypeVar("T")
ByteStream = AsyncGenerator[bytes, None]
Lock = anyio.Lock
sleep = anyio.sleep


async def blocking(function: Callable[..., T], *args: Any) -> T:
    """Runs a function that waits for the disk in a thread, so that the event loop goes on."""
    return await anyio.to_thread.run_sync(functools.partial(function, *args))


async def call(function: Callable[[T], object], value: T) -> None:
    """Calls a function of the user; if it is asynchronous, waits for its end."""
    found = function(value)
    if inspect.isawaitable(found):
        await found


def shielded() -> anyio.CancelScope:
    """A scope for cleanup that must run even in a cancelled task, for at most 60 seconds."""
    return anyio.move_on_after(60, shield=True)


def body_of(content: Union[Content, AsyncIterable[bytes]]) -> Union[bytes, Body]:
    if isinstance(content, AsyncIterable):
        return Body(lambda: content, None, repeatable=False)
    return _local.body_of(content)


async def pieces(source: Any) -> AsyncIterator[bytes]:
    """Yields the same pieces. Pieces of a synchronous source come from the disk and are read in a
    thread."""
    if isinstance(source, AsyncIterable):
        async for piece in source:
            yield piece
        return
    while True:
        piece = await blocking(next, source, None)
        if piece is None:
            return
        yield piece


class ByteConnection:
    """A connection as a stream of bytes. Every failure is an OSError; TimeoutError is a subclass of
    OSError."""

    def __init__(self, stream: anyio.abc.ByteStream) -> None:
        self._stream = stream

    @classmethod
    async def open(cls, host: str, port: int, socket: Optional[str], context: Optional[ssl.SSLContext], timeout: float) -> ByteConnection:
        with anyio.fail_after(timeout):
            if socket is not None:
                return cls(await anyio.connect_unix(socket))
            connection = cls(await anyio.connect_tcp(host, port))
        if context is not None:
            try:
                await connection.start_tls(context, host, timeout)
            except BaseException:
                await connection.aclose()
                raise
        return connection

    async def start_tls(self, context: ssl.SSLContext, host: str, timeout: float) -> None:
        try:
            with anyio.fail_after(timeout):
                self._stream = await TLSStream.wrap(self._stream, server_side=False, hostname=host, ssl_context=context, standard_compatible=False)
        except (anyio.BrokenResourceError, anyio.EndOfStream) as error:
            raise OSError(f"the connection ended during the TLS handshake: {error!r}") from error

    def has_input(self) -> bool:
        """Whether bytes wait, or the other side has closed the connection."""
        return is_readable(self._stream.extra(anyio.abc.SocketAttribute.raw_socket))

    async def send(self, data: bytes, timeout: float) -> None:
        try:
            with anyio.fail_after(timeout):
                await self._stream.send(data)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError) as error:
            raise OSError(f"the connection is broken: {error!r}") from error

    async def receive(self, timeout: float) -> Optional[bytes]:
        """The bytes that arrived; b"" after the last byte, None if nothing arrives within `timeout`
        seconds."""
        try:
            with anyio.move_on_after(timeout):
                return await self._stream.receive(65536)
        except anyio.EndOfStream:
            return b""
        except (anyio.BrokenResourceError, anyio.ClosedResourceError) as error:
            raise OSError(f"the connection is broken: {error!r}") from error
        return None

    async def cut(self) -> None:
        """Closes the connection while another task may be reading from it."""
        await anyio.aclose_forcefully(self._stream)

    async def aclose(self) -> None:
        await anyio.aclose_forcefully(self._stream)


class Turns:
    """At most `count` turns at the same time."""

    def __init__(self, count: int) -> None:
        self._count = anyio.Semaphore(count)

    async def take(self, timeout: float) -> bool:
        """Whether a turn became free within `timeout` seconds."""
        with anyio.move_on_after(timeout):
            await self._count.acquire()
            return True
        return False

    def give(self) -> None:
        self._count.release()


class ReaderTurn:
    """Lets one of several tasks that wait for the same connection read for all of them.

    `count` grows with every message that may concern a waiting task.
    """

    def __init__(self) -> None:
        self.count = 0
        self._busy = False
        self._waiter: Optional[anyio.Event] = None

    def take(self) -> bool:
        free, self._busy = not self._busy, True
        return free

    def give(self) -> None:
        self._busy = False
        self.notify()

    def notify(self) -> None:
        self.count += 1
        if self._waiter is not None:
            self._waiter.set()
            self._waiter = None

    async def wait(self, seen: int, timeout: Optional[float]) -> None:
        """Waits until `count` differs from `seen`."""
        if self.count == seen:
            self._waiter = self._waiter or anyio.Event()
            with anyio.move_on_after(timeout):
                await self._waiter.wait()
