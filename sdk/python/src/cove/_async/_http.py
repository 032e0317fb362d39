"""One connection pool to one server: requests that are repeated where that is safe, and streams of
lines and of bytes.
"""
from __future__ import annotations

import contextlib
import logging
import time
from typing import Any, AsyncIterator, Callable, Dict, List, Optional, Type, TypeVar

import httpx

from .. import _aio
from .._call import ANSWER_MAX, Attempts, Body, Call, answer_error, too_large_error, transport_error
from .._error import CoveError
from .._json import decode, loads_object
from .._settings import Settings
from ..errors import ConnectionLostError, NotFoundError
from ..events import LineSplitter

T = TypeVar("T")
CONNECTIONS = 200  # a server closes connections beyond http.maxConnectionsPerAddress, which is 256 by default
FRAMING = ("content-encoding", "content-length", "transfer-encoding")  # describe the body before it was decoded
log = logging.getLogger("cove")


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
        trust = settings.trust()
        self.client = _aio.HTTPClient(
            base_url=settings.url, headers=settings.headers(), timeout=httpx.Timeout(settings.timeout, connect=min(settings.timeout, 10.0)),
            limits=httpx.Limits(max_connections=CONNECTIONS, max_keepalive_connections=20), trust_env=not settings.local,
            verify=trust, transport=_aio.HTTPTransport(uds=settings.socket, verify=trust) if settings.socket else None)

    async def aclose(self) -> None:
        await self.client.aclose()

    def attempts(self, repeatable: bool = True) -> Attempts:
        return Attempts(self.settings.retry, repeatable, self.known)

    async def open(self, call: Call) -> httpx.Response:
        """Sends one attempt and raises a refusal. The caller reads and closes the body of the
        response."""
        headers: Dict[str, str] = dict(call.headers)
        await renew_login(self.settings)
        if self.settings.login is not None:
            headers["Authorization"] = f"Bearer {self.settings.bearer}"
        body: Any = call.body
        if isinstance(body, Body):
            if body.length is not None:
                headers["Content-Length"] = str(body.length)
            body = _aio.pieces(body.open())
        read = call.read_timeout or self.settings.timeout
        request = self.client.build_request(
            call.method, call.path, params=call.params() or None, json=call.json, content=body, headers=headers,
            timeout=httpx.Timeout(self.settings.timeout, connect=min(self.settings.timeout, 10.0), read=read))
        try:
            response = await self.client.send(request, stream=True)
            self.known = True
            if response.status_code < 400 or response.status_code in call.also_ok:
                return response
            try:
                content = await self.read(response, call, ANSWER_MAX)
            finally:
                await response.aclose()
        except httpx.HTTPError as error:
            raise transport_error(error, self.settings.where) from error
        raise answer_error(response.status_code, response.headers, content)

    async def once(self, call: Call) -> httpx.Response:
        response = await self.open(call)
        try:
            content = await self.read(response, call, call.answer_max)
        except httpx.HTTPError as error:
            raise transport_error(error, self.settings.where) from error
        finally:
            await response.aclose()
        headers = [(name, value) for name, value in response.headers.multi_items() if name.lower() not in FRAMING]
        return httpx.Response(response.status_code, headers=headers, content=content)

    async def read(self, response: httpx.Response, call: Call, limit: int) -> bytes:
        """The complete body, with a limit: a broken or hostile server may send an endless one."""
        pieces, size = [], 0
        async for piece in response.aiter_bytes():
            size += len(piece)
            if size > limit:
                raise too_large_error(call, limit, self.settings.where)
            pieces.append(piece)
        return b"".join(pieces)

    async def again(self, attempts: Attempts, error: CoveError, what: str) -> None:
        """Waits before the next attempt; raises the error if there is no further attempt."""
        wait = attempts.pause(error, time.monotonic())
        log.debug("%s: %s; again in %.1f s", what, error.message, wait)
        await _aio.sleep(wait)

    async def send(self, call: Call) -> httpx.Response:
        """The complete answer, after as many attempts as the call and the retry settings allow."""
        attempts = self.attempts(call.repeatable and not (isinstance(call.body, Body) and not call.body.repeatable))
        while True:
            try:
                return await self.once(call)
            except CoveError as error:
                if attempts.lost and isinstance(error, call.done_if):
                    return httpx.Response(204)
                await self.again(attempts, error, f"{call.method} {call.path}")

    async def json(self, call: Call) -> Dict[str, Any]:
        return loads_object((await self.send(call)).content)

    async def get(self, cls: Type[T], call: Call) -> T:
        return decode(cls, await self.json(call))

    async def pages(self, cls: Type[T], name: str, call: Call) -> AsyncIterator[T]:
        """All items of a list; a page is fetched when its first item is needed."""
        cursor: Optional[str] = None
        while True:
            page = await self.json(Call(call.method, call.path, {**call.query, "cursor": cursor}))
            for item in page.get(name, []):
                yield decode(cls, item)
            cursor = page.get("nextCursor")
            if not cursor:
                return

    async def chunks(self, response: httpx.Response) -> _aio.ByteStream:
        """The pieces of a body. A body that ends early raises ConnectionLostError."""
        try:
            async for chunk in response.aiter_bytes():
                yield chunk
        except httpx.HTTPError as error:
            raise transport_error(error, self.settings.where) from error
        finally:
            await response.aclose()


class AsyncLineStream:
    """The lines of an answer without a fixed end. The request is sent when the first line is
    needed, and again after `drop`."""

    def __init__(self, http: AsyncHTTP) -> None:
        self._http = http
        self._response: Optional[httpx.Response] = None
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
        with contextlib.suppress(httpx.HTTPError):
            if chunks is not None:
                await chunks.aclose()
            if response is not None:
                await response.aclose()
