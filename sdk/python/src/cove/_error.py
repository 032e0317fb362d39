"""What every error of this package is. The classes, one for each code of the server, are in cove.errors."""
from __future__ import annotations

from typing import Any, ClassVar, Mapping, Optional


class CoveError(Exception):
    """Something was refused, failed, or could not be asked.

    Attributes:
        code: stable, for programs: "sandbox_ended"; docs/errors.md lists them all.
        message: what happened this time.
        cause: why it happened; None where the message says it all.
        fix: what to do; None where the message says it all.
        status: of the HTTP answer; None when there was none.
        request_id: the same id stands in the server's log.
        details: what else the server had to say.
        retry_after: seconds, when the server named them.
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
            self.code = code  # one that is younger than this package has no class of its own
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
    """The other side went away: the server, the connection, or the process that held a sandbox."""

    __module__ = "cove.errors"


class ExecutionFailedError(CoveError):
    """`Result.check()` met a program that did not end with status 0. `result` on it is what there is to see."""

    __module__ = "cove.errors"
    code = "execution_failed"
    result: Any = None


class WaitTimeoutError(CoveError):
    """`wait(timeout=...)` gave up waiting. The execution goes on; cancel it, or wait again."""

    __module__ = "cove.errors"
    code = "wait_timeout"
    default_cause = "The execution did not end within the time that the caller wanted to wait."
    default_fix = "Wait again, or cancel it: it goes on."
