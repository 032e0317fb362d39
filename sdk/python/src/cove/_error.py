"""The base classes of all errors of this package. cove.errors has one class for each error code of
the server.
"""
from __future__ import annotations

from typing import Any, ClassVar, Mapping, Optional


class CoveError(Exception):
    """A request was refused, failed, or could not be sent.

    Attributes:
        code: stable, for programs: "sandbox_ended"; docs/errors.md lists all codes.
        message: what happened this time.
        cause: why it happened; None where the message says it all.
        fix: what to do; None where the message says it all.
        status: of the HTTP answer; None when there was none.
        request_id: the same id is in the server's log.
        details: further fields of the server's answer.
        retry_after: seconds to wait before a retry, if the server sent them.
    """

    __module__ = "cove.errors"
    code: str = ""
    default_cause: ClassVar[Optional[str]] = None
    default_fix: ClassVar[Optional[str]] = None

    def __init__(self, message: str, *, code: Optional[str] = None, cause: Optional[str] = None, fix: Optional[str] = None,
                 status: Optional[int] = None, request_id: Optional[str] = None, details: Optional[Mapping[str, Any]] = None,
                 retry_after: Optional[float] = None) -> None:
        super().__init__(message)
        if code is not None:
            self.code = code  # a code that is newer than this package has no class of its own
        self.message = message
        self.cause = cause if cause is not None else self.default_cause
        self.fix = fix if fix is not None else self.default_fix
        self.status = status
        self.request_id = request_id
        self.details: Mapping[str, Any] = details or {}
        self.retry_after = retry_after

    def __str__(self) -> str:
        text = f"{self.message} [{self.code}]" if self.code else self.message
        if self.cause:
            text += f"\n  cause: {self.cause}"
        if self.fix:
            text += f"\n  fix:   {self.fix}"
        return text

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.message!r}, code={self.code!r}, status={self.status}, request_id={self.request_id!r})"


class LostError(CoveError):
    """The server, the connection, or the process that held a sandbox went away."""

    __module__ = "cove.errors"


class ExecutionFailedError(CoveError):
    """`Result.check()` found a program that did not end with status 0. `result` is the complete
    result."""

    __module__ = "cove.errors"
    code = "execution_failed"
    result: Any = None


class WaitTimeoutError(CoveError):
    """`wait(timeout=...)` stopped waiting. The execution continues; cancel it, or wait again."""

    __module__ = "cove.errors"
    code = "wait_timeout"
    default_cause = "The execution did not end within the timeout of this call."
    default_fix = "Wait again, or cancel the execution: it continues."
