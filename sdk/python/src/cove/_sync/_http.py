# Written by tools/unasync.py from _async/_http.py: change that.
"""One client of one server: requests that are repeated where that is safe, and streams of
lines and of bytes.
"""
from __future__ import annotations

import contextlib
import json
import time
from typing import Any, Iterator, Callable, Dict, List, Optional, Type, TypeVar
from urllib.parse import quote, urlencode

from .. import _sio
from .._call import ANSWER_MAX, Attempts, Body, Call, answer_error, too_large_error
from .._error import CoveError
from .._json import decode, loads_object
from .._settings import Settings
from .._wire import Headers
from ..errors import ConnectionLostError, NotFoundError
from ..events import LineSplitter
from ._connection import Answer, Connections, Response

T = TypeVar("T")


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
        self.connections = Connections(settings)
        self._headers = settings.headers()

    def close(self) -> None:
        self.connections.close()

    def attempts(self, repeatable: bool = True) -> Attempts:
        return Attempts(self.settings.retry, repeatable, self.known)

    def open(self, call: Call) -> Response:
        """Sends one attempt and raises a refusal. The caller reads and closes the body of the
        response."""
        headers = {**self._headers, **call.headers}
        renew_login(self.settings)
        if self.settings.login is not None:
            headers["Authorization"] = f"Bearer {self.settings.bearer}"
        body: Any = call.body
        if isinstance(body, Body):
            if body.length is not None:
                headers["Content-Length"] = str(body.length)
            body = _sio.pieces(body.open())
        elif call.json is not None:
            headers["Content-Type"] = "application/json"
            body = json.dumps(call.json, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()
        query = urlencode(call.params(), quote_via=quote)
        response = self.connections.request(call.method, f"{call.path}?{query}" if query else call.path, headers, body,
                                                  call.read_timeout or self.settings.timeout)
        self.known = True
        if response.status < 400 or response.status in call.also_ok:
            return response
        content = self.read(response, call, ANSWER_MAX)
        raise answer_error(response.status, response.headers, content)

    def once(self, call: Call) -> Answer:
        response = self.open(call)
        return Answer(response.status, response.headers, self.read(response, call, call.answer_max))

    def read(self, response: Response, call: Call, limit: int) -> bytes:
        """The complete body, with a limit: a broken or hostile server may send an endless one."""
        pieces, size = [], 0
        for piece in self.chunks(response):
            size += len(piece)
            if size > limit:
                response.close()
                raise too_large_error(call, limit, self.settings.where)
            pieces.append(piece)
        return b"".join(pieces)

    def again(self, attempts: Attempts, error: CoveError, what: str) -> None:
        """Waits before the next attempt; raises the error if there is no further attempt."""
        wait = attempts.pause(error, time.monotonic())
        import logging

        logging.getLogger("cove").debug("%s: %s; again in %.1f s", what, error.message, wait)
        _sio.sleep(wait)

    def send(self, call: Call) -> Answer:
        """The complete answer, after as many attempts as the call and the retry settings allow."""
        attempts = self.attempts(call.repeatable and not (isinstance(call.body, Body) and not call.body.repeatable))
        while True:
            try:
                return self.once(call)
            except CoveError as error:
                if attempts.lost and isinstance(error, call.done_if):
                    return Answer(204, Headers(), b"")
                self.again(attempts, error, f"{call.method} {call.path}")

    def json(self, call: Call) -> Dict[str, Any]:
        return loads_object((self.send(call)).content)

    def get(self, cls: Type[T], call: Call) -> T:
        return decode(cls, self.json(call))

    def pages(self, cls: Type[T], call: Call) -> Iterator[T]:
        """All items of a list; a page is fetched when its first item is needed."""
        cursor: Optional[str] = None
        while True:
            page = self.json(Call(call.method, call.path, {**call.query, "cursor": cursor}))
            for item in page.get("items", []):
                yield decode(cls, item)
            cursor = page.get("nextCursor")
            if not cursor:
                return

    def chunks(self, response: Response) -> _sio.ByteStream:
        """The pieces of a body. A body that ends early raises ConnectionLostError."""
        try:
            while True:
                piece = response.piece()
                if piece is None:
                    return
                yield piece
        finally:
            response.close()


class LineStream:
    """The lines of an answer without a fixed end. The request is sent when the first line is
    needed, and again after `drop`."""

    def __init__(self, http: HTTP) -> None:
        self._http = http
        self._response: Optional[Response] = None
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
        if chunks is not None:
            chunks.close()
        if response is not None:
            response.close()
