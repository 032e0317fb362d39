# Written by tools/unasync.py from _async/_http.py: change that.
"""One connection pool to one server: requests that are repeated where that is safe, and streams of
lines and of bytes.
"""
from __future__ import annotations

import contextlib
import logging
import time
from typing import Any, Iterator, Callable, Dict, List, Optional, Type, TypeVar

import httpx

from .. import _sio
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


def renew_login(settings: Settings) -> None:
    """Renews an identity provider's token that is about to expire, before a request."""
    if settings.login is not None and settings.login.is_due():
        _sio.blocking(settings.login.renew)


def delete_on_exit(delete: Callable[[], Any], error: Optional[BaseException]) -> None:
    """Deletes the object of a block when the block ends, also in a cancelled task.

    `error` is the exception of the block, if there was one; it takes precedence over an error of
    the deletion.
    """
    with _sio.shielded():
        try:
            delete()
        except NotFoundError:
            pass
        except CoveError:
            if error is None:
                raise


class HTTP:
    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.known = False  # true after the first answer of the server
        trust = settings.trust()
        self.client = _sio.HTTPClient(
            base_url=settings.url, headers=settings.headers(), timeout=httpx.Timeout(settings.timeout, connect=min(settings.timeout, 10.0)),
            limits=httpx.Limits(max_connections=CONNECTIONS, max_keepalive_connections=20), trust_env=not settings.local,
            verify=trust, transport=_sio.HTTPTransport(uds=settings.socket, verify=trust) if settings.socket else None)

    def close(self) -> None:
        self.client.close()

    def attempts(self, repeatable: bool = True) -> Attempts:
        return Attempts(self.settings.retry, repeatable, self.known)

    def open(self, call: Call) -> httpx.Response:
        """Sends one attempt and raises a refusal. The caller reads and closes the body of the
        response."""
        headers: Dict[str, str] = dict(call.headers)
        renew_login(self.settings)
        if self.settings.login is not None:
            headers["Authorization"] = f"Bearer {self.settings.bearer}"
        body: Any = call.body
        if isinstance(body, Body):
            if body.length is not None:
                headers["Content-Length"] = str(body.length)
            body = _sio.pieces(body.open())
        read = call.read_timeout or self.settings.timeout
        request = self.client.build_request(
            call.method, call.path, params=call.params() or None, json=call.json, content=body, headers=headers,
            timeout=httpx.Timeout(self.settings.timeout, connect=min(self.settings.timeout, 10.0), read=read))
        try:
            response = self.client.send(request, stream=True)
            self.known = True
            if response.status_code < 400 or response.status_code in call.also_ok:
                return response
            try:
                content = self.read(response, call, ANSWER_MAX)
            finally:
                response.close()
        except httpx.HTTPError as error:
            raise transport_error(error, self.settings.where) from error
        raise answer_error(response.status_code, response.headers, content)

    def once(self, call: Call) -> httpx.Response:
        response = self.open(call)
        try:
            content = self.read(response, call, call.answer_max)
        except httpx.HTTPError as error:
            raise transport_error(error, self.settings.where) from error
        finally:
            response.close()
        headers = [(name, value) for name, value in response.headers.multi_items() if name.lower() not in FRAMING]
        return httpx.Response(response.status_code, headers=headers, content=content)

    def read(self, response: httpx.Response, call: Call, limit: int) -> bytes:
        """The complete body, with a limit: a broken or hostile server may send an endless one."""
        pieces, size = [], 0
        for piece in response.iter_bytes():
            size += len(piece)
            if size > limit:
                raise too_large_error(call, limit, self.settings.where)
            pieces.append(piece)
        return b"".join(pieces)

    def again(self, attempts: Attempts, error: CoveError, what: str) -> None:
        """Waits before the next attempt; raises the error if there is no further attempt."""
        wait = attempts.pause(error, time.monotonic())
        log.debug("%s: %s; again in %.1f s", what, error.message, wait)
        _sio.sleep(wait)

    def send(self, call: Call) -> httpx.Response:
        """The complete answer, after as many attempts as the call and the retry settings allow."""
        attempts = self.attempts(call.repeatable and not (isinstance(call.body, Body) and not call.body.repeatable))
        while True:
            try:
                return self.once(call)
            except CoveError as error:
                if attempts.lost and isinstance(error, call.done_if):
                    return httpx.Response(204)
                self.again(attempts, error, f"{call.method} {call.path}")

    def json(self, call: Call) -> Dict[str, Any]:
        return loads_object((self.send(call)).content)

    def get(self, cls: Type[T], call: Call) -> T:
        return decode(cls, self.json(call))

    def pages(self, cls: Type[T], name: str, call: Call) -> Iterator[T]:
        """All items of a list; a page is fetched when its first item is needed."""
        cursor: Optional[str] = None
        while True:
            page = self.json(Call(call.method, call.path, {**call.query, "cursor": cursor}))
            for item in page.get(name, []):
                yield decode(cls, item)
            cursor = page.get("nextCursor")
            if not cursor:
                return

    def chunks(self, response: httpx.Response) -> _sio.ByteStream:
        """The pieces of a body. A body that ends early raises ConnectionLostError."""
        try:
            for chunk in response.iter_bytes():
                yield chunk
        except httpx.HTTPError as error:
            raise transport_error(error, self.settings.where) from error
        finally:
            response.close()


class LineStream:
    """The lines of an answer without a fixed end. The request is sent when the first line is
    needed, and again after `drop`."""

    def __init__(self, http: HTTP) -> None:
        self._http = http
        self._response: Optional[httpx.Response] = None
        self._chunks: Optional[_sio.ByteStream] = None
        self._cut = LineSplitter()
        self._waiting: List[bytes] = []

    @property
    def is_open(self) -> bool:
        return self._response is not None

    @property
    def is_drained(self) -> bool:
        """Whether no complete line is buffered, so that the next line needs network input."""
        return not self._waiting

    def open(self, call: Call) -> None:
        self._response = self._http.open(call)
        self._chunks = self._http.chunks(self._response)
        self._cut = LineSplitter()

    def next(self) -> bytes:
        assert self._chunks is not None
        while not self._waiting:
            try:
                self._waiting = self._cut.feed(self._chunks.__next__())
            except StopIteration:
                raise ConnectionLostError("the stream ended before its last event") from None
        return self._waiting.pop(0)

    def finish(self) -> None:
        """Reads the end of the answer after the last line, so that the next request can reuse the
        connection."""
        with contextlib.suppress(CoveError, StopIteration):
            if self._chunks is not None:
                self._chunks.__next__()
        self.drop()

    def drop(self) -> None:
        response, chunks, self._response, self._chunks, self._waiting = self._response, self._chunks, None, None, []
        with contextlib.suppress(httpx.HTTPError):
            if chunks is not None:
                chunks.close()
            if response is not None:
                response.close()
