"""What a stream tells, and how far it has come.

A stream may break at any byte and be taken up again. `StreamProgress` knows what arrived: pieces that come twice are cut to what
is new, and a piece that is missing is an error, never a hole.
"""
from __future__ import annotations

import base64
import binascii
import dataclasses
from typing import Any, Dict, List, Literal, Mapping, Optional, Union

from ._json import decode, loads_object
from .errors import ProtocolError
from .models import ExecutionInfo

LINE_MAX = 16 << 20


@dataclasses.dataclass(frozen=True)
class StartedEvent:
    """The first of a stream. `execution` is what it was when the stream began."""

    execution: ExecutionInfo
    type: Literal["started"] = "started"


@dataclasses.dataclass(frozen=True)
class OutputEvent:
    """A piece of output, as it was written."""

    type: Literal["stdout", "stderr"]
    data: bytes
    offset: int
    """Of its first byte in its stream."""

    @property
    def text(self) -> str:
        """What is no UTF-8 becomes U+FFFD. A character is never cut in two by the stream itself."""
        return self.data.decode("utf-8", "replace")


@dataclasses.dataclass(frozen=True)
class ExitEvent:
    """The last of a stream: the execution has ended."""

    execution: ExecutionInfo
    type: Literal["exit"] = "exit"

    @property
    def exit_code(self) -> Optional[int]:
        return self.execution.exit_code

    @property
    def ended_by(self) -> Optional[str]:
        return self.execution.ended_by


@dataclasses.dataclass(frozen=True)
class ResizeEvent:
    """Somebody gave the terminal another size."""

    rows: int
    cols: int
    type: Literal["resized"] = "resized"


@dataclasses.dataclass(frozen=True)
class DisplayEvent:
    """Something that code in a context shows: what it displayed, or the value of its last expression (`result`)."""

    type: Literal["display", "result"]
    data: Dict[str, Any]
    """By MIME type: text, base64 of pictures and documents, JSON itself."""
    meta: Dict[str, Any] = dataclasses.field(default_factory=dict)
    omitted: Dict[str, Any] = dataclasses.field(default_factory=dict)
    """What was too large, and why."""
    count: Optional[int] = None
    """Of a result: the how manieth execution of its interpreter it is."""

    @property
    def text(self) -> Optional[str]:
        return self.data.get("text/plain")

    @property
    def html(self) -> Optional[str]:
        return self.data.get("text/html")

    @property
    def chart(self) -> Optional[Mapping[str, Any]]:
        """The numbers behind a figure."""
        return self.data.get("application/vnd.cove.chart+json")

    def bytes_of(self, mime: str) -> Optional[bytes]:
        """A picture or a document as it would lie in a file; None when it is not offered in this form."""
        found = self.data.get(mime)
        if not isinstance(found, str):
            return None
        return base64.b64decode(found) if mime in BINARY else found.encode()

    @property
    def png(self) -> Optional[bytes]:
        return self.bytes_of("image/png")


@dataclasses.dataclass(frozen=True)
class ExceptionEvent:
    """Code in a context raised this."""

    name: str
    value: str
    traceback: List[str] = dataclasses.field(default_factory=list)
    type: Literal["exception"] = "exception"

    def __str__(self) -> str:
        return f"{self.name}: {self.value}" if self.value else self.name


@dataclasses.dataclass(frozen=True)
class InputRequestEvent:
    """Code in a context waits for a line; `execution.answer` gives one."""

    prompt: str
    password: bool = False
    type: Literal["input"] = "input"


BINARY = ("image/png", "image/jpeg", "application/pdf")
EVENT_CLASSES: Dict[str, Any] = {"display": DisplayEvent, "result": DisplayEvent, "exception": ExceptionEvent, "input": InputRequestEvent}

Event = Union[StartedEvent, OutputEvent, DisplayEvent, ExceptionEvent, InputRequestEvent, ExitEvent]
ChannelEvent = Union[StartedEvent, OutputEvent, ResizeEvent, DisplayEvent, ExceptionEvent, InputRequestEvent, ExitEvent]


@dataclasses.dataclass(frozen=True)
class FileEvent:
    """Something that happened to a file."""

    type: str
    """created, modified, removed, moved; or overflow: something is missing, look for yourself"""
    path: Optional[str] = None
    """Absolute. Of something that moved, the new one."""
    moved_from: Optional[str] = dataclasses.field(default=None, metadata={"json": "from"})
    directory: bool = False
    path_base64: Optional[str] = None
    """The bytes of a path that is no valid text."""
    from_base64: Optional[str] = None


class LineSplitter:
    """Bytes in, whole lines out. Only a newline ends one: the text in them may hold every other separator."""

    def __init__(self) -> None:
        self.rest = b""

    def feed(self, data: bytes) -> List[bytes]:
        *lines, self.rest = (self.rest + data).split(b"\n")
        if len(self.rest) > LINE_MAX:
            raise ProtocolError(f"the server sent a line of more than {LINE_MAX} bytes")
        return [line for line in lines if line.strip()]


def piece_of(event: Mapping[str, Any]) -> bytes:
    if "base64" in event:
        return base64.b64decode(event["base64"], validate=True)
    return str(event["data"]).encode("utf-8", "surrogatepass")


class OutputCollector:
    """What the events of an execution tell together."""

    def __init__(self) -> None:
        self._out: List[bytes] = []
        self._err: List[bytes] = []
        self.shown: List[DisplayEvent] = []
        self.raised: Optional[ExceptionEvent] = None

    def take(self, event: object) -> None:
        if isinstance(event, OutputEvent):
            (self._out if event.type == "stdout" else self._err).append(event.data)
        elif isinstance(event, DisplayEvent):
            self.shown.append(event)
        elif isinstance(event, ExceptionEvent):
            self.raised = event

    @property
    def stdout(self) -> bytes:
        return b"".join(self._out)

    @property
    def stderr(self) -> bytes:
        return b"".join(self._err)


class StreamProgress:
    """How far the stream of one execution has come."""

    def __init__(self, execution_id: Optional[str] = None, stdout: int = 0, stderr: int = 0) -> None:
        self.execution_id = execution_id
        self.offsets: Dict[str, int] = {"stdout": stdout, "stderr": stderr}
        self.begun = False
        self.ended = False
        self.events_seen = 0  # kernel events received (display, result, exception, input)
        self.events_to_skip = 0  # kernel events of this connection that were received before
        self.gaps = False  # a terminal lets go of its beginning: what is gone is no hole

    def reopened(self) -> None:
        """What an interpreter told comes again from the beginning; output comes from where it was."""
        self.events_to_skip = self.events_seen

    def take(self, line: bytes) -> Optional[Event]:
        """What a line tells that is new, if anything."""
        told = loads_object(line)
        kind = told.get("type")
        try:
            if kind == "output":
                return self.output(told)
            if kind in EVENT_CLASSES:
                return self.event(str(kind), told)
            if kind in ("started", "end"):
                return self.turn(str(kind), decode(ExecutionInfo, told["execution"]))
        except (KeyError, TypeError, ValueError, binascii.Error) as error:
            raise ProtocolError(f"a piece of the stream is malformed: {error!r}") from error
        return None  # a heartbeat, or something that is younger than this package

    def event(self, kind: str, told: Mapping[str, Any]) -> Optional[Event]:
        if self.events_to_skip:
            self.events_to_skip -= 1
            return None
        self.events_seen += 1
        found: Event = decode(EVENT_CLASSES[kind], told)
        return found

    def turn(self, kind: str, execution: ExecutionInfo) -> Optional[Event]:
        if self.execution_id is not None and self.execution_id != execution.id:
            raise ProtocolError(f"the stream of {self.execution_id} became that of {execution.id}")
        self.execution_id = execution.id
        self.gaps = self.gaps or execution.tty
        if kind == "end":
            self.ended = True
            return ExitEvent(execution)
        first, self.begun = not self.begun, True
        return StartedEvent(execution) if first else None

    def output(self, told: Mapping[str, Any]) -> Optional[Event]:
        stream, offset, data = str(told["stream"]), int(told["offset"]), piece_of(told)
        known = max(self.offsets[stream], offset if self.gaps else 0)
        if offset > known:
            raise ProtocolError(f"{stream} goes on at {offset}, and {known} bytes of it have come")
        data = data[known - offset:]
        if not data:
            return None
        self.offsets[stream] = known + len(data)
        return OutputEvent("stdout" if stream == "stdout" else "stderr", data, known)
