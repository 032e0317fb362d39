"""The events of a stream, and the position that a reader has reached.

A stream may break at any byte and be resumed. `StreamProgress` knows what has arrived: a repeated
piece is cut to its new part, and a missing piece is an error, never a gap.
"""
from __future__ import annotations

import base64
import binascii
import dataclasses
from typing import Any, Dict, List, Literal, Mapping, Optional, Tuple, Union

from ._json import decode, loads_object
from .errors import ProtocolError
from .models import ExecutionInfo

LINE_MAX = 16 << 20


@dataclasses.dataclass(frozen=True)
class StartedEvent:
    """The first event of a stream. `execution` is its state when the stream began."""

    execution: ExecutionInfo
    type: Literal["started"] = "started"


@dataclasses.dataclass(frozen=True)
class OutputEvent:
    """A piece of output, as it was written."""

    type: Literal["stdout", "stderr"]
    data: bytes
    offset: int
    """Offset of the first byte in its stream."""

    @property
    def text(self) -> str:
        """The data as text; invalid UTF-8 becomes U+FFFD. The stream itself never splits a
        character."""
        return self.data.decode("utf-8", "replace")


@dataclasses.dataclass(frozen=True)
class ExitEvent:
    """The last event of a stream: the execution has ended."""

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
    """The size of the terminal has changed."""

    rows: int
    cols: int
    type: Literal["resized"] = "resized"


@dataclasses.dataclass(frozen=True, repr=False)
class DisplayEvent:
    """A value that code in a context displays (`display`), or the value of its last expression
    (`result`)."""

    type: Literal["display", "result"]
    data: Dict[str, Any]
    """By MIME type: text as it is, images and documents as base64, JSON as objects."""
    meta: Dict[str, Any] = dataclasses.field(default_factory=dict)
    omitted: Dict[str, Any] = dataclasses.field(default_factory=dict)
    """Representations that are too large to send: the reason by MIME type."""
    count: Optional[int] = None
    """The cell number of a result."""

    @property
    def text(self) -> Optional[str]:
        return self.data.get("text/plain")

    @property
    def html(self) -> Optional[str]:
        return self.data.get("text/html")

    @property
    def chart(self) -> Optional[Mapping[str, Any]]:
        """The data of a figure."""
        return self.data.get("application/vnd.cove.chart+json")

    def bytes_of(self, mime: str) -> Optional[bytes]:
        """An image or a document as the bytes of a file; None if it is not available in this
        form."""
        found = self.data.get(mime)
        if not isinstance(found, str):
            return None
        return base64.b64decode(found) if mime in BINARY else found.encode()

    @property
    def png(self) -> Optional[bytes]:
        return self.bytes_of("image/png")

    def __repr__(self) -> str:
        text = f" {self.text[:200]!r}" if self.text is not None else ""
        return f"<{type(self).__name__} {self.type}{text} as {', '.join(self.data) or 'nothing'}>"

    # Notebooks call these.

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> Tuple[Dict[str, Any], Dict[str, Any]]:
        return dict(self.data), dict(self.meta)

    def _repr_html_(self) -> Optional[str]:
        return self.html

    def _repr_png_(self) -> Optional[bytes]:
        return self.png


@dataclasses.dataclass(frozen=True)
class ExceptionEvent:
    """Code in a context raised an exception."""

    name: str
    value: str
    traceback: str = ""
    """The lines, as the language prints them."""
    type: Literal["exception"] = "exception"

    def __str__(self) -> str:
        return f"{self.name}: {self.value}" if self.value else self.name


@dataclasses.dataclass(frozen=True)
class InputRequestEvent:
    """Code in a context waits for a line; send it with `execution.answer`."""

    prompt: str
    password: bool = False
    type: Literal["input"] = "input"


BINARY = ("image/png", "image/jpeg", "application/pdf")
EVENT_CLASSES: Dict[str, Any] = {"display": DisplayEvent, "result": DisplayEvent, "exception": ExceptionEvent, "input": InputRequestEvent}

Event = Union[StartedEvent, OutputEvent, DisplayEvent, ExceptionEvent, InputRequestEvent, ExitEvent]
ChannelEvent = Union[StartedEvent, OutputEvent, ResizeEvent, DisplayEvent, ExceptionEvent, InputRequestEvent, ExitEvent]


@dataclasses.dataclass(frozen=True)
class FileEvent:
    """A change of a file."""

    type: str
    """created, modified, removed, moved; or overflow: events were lost, list the directory
    again."""
    path: Optional[str] = None
    """Absolute. After a move, the new path."""
    moved_from: Optional[str] = dataclasses.field(default=None, metadata={"json": "from"})
    directory: bool = False
    path_base64: Optional[str] = None
    """The bytes of a path that is not valid UTF-8."""
    from_base64: Optional[str] = None


class LineSplitter:
    """Splits bytes into complete lines. Only a newline ends a line: the text may contain every
    other separator."""

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
    """Collects the output, the displayed values and the exception of an execution from its
    events."""

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
    """The position in the stream of one execution."""

    def __init__(self, execution_id: Optional[str] = None, stdout: int = 0, stderr: int = 0) -> None:
        self.execution_id = execution_id
        self.offsets: Dict[str, int] = {"stdout": stdout, "stderr": stderr}
        self.begun = False
        self.ended = False
        self.events_seen = 0  # language kernel events received (display, result, exception, input)
        self.events_to_skip = 0  # language kernel events of this connection that were received before
        self.gaps = False  # a terminal drops its oldest output: a missing beginning is not an error

    def reopened(self) -> None:
        """After a reconnect: language kernel events are repeated from the beginning, output
        continues at its offset."""
        self.events_to_skip = self.events_seen

    def take(self, line: bytes) -> Optional[Event]:
        """The new event of a line; None if there is none."""
        message = loads_object(line)
        kind = message.get("type")
        try:
            if kind == "output":
                return self.output(message)
            if kind in EVENT_CLASSES:
                return self.event(str(kind), message)
            if kind in ("started", "end"):
                return self.turn(str(kind), decode(ExecutionInfo, message["execution"]))
        except (KeyError, TypeError, ValueError, binascii.Error) as error:
            raise ProtocolError(f"a piece of the stream is malformed: {error!r}") from error
        return None  # a heartbeat, or an event that is newer than this package

    def event(self, kind: str, message: Mapping[str, Any]) -> Optional[Event]:
        if self.events_to_skip:
            self.events_to_skip -= 1
            return None
        self.events_seen += 1
        found: Event = decode(EVENT_CLASSES[kind], message)
        return found

    def turn(self, kind: str, execution: ExecutionInfo) -> Optional[Event]:
        if self.execution_id is not None and self.execution_id != execution.id:
            raise ProtocolError(f"the stream of {self.execution_id} changed to execution {execution.id}")
        self.execution_id = execution.id
        self.gaps = self.gaps or execution.tty
        if kind == "end":
            self.ended = True
            return ExitEvent(execution)
        first, self.begun = not self.begun, True
        return StartedEvent(execution) if first else None

    def output(self, message: Mapping[str, Any]) -> Optional[Event]:
        stream, offset, data = str(message["stream"]), int(message["offset"]), piece_of(message)
        known = max(self.offsets[stream], offset if self.gaps else 0)
        if offset > known:
            raise ProtocolError(f"{stream} continues at byte {offset}, but only {known} bytes have arrived")
        data = data[known - offset:]
        if not data:
            return None
        self.offsets[stream] = known + len(data)
        return OutputEvent("stdout" if stream == "stdout" else "stderr", data, known)
