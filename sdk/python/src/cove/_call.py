"""A request as a value, and the decision whether it is sent again; nothing here touches the network
or a clock.

A request without an answer may have been carried out. It is therefore repeated only if it is
idempotent (`repeatable`): a read, a change to a given state, or a request with an idempotency key.
A refusal with Retry-After was not carried out, so the request is always repeated; so is a request
whose connection was never made.
"""
from __future__ import annotations

import dataclasses
import os
from typing import Any, AsyncIterable, Callable, Dict, Iterator, List, Mapping, Optional, Tuple, Type, Union
from urllib.parse import quote

from ._error import CoveError
from ._json import loads
from ._settings import Retry
from ._wire import Headers
from .errors import (BY_CODE, ConflictError, ConnectionLostError, ForbiddenError, InternalError, InvalidRequestError, LostError,
                     NotFoundError, ProtocolError, RateLimitedError, SandboxEndedError, ServerNotTrustedError, ServerUnreachableError, ServiceUnavailableError, TimedOutError, UnauthorizedError)

NDJSON = "application/x-ndjson"
HEARTBEAT = 15.0
"""Seconds between two heartbeats in a stream."""
SILENCE = 3 * HEARTBEAT
"""Seconds; a stream that is silent for longer is dead."""
ANSWER_MAX = 64 << 20
"""Bytes of an answer that is held in memory completely; a call may allow more."""


@dataclasses.dataclass
class Body:
    """A body that is streamed. `open` produces its pieces again for each attempt, unless
    `repeatable` is false."""

    open: Callable[[], Union[Iterator[bytes], AsyncIterable[bytes]]]
    length: Optional[int] = None
    repeatable: bool = True


@dataclasses.dataclass
class Call:
    method: str
    path: str
    query: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    json: Optional[Mapping[str, Any]] = None
    body: Union[None, bytes, Body] = None
    headers: Dict[str, str] = dataclasses.field(default_factory=dict)
    repeatable: bool = True
    done_if: Tuple[Type[CoveError], ...] = ()
    """Errors of a repeated attempt that mean that the first attempt, whose answer was lost,
    succeeded."""
    read_timeout: Optional[float] = None
    also_ok: Tuple[int, ...] = ()
    """Statuses of 400 and above whose body is a normal answer."""
    answer_max: int = ANSWER_MAX

    def params(self) -> List[Tuple[str, str]]:
        """A list is a parameter that is repeated."""
        values = [(name, value) for name, given in self.query.items() if given is not None
                  for value in (given if isinstance(given, (list, tuple)) else (given,))]
        return [(name, "true" if value is True else "false" if value is False else str(value)) for name, value in values]


def path(*words: str) -> str:
    return "/" + "/".join(quote(word, safe="") for word in words)


def fresh_key() -> str:
    """An idempotency key for one call and its repetitions."""
    return os.urandom(16).hex()


class Attempts:
    """The attempts of one call, or of one stream between two pieces that arrived."""

    def __init__(self, retry: Retry, repeatable: bool, known: bool) -> None:
        self.retry, self.repeatable = retry, repeatable
        self.window = retry.window if known else min(retry.window, retry.unknown)
        self.failures = 0
        self.began: Optional[float] = None
        self.lost = False  # an attempt without an answer may have been carried out

    def pause(self, error: CoveError, now: float) -> float:
        """Seconds to wait before the next attempt; raises the error if there is no further
        attempt."""
        if not self.may_repeat(error):
            raise error
        if self.began is None:
            self.began = now
        import random

        wait = min(self.retry.first * 2.0 ** min(self.failures, 30), self.retry.longest) * random.uniform(0.5, 1.0)
        wait = max(wait, error.retry_after or 0.0)
        if now - self.began + wait > self.window:
            raise error
        self.failures += 1
        self.lost = self.lost or isinstance(error, ConnectionLostError)
        return wait

    def may_repeat(self, error: CoveError) -> bool:
        if isinstance(error, ServerUnreachableError) or error.retry_after is not None:
            return True
        return self.repeatable and (isinstance(error, ConnectionLostError) or error.status in (502, 503, 504) and not error.code)

    def record_success(self, known: bool = True) -> None:
        self.failures, self.began = 0, None
        self.window = self.retry.window if known else self.window


def connect_error(error: Exception, where: str) -> CoveError:
    """The error of this package for a connection that could not be made."""
    what = str(error) or type(error).__name__
    return (ServerNotTrustedError if "CERTIFICATE_VERIFY_FAILED" in what else ServerUnreachableError)(f"{where}: {what}")


def too_large_error(call: Call, limit: int, where: str) -> CoveError:
    return ProtocolError(f"{where}: the answer to {call.method} {call.path} has more than {limit} bytes, which is not allowed",
                         fix="Check that the address is that of a cove server. What is large is read with Files.stream, or as a stream of an execution.")


def closed_error(code: int, reason: str, where: str) -> CoveError:
    """The error for the close code of a WebSocket; docs/streaming.md lists the codes."""
    why = f"{where} closed the connection: {reason or code}"
    if code == 4401:
        return UnauthorizedError(reason or "the key was revoked or has expired")
    if code == 4410:
        return SandboxEndedError(reason or "the sandbox has ended")
    if code == 1008:
        return ForbiddenError(why)
    return ProtocolError(why) if code in (1002, 1003, 1007, 1009, 1010) else ConnectionLostError(why)


BY_STATUS = {400: InvalidRequestError, 401: UnauthorizedError, 403: ForbiddenError, 404: NotFoundError, 409: ConflictError, 410: NotFoundError,
             429: RateLimitedError, 502: LostError, 503: ServiceUnavailableError, 504: TimedOutError}


def answer_error(status: int, headers: Headers, content: bytes) -> CoveError:
    """The error in an answer with a status of 400 or more. An error that does not come from cove
    has an empty code."""
    request_id: Optional[str] = headers.get("X-Request-Id")
    try:
        wait: Optional[float] = max(float(headers.get("Retry-After") or "none"), 0.0)
    except ValueError:
        wait = None
    general = BY_STATUS.get(status, InternalError if status >= 500 else InvalidRequestError)
    try:
        fields = loads(content)["error"]
        code, message = str(fields["code"]), str(fields["message"])
    except (CoveError, KeyError, TypeError):
        text = content[:200].decode("utf-8", "replace").strip()
        return general(f"the answer was {status}: {text}" if text else f"the answer was {status}", code="", status=status, request_id=request_id,
                       retry_after=wait, cause="The answer did not come from cove, or is incomplete.",
                       fix="Check the address, and any proxy between this program and the server.")
    return BY_CODE.get(code, general)(message, code=code, cause=fields.get("cause"), fix=fields.get("fix"), status=status,
                                      request_id=fields.get("requestId") or request_id, details=fields.get("details"), retry_after=wait)


def event_error(fields: Mapping[str, Any]) -> CoveError:
    """The error that ended a stream after its answer had begun."""
    code = str(fields.get("code") or "")
    return BY_CODE.get(code, CoveError)(str(fields.get("message") or "the stream ended"), code=code, cause=fields.get("cause"), fix=fields.get("fix"),
                                        request_id=fields.get("requestId"), details=fields.get("details"))
