"""The request and the result of `Cove.execute`."""
from __future__ import annotations

import base64
import dataclasses
import datetime
from typing import Any, Dict, List, Mapping, Optional, Sequence, Union

from ._error import ExecutionFailedError
from ._json import Duration, decode, encode, loads_object, milliseconds, raw, seconds, without_none
from .errors import ProtocolError
from .events import EVENT_CLASSES, OutputEvent, StreamProgress, ExceptionEvent, DisplayEvent
from .models import Reason, Resources

Content = Union[str, bytes]
ExecuteEvent = Union[OutputEvent, DisplayEvent, ExceptionEvent]
TIMEOUT_REASONS = {"timeout": "it ran longer than its timeout", "cpu": "it used more CPU time than allowed", "lifetime": "it ran longer than the lifetime of its sandbox"}


@dataclasses.dataclass(frozen=True)
class OmittedFile:
    """A file that was requested with `outputs` and is not in the answer."""

    path: str
    reason: str


@dataclasses.dataclass(frozen=True)
class ExecuteResult:
    """The result of one program in a sandbox that has been removed."""

    id: str
    sandbox_id: str
    outcome: str
    """success, error, timeout, out_of_memory, killed or lost."""
    ended_by: str
    truncated: bool
    """There was more output than this result holds."""
    dropped_bytes: int
    cached: bool
    pool: str
    """"hit": the sandbox was prepared by a pool; "recycled": it was used by the same tenant before
    and reset; "miss"."""
    queued: float = seconds("queuedMs")
    """Seconds in the queue."""
    exit_code: Optional[int] = None
    signal: Optional[int] = None
    stdout: str = ""
    stderr: str = ""
    results: List[DisplayEvent] = dataclasses.field(default_factory=list)
    """Of code: the displayed values, and the value of the last expression."""
    value: Optional[str] = None
    """The value of the last expression, as text."""
    exception: Optional[ExceptionEvent] = None
    hint: Optional[str] = None
    """Advice for the next step."""
    started_at: Optional[datetime.datetime] = None
    ended_at: Optional[datetime.datetime] = None
    error: Optional[Reason] = None
    omitted: List[OmittedFile] = dataclasses.field(default_factory=list)
    receipt: Dict[str, Any] = dataclasses.field(default_factory=dict, repr=False)
    raw: Mapping[str, Any] = raw()

    @property
    def files(self) -> Dict[str, bytes]:
        """The files that `outputs` named, by path."""
        return {file["path"]: file["content"].encode() if "content" in file else base64.b64decode(file["contentBase64"])
                for file in self.raw.get("files", [])}

    @property
    def text(self) -> Optional[str]:
        """The value of the last expression, as text."""
        return self.value

    @property
    def success(self) -> bool:
        return self.outcome == "success"

    def failure(self) -> str:
        """Why the program did not succeed, in one line."""
        if self.error:
            return self.error.message
        if self.ended_by in TIMEOUT_REASONS:
            return TIMEOUT_REASONS[self.ended_by]
        if self.exception:
            return str(self.exception)
        return f"it ended with status {self.exit_code}" if self.ended_by == "exit" else f"it was ended by: {self.ended_by}"

    def check(self) -> ExecuteResult:
        """Returns itself after a success; otherwise raises ExecutionFailedError."""
        if self.success:
            return self
        error = ExecutionFailedError(self.failure())
        error.result = self
        raise error


class ExecuteStreamParser:
    """Parses the lines of a streamed answer and builds the same result as an answer without
    streaming."""

    def __init__(self) -> None:
        self.progress = StreamProgress()
        self.written: Dict[str, bytearray] = {"stdout": bytearray(), "stderr": bytearray()}
        self.results: List[Any] = []
        self.exception: Any = None
        self.answer: Optional[ExecuteResult] = None

    def take(self, line: bytes) -> Optional[ExecuteEvent]:
        told = loads_object(line)
        kind = str(told.get("type"))
        try:
            if kind == "output":
                return self.output(told)
            if kind in ("display", "result"):
                self.results.append(told)
            elif kind == "exception":
                self.exception = told
            elif kind == "end":
                self.answer = decode(ExecuteResult, self.whole(told["execution"]))
        except (KeyError, TypeError, ValueError) as error:
            raise ProtocolError(f"a piece of the stream is malformed: {error!r}") from error
        return decode(EVENT_CLASSES[kind], told) if kind in ("display", "result", "exception") else None

    def output(self, told: Mapping[str, Any]) -> Optional[ExecuteEvent]:
        event = self.progress.output(told)
        if not isinstance(event, OutputEvent):
            return None
        self.written[event.type] += event.data
        return event

    def whole(self, end: Mapping[str, Any]) -> Dict[str, Any]:
        written = {name: data.decode("utf-8", "replace") for name, data in self.written.items()}
        return {**end, **written, "results": self.results, **({"exception": self.exception} if self.exception else {})}


def file_of(name: str, content: Content) -> Dict[str, str]:
    if isinstance(content, str):
        return {"path": name, "content": content}
    return {"path": name, "contentBase64": base64.b64encode(content).decode()}


def execute_body(code: Optional[str], command: Union[str, Sequence[str], None], files: Optional[Mapping[str, Content]], outputs: Sequence[str],
                 env: Optional[Mapping[str, str]], timeout: Optional[Duration], resources: Optional[Resources], **more: Any) -> Dict[str, Any]:
    """The server requires exactly one of `code` and `command`, and refuses other combinations."""
    return without_none(code=code, command=command if command is None or isinstance(command, str) else [*command],
                        files=[file_of(name, content) for name, content in files.items()] if files else None, outputs=[*outputs] or None,
                        env=None if env is None else dict(env), timeoutMs=None if timeout is None else milliseconds(timeout),
                        resources=None if resources is None else encode(resources), **more)
