"""The result of an execution: the same for code and commands, in a context, in a sandbox, and in a
sandbox that was made for this one execution.
"""
from __future__ import annotations

import base64
import dataclasses
import datetime
from typing import Any, Dict, List, Mapping, Optional, Tuple, Union

from ._error import ExecutionFailedError
from ._json import decode, encode, loads_object, raw, seconds
from ._model_text import model_text
from .errors import ProtocolError
from .events import EVENT_CLASSES, DisplayEvent, ExceptionEvent, OutputCollector, OutputEvent, StreamProgress
from .models import Reason, ReceiptSummary

ExecuteEvent = Union[OutputEvent, DisplayEvent, ExceptionEvent]
REASONS = {
    "timeout": "it ran longer than its timeout",
    "cpu": "it used more CPU time than its limit",
    "lifetime": "it ran longer than the lifetime of its sandbox",
    "idle": "its sandbox was idle for too long",
    "memory": "it reached the memory limit",
    "killed": "it was cancelled, or its sandbox was ended",
    "lost": "its sandbox was lost",
}
"""By `ended_by`."""


@dataclasses.dataclass(frozen=True)
class Violation:
    """A use of code that the tier simple advises against or refuses."""

    type: str
    """Name of the rule."""
    description: str
    severity: str
    """low and medium are advice; high and critical refuse the code."""
    recommendation: str
    line: Optional[int] = None
    column: Optional[int] = None


@dataclasses.dataclass(frozen=True)
class CodeReport:
    """The report of the check of code. The walls of the sandbox are the boundary, not the check."""

    language: str
    checked: str
    """rules; or syntax: of other languages than Python."""
    tier: str
    """The tier that fits the code: calculate, simple or full."""
    is_safe: Optional[bool] = None
    """The tier simple runs the code; None if only the syntax was checked."""
    risk: Optional[str] = None
    """low, medium, high or critical."""
    violations: List[Violation] = dataclasses.field(default_factory=list)
    omitted_violations: int = 0
    recommendations: List[str] = dataclasses.field(default_factory=list)
    safe_alternative: Optional[str] = None
    imports: List[str] = dataclasses.field(default_factory=list)
    complexity: Optional[int] = None
    pure: bool = False
    """Nothing in the code differs between two runs, as far as the check sees."""
    raw: Mapping[str, Any] = raw()


@dataclasses.dataclass(frozen=True)
class OmittedFile:
    """A file that was requested with `outputs` and is not in the answer."""

    path: str
    reason: str


@dataclasses.dataclass(frozen=True, repr=False)
class Result:
    """The result of an execution that has ended. A program that failed has a result too: look at
    `success`, or call `check()`."""

    id: str
    sandbox_id: str = ""
    """Empty if the calculator answered."""
    outcome: str = ""
    """success, error, timeout, out_of_memory, killed or lost."""
    exit_code: Optional[int] = None
    """None when a signal or a limit ended the execution."""
    signal: Optional[int] = None
    ended_by: Optional[str] = None
    """exit, signal, lifetime, idle, timeout, cpu, memory, killed or lost."""
    text: Optional[str] = dataclasses.field(default=None, metadata={"json": "value"})
    """The value of the last expression, as text."""
    results: List[DisplayEvent] = dataclasses.field(default_factory=list)
    """The displayed values and the value of the last expression, in order."""
    stdout: str = ""
    """Invalid UTF-8 is U+FFFD here and exact in `stdout_bytes`."""
    stderr: str = ""
    truncated: bool = False
    """There was more output than is kept."""
    dropped_bytes: int = 0
    """Output beyond the limit, which was not kept."""
    exception: Optional[ExceptionEvent] = None
    """The exception of the code. After a timeout its name is TimeoutError."""
    hint: Optional[str] = None
    """After a failure: the cause, what is available instead, and what to change."""
    error: Optional[Reason] = None
    """Why the execution could not be started, or ended without a result."""
    started_at: Optional[datetime.datetime] = None
    ended_at: Optional[datetime.datetime] = None
    context_id: Optional[str] = None
    """The context in which the code ran."""
    context_reset: bool = False
    """The language kernel was restarted: the variables of the context are lost."""
    receipt: ReceiptSummary = dataclasses.field(default_factory=ReceiptSummary)
    """Usage, denials and the limits that were reached; `Execution.receipt()` has more."""
    cached: bool = False
    """Of `execute`: the result is that of an earlier identical run."""
    pool: Optional[str] = None
    """Of `execute`: "hit": the sandbox was prepared by a pool; "recycled": it was used by the same
    tenant before and reset; "partial" or "miss"."""
    queued: float = seconds("queuedMs", 0.0)
    """Of `execute`: seconds in the queue."""
    answered_by: Optional[str] = None
    """Of `execute` with a tier: calculate, simple or full; check: the code was refused."""
    report: Optional[CodeReport] = None
    """Of `execute` with the tier simple or auto: the report of the check."""
    omitted: List[OmittedFile] = dataclasses.field(default_factory=list)
    """Of `execute`: files that were requested and are not in `files`."""
    raw: Mapping[str, Any] = raw()
    output: Optional[Tuple[bytes, bytes]] = dataclasses.field(default=None, metadata={"local": True})
    """The bytes of stdout and stderr, where they are known."""

    @property
    def stdout_bytes(self) -> bytes:
        return self.output[0] if self.output is not None else self.stdout.encode()

    @property
    def stderr_bytes(self) -> bytes:
        return self.output[1] if self.output is not None else self.stderr.encode()

    @property
    def files(self) -> Dict[str, bytes]:
        """Of `execute`: the files that `outputs` named, by path."""
        return {file["path"]: file["content"].encode() if "content" in file else base64.b64decode(file["contentBase64"])
                for file in self.raw.get("files", [])}

    @property
    def duration(self) -> Optional[float]:
        """Seconds from start to end, by the server's clock."""
        if self.started_at is None or self.ended_at is None:
            return None
        return (self.ended_at - self.started_at).total_seconds()

    @property
    def success(self) -> bool:
        """Whether the program ended by itself with status 0 and without an exception."""
        return self.outcome == "success"

    def failure(self) -> str:
        """Why the program did not succeed, in one line."""
        if self.error is not None:
            return self.error.message
        if self.ended_by in REASONS:
            return REASONS[self.ended_by]
        if self.exception is not None:
            return str(self.exception)
        last = self.stderr.strip().splitlines()[-1:]
        how = f"signal {self.signal} ended it" if self.signal is not None else f"it ended with status {self.exit_code}"
        return how + (f"; last line of stderr: {shortened(last[0])}" if last else "")

    def check(self) -> Result:
        """Returns itself after a success; otherwise raises ExecutionFailedError."""
        if self.success:
            return self
        error = ExecutionFailedError(self.failure())
        error.result = self
        raise error

    def for_model(self, max_chars: int = 4000) -> str:
        """This result as text for a language model, never longer than `max_chars`: outcome, output
        (its beginning and its end), values, the important frames of a traceback, and the hint."""
        return model_text(self, max_chars)

    def __repr__(self) -> str:
        pictures = ", ".join(kind for event in self.results for kind in event.data if kind.startswith("image/"))
        shown = {"exit_code": self.exit_code or None, "signal": self.signal, "text": self.text, "exception": self.exception and str(self.exception),
                 "error": self.error and self.error.message, "stdout": self.stdout or None, "stderr": self.stderr or None}
        pairs = [f"{name}={shortened(value)!r}" if isinstance(value, str) else f"{name}={value}" for name, value in shown.items() if value is not None]
        pairs += [f"results=[{pictures}]"] if pictures else []
        return f"<Result {' '.join([self.outcome, *pairs])}>"

    # Notebooks call this: the last value as it shows itself.

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> Tuple[Dict[str, Any], Dict[str, Any]]:
        return self.results[-1]._repr_mimebundle_() if self.results else ({"text/plain": repr(self)}, {})


def shortened(text: str) -> str:
    return text if len(text) <= 200 else text[:200] + "..."


def collected(execution: Mapping[str, Any], collector: OutputCollector) -> Result:
    """The result of an execution whose output, values and exception arrived as events. They are
    missing in what the server says about the end."""
    fields: Dict[str, Any] = {
        "results": [{name: value for name, value in encode(event).items() if name != "omitted" or value} for event in collector.shown],
        "stdout": collector.stdout.decode("utf-8", "replace"),
        "stderr": collector.stderr.decode("utf-8", "replace"),
    }
    if collector.raised is not None:
        fields["exception"] = {name: value for name, value in encode(collector.raised).items() if name != "type"}
    return dataclasses.replace(decode(Result, {**execution, **fields}), output=(collector.stdout, collector.stderr))


class ExecuteStreamParser:
    """Parses the lines of a streamed answer of `execute`, and builds the same result as an answer
    without streaming."""

    def __init__(self) -> None:
        self.answer: Optional[Result] = None
        self._progress = StreamProgress()
        self._collector = OutputCollector()

    def take(self, line: bytes) -> Optional[ExecuteEvent]:
        message = loads_object(line)
        kind = str(message.get("type"))
        event: Optional[Any] = None
        try:
            if kind == "output":
                event = self._progress.output(message)
            elif kind in ("display", "result", "exception"):
                event = decode(EVENT_CLASSES[kind], message)
            elif kind == "end":
                self.answer = collected(message["execution"], self._collector)
        except (KeyError, TypeError, ValueError) as error:
            raise ProtocolError(f"a piece of the stream is malformed: {error!r}") from error
        self._collector.take(event)
        return event
