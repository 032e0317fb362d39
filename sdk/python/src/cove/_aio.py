"""What the async half of the package waits with. `_sio.py` has the same names for the other half."""
from __future__ import annotations

import functools
from typing import Any, AsyncGenerator, AsyncIterable, AsyncIterator, Callable, TypeVar, Union

import anyio
import anyio.to_thread
import httpx

from . import _local
from ._call import Body
from ._local import Content

T = TypeVar("T")
ByteStream = AsyncGenerator[bytes, None]
HTTPClient = httpx.AsyncClient
HTTPTransport = httpx.AsyncHTTPTransport
sleep = anyio.sleep


async def blocking(function: Callable[..., T], *args: Any) -> T:
    """Runs what waits for the disk where it holds up nobody."""
    return await anyio.to_thread.run_sync(functools.partial(function, *args))


def shielded() -> anyio.CancelScope:
    """What has to be done even by a task that was cancelled; but not for ever."""
    return anyio.move_on_after(60, shield=True)


def body_of(content: Union[Content, AsyncIterable[bytes]]) -> Union[bytes, Body]:
    if isinstance(content, AsyncIterable):
        return Body(lambda: content, None, repeatable=False)
    return _local.body_of(content)


async def pieces(source: Any) -> AsyncIterator[bytes]:
    """The same pieces; those that come from the disk are read in a thread."""
    if isinstance(source, AsyncIterable):
        async for piece in source:
            yield piece
        return
    while True:
        piece = await blocking(next, source, None)
        if piece is None:
            return
        yield piece
