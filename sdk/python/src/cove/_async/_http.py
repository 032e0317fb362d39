"""One client of one server: requests that are repeated where that is safe, and streams of
lines and of bytes.
"""
from __future__ import annotations

import contextlib
import json
import time
from typing import Any, AsyncIterator, Callable, Dict, List, Optional, Type, TypeVar
from urllib.parse import quote, urlencode

from .. import _aio
from .._call import ANSWER_MAX, Attempts, Body, Call, answer_error, too_large_error
from .._error import CoveError
from .._json import decode, loads_object
from .._settings import Settings
from .._wire import Headers
from ..errors import ConnectionLostError, NotFoundError
from ..events import LineSplitter
from ._connection import Answer, AsyncConnections, AsyncResponse

T = TypeVar("T")


async def renew_login(settings: Settings) -> None:
    """Renews an identity provider's token that is about to expire, before a request."""
    if settings.login is not None and settings.login.is_due():
        await _aio.blocking(settings.login.renew)


async def delete_on_exit(delete: Callable[[], Any], error: Optional[BaseException]) -> None:
    """Deletes the object of a block when the block ends, also in a cancelled task.

    `error` is the exception of the block, if there was one; it takes precedence over an error of
    the deletion.
    """
    with _aio.shielded():
        try:
            await delete()
        except NotFoundError:
            pass
        except CoveError:
            if error is None:
                raise


class AsyncHTTP:
    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.known = False  # true after the first answer of the server
        self.connections = AsyncConnections(settings)
        self._headers = settings.headers()

    async def aclose(self) -> None:
        await self.connections.aclose()

    def attempts(self, repeatable: bool = True) -> Attempts:
        return Attempts(self.settings.retry, repeatable, self.known)

    async def open(self, call: Call) -> AsyncResponse:
        """Sends one attempt and raises a refusal. The caller reads and closes the body of the
        response."""
        headers = {**self._headers, **call.headers}
        await renew_login(self.settings)
        if self.settings.login is not None:
            headers["Authorization"] = f"Bearer {self.settings.bearer}"
        body: Any = call.body
        if isinstance(body, Body):
            if body.length is not None:
                headers["Content-Length"] = str(body.length)
            body = _aio.pieces(body.open())
        elif call.json is not None:
            headers["Content-Type"] = "application/json"
            body = json.dumps(call.json, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()
        query = urlencode(call.params(), quote_via=quote)
        response = await self.connections.request(call.method, f"{call.path}?{query}" if query else call.path, headers, body,
                                                  call.read_timeout or self.settings.timeout)
        self.known = True
        if response.status < 400 or response.status in call.also_ok:
            return response
        content = await self.read(response, call, ANSWER_MAX)
        raise answer_error(response.status, response.headers, content)

    async def once(self, call: Call) -> Answer:
        response = await self.open(call)
        return Answer(response.status, response.headers, await self.read(response, call, call.answer_max))

    async def read(self, response: AsyncResponse, call: Call, limit: int) -> bytes:
        """The complete body, with a limit: a broken or hostile server may send an endless one."""
        pieces, size = [], 0
        async for piece in self.chunks(response):
            size += len(piece)
            if size > limit:
                await response.aclose()
                raise too_large_error(call, limit, self.settings.where)
            pieces.append(piece)
        return b"".join(pieces)

    async def again(self, attempts: Attempts, error: CoveError, what: str) -> None:
        """Waits before the next attempt; raises the error if there is no further attempt."""
        wait = attempts.pause(error, time.monotonic())
        import logging

        logging.getLogger("cove").debug("%s: %s; again in %.1f s", what, error.message, wait)
        await _aio.sleep(wait)

    async def send(self, call: Call) -> Answer:
        """The complete answer, after as many attempts as the call and the retry settings allow."""
        attempts = self.attempts(call.repeatable and not (isinstance(call.body, Body) and not call.body.repeatable))
        while True:
            try:
                return await self.once(call)
            except CoveError as error:
                if attempts.lost and isinstance(error, call.done_if):
                    return Answer(204, Headers(), b"")
                await self.again(attempts, error, f"{call.method} {call.path}")

    async def json(self, call: Call) -> Dict[str, Any]:
        return loads_object((await self.send(call)).content)

    async def get(self, cls: Type[T], call: Call) -> T:
        return decode(cls, await self.json(call))

    async def pages(self, cls: Type[T], call: Call) -> AsyncIterator[T]:
        """All items of a list; a page is fetched when its first item is needed."""
        cursor: Optional[str] = None
        while True:
            page = await self.json(Call(call.method, call.path, {**call.query, "cursor": cursor}))
            for item in page.get("items", []):
                yield decode(cls, item)
            cursor = page.get("nextCursor")
            if not cursor:
                return

    async def chunks(self, response: AsyncResponse) -> _aio.ByteStream:
        """The pieces of a body. A body that ends early raises ConnectionLostError."""
        try:
            while True:
                piece = await response.piece()
                if piece is None:
                    return
                yield piece
        finally:
            await response.aclose()


class AsyncLineStream:
    """The lines of an answer without a fixed end. The request is sent when the first line is
    needed, and again after `drop`."""

    def __init__(self, http: AsyncHTTP) -> None:
        self._http = http
        self._response: Optional[AsyncResponse] = None
        self._chunks: Optional[_aio.ByteStream] = None
        self._cut = LineSplitter()
        self._waiting: List[bytes] = []

    @property
    def is_open(self) -> bool:
        return self._response is not None

    @property
    def is_drained(self) -> bool:
        """Whether no complete line is buffered, so that the next line needs network input."""
        return not self._waiting

    async def open(self, call: Call) -> None:
        self._response = await self._http.open(call)
        self._chunks = self._http.chunks(self._response)
        self._cut = LineSplitter()

    async def next(self) -> bytes:
        assert self._chunks is not None
        while not self._waiting:
            try:
                self._waiting = self._cut.feed(await self._chunks.__anext__())
            except StopAsyncIteration:
                raise ConnectionLostError("the stream ended before its last event") from None
        return self._waiting.pop(0)

    async def finish(self) -> None:
        """Reads the end of the answer after the last line, so that the next request can reuse the
        connection."""
        with contextlib.suppress(CoveError, StopAsyncIteration):
            if self._chunks is not None:
                await self._chunks.__anext__()
        await self.drop()

    async def drop(self) -> None:
        response, chunks, self._response, self._chunks, self._waiting = self._response, self._chunks, None, None, []
        if chunks is not None:
            await chunks.aclose()
        if response is not None:
            await response.aclose()
