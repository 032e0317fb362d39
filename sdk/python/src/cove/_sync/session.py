# Written by tools/unasync.py from _async/session.py: change that.
"""One execution on a channel: its events, its requests, and its input.

Input to a pipe carries its offset, so each byte arrives once. A terminal has one input for all
clients that type, so after a connection breaks in the middle of a write, the write is resumed only
if the amount that arrived is known; otherwise the writer gets ConnectionLostError.
"""
from __future__ import annotations

import base64
import collections
import contextlib
import time
from typing import TYPE_CHECKING, Any, Deque, Dict, List, Mapping, Optional, Union

from .. import _sio
from .._error import CoveError
from .._json import Duration, decode, milliseconds
from ..errors import ConflictError, ConnectionLostError, ProtocolError, SandboxEndedError
from ..events import EVENT_CLASSES, InputRequestEvent, ChannelEvent, ExitEvent, OutputCollector, OutputEvent, StreamProgress, ResizeEvent, StartedEvent
from ..models import ExecutionInfo
from ..result import Result, collected
from ._websocket import WebSocket, Request
from .execution import Answer, Execution, Stream, OnResult, OnText, deliver

if TYPE_CHECKING:
    from .channel import Channel

WINDOW = 128 << 10
"""Bytes of unacknowledged input of one execution; a server stops reading a socket at twice that
amount.
"""
PIECE = 32 << 10


def label_of(name: str) -> Dict[str, str]:
    """Names an execution on the socket: an own label, or its id."""
    return {"executionId": name} if len(name) == 22 else {"label": name}


class Session:
    """One execution on a channel: its events, its input, its end.

    After a broken connection the session reconnects; nothing is lost and nothing is repeated. The
    events are those of a stream (in a context also displayed values, exceptions and input
    requests), and for a terminal also `ResizeEvent`. Closing the session early does not end the
    execution.
    """

    def __init__(self, channel: Channel, progress: StreamProgress, launch: Optional[Mapping[str, Any]], tail_bytes: Optional[int]) -> None:
        assert progress.execution_id is not None
        self._channel = channel
        self._progress = progress
        self._launch = launch  # None: the execution exists already
        self._tail = tail_bytes
        self.id: str = progress.execution_id
        self.rows: Optional[int] = None
        """Size of the terminal; None if there is no terminal or its size is unknown."""
        self.cols: Optional[int] = None
        self._name = ""
        self._attached_socket: Optional[WebSocket] = None  # the socket on which the session was requested
        self._attached = False  # the server has confirmed the request on that socket
        self._parked = False
        self._started = False
        self._refusal: Optional[CoveError] = None
        self._events: Deque[ChannelEvent] = collections.deque()
        self._events_offset = 0  # bytes of language kernel events received, as the server counts them
        self._received_bytes = self._consumed_bytes = 0  # bytes of output; each counter has one writer, with any number of threads
        self._tail_stream: Optional[Stream] = None
        self._closed = False
        self._write_lock = _sio.Lock()
        self._writing = False
        self._input_end = 0 if launch is not None else None  # offset after the last byte of input; None: not known
        self._input_taken = 0  # bytes of input that the sandbox has acknowledged
        self._acks = 0
        self._shared = False  # other clients type on this terminal too

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id} in {self._channel.sandbox_id}>"

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    @property
    def execution(self) -> Execution:
        """The handle, which needs no channel."""
        return Execution(self._channel._http, self._channel.sandbox_id, self.id, tty=self._progress.gaps)

    @property
    def offsets(self) -> Mapping[str, int]:
        """Bytes received of "stdout" and "stderr"; `follow` continues there."""
        return dict(self._progress.offsets)

    # --- events ---

    @property
    def _waiting_bytes(self) -> int:
        return self._received_bytes - self._consumed_bytes

    def _attach_message(self) -> Dict[str, Any]:
        if self._launch is not None and not self._started:
            return {"type": "execute", "executionId": self.id, **self._launch}
        message: Dict[str, Any] = {"type": "resume", "executionId": self.id, "label": self._name}
        if self._tail is not None and not self._started:
            return {**message, "tailBytes": self._tail}
        if self._events_offset:
            message["eventsOffset"] = self._events_offset
        return {**message, "stdoutOffset": self._progress.offsets["stdout"], "stderrOffset": self._progress.offsets["stderr"]}

    def _take(self, kind: str, message: Dict[str, Any]) -> None:
        event: Optional[ChannelEvent] = None
        if kind == "output":
            event = self._progress.output(message)
            self._received_bytes += len(event.data) if isinstance(event, OutputEvent) else 0
        elif kind in EVENT_CLASSES:
            self._events_offset = int(message["eventsOffset"])
            event = self._progress.event(kind, message)
        elif kind == "started":
            event = self._take_start(message)
        elif kind == "end":
            event = self._progress.turn("end", decode(ExecutionInfo, message["execution"]))
        elif kind == "stdin_ack":
            self._input_taken = int(message["stdinBytes"])
            self._acks += 1
        elif kind == "resized":
            self.rows, self.cols = int(message["rows"]), int(message["cols"])
            event = ResizeEvent(self.rows, self.cols)
        if event is not None:
            self._events.append(event)

    def _take_start(self, message: Mapping[str, Any]) -> Optional[StartedEvent]:
        event = self._progress.turn("started", decode(ExecutionInfo, message["execution"]))
        first, self._started, self._attached = not self._started, True, True
        if first and self._tail is not None:
            self._progress.offsets.update(stdout=int(message["stdoutOffset"]), stderr=int(message["stderrOffset"]))
        if "stdinBytes" in message:
            count = int(message["stdinBytes"])
            self._shared = self._shared or self._progress.gaps and not first and not self._writing and count != self._input_taken
            self._input_taken = count
        if self._input_end is None:
            self._input_end = self._input_taken
        size = message.get("rows"), message.get("cols")
        changed = None not in size and not first and size != (self.rows, self.cols)
        if None not in size:
            self.rows, self.cols = size
        if changed and self.rows is not None and self.cols is not None:
            self._events.append(ResizeEvent(self.rows, self.cols))
        return event if isinstance(event, StartedEvent) else None

    def __iter__(self) -> Session:
        return self

    def __next__(self) -> ChannelEvent:
        event = self.read()
        if event is None:
            raise StopIteration
        return event

    def read(self, timeout: Optional[Duration] = None) -> Optional[ChannelEvent]:
        """The next event; None after the last. After `timeout` seconds without an event
        WaitTimeoutError is raised."""
        deadline = None if timeout is None else time.monotonic() + milliseconds(timeout) / 1000
        return self._next(deadline)

    def _next(self, deadline: Optional[float]) -> Optional[ChannelEvent]:
        while True:
            if self._closed:
                return None
            if self._events:
                event = self._events.popleft()
                self._consumed_bytes += len(event.data) if isinstance(event, OutputEvent) else 0
                return event
            if self._progress.ended:
                if self._tail_stream is None and self._refusal is not None:
                    raise self._refusal
                return None
            if self._tail_stream is not None:
                self._tail_stream.deadline = deadline
                return self._tail_stream.__next__()
            if self._parked:
                self._channel._unpark(self)
            try:
                self._channel._until(lambda: bool(self._events) or self._progress.ended or self._closed, deadline)
            except SandboxEndedError:
                if not self._started:
                    raise
                # The server closes the channel of an ended sandbox; its output can still be read
                # over HTTP.
                self._tail_stream = self.execution.stream()
                self._tail_stream._progress = self._progress

    def wait(self, timeout: Optional[Duration] = None, *, answer: Optional[Answer] = None, on_stdout: Optional[OnText] = None,
                   on_stderr: Optional[OnText] = None, on_result: Optional[OnResult] = None) -> Result:
        """Reads the session to its end. The result has only the output that is read by this call.

        After `timeout` seconds WaitTimeoutError is raised, and the execution continues; the output
        that was read until then is lost to this session. `answer` is called for each input request
        of code in a context, and returns the line, or None for the end of the input; without
        `answer`, a request waits for another client. `on_stdout` and `on_stderr` are called with
        each piece of text, `on_result` with each displayed value.
        """
        deadline = None if timeout is None else time.monotonic() + milliseconds(timeout) / 1000
        collector = OutputCollector()
        while True:
            event = self._next(deadline)
            collector.take(event)
            deliver(event, on_stdout, on_stderr, on_result)
            if isinstance(event, InputRequestEvent) and answer is not None:
                with contextlib.suppress(ConflictError):  # the code was interrupted meanwhile, or another client answered first
                    self.answer(answer(event))
            elif isinstance(event, ExitEvent):
                return collected(event.execution.raw, collector)
            elif event is None:
                raise ProtocolError("the session is already closed or was read to its end; use execution.wait()")

    def close(self) -> None:
        """Closes the session. The execution continues."""
        self._closed = True
        self._channel._forget(self)
        if self._attached and self._attached_socket is not None and self._attached_socket is self._channel._socket and not self._progress.ended:
            with contextlib.suppress(CoveError):
                self._attached_socket.post({"type": "detach", **label_of(self._name)})
        if self._tail_stream is not None:
            self._tail_stream.close()
        self._channel._turn.notify()

    # --- requests ---

    def _is_ready(self) -> bool:
        return self._attached and self._attached_socket is self._channel._socket or self._parked or self._progress.ended

    def _ask(self, what: Mapping[str, Any], *, repeatable: bool) -> bool:
        """Whether the server has carried out the request, or there is no execution left for it.
        False: the session is not attached to this socket."""
        channel = self._channel
        while True:
            channel._until(self._is_ready)
            socket, request = self._attached_socket, Request(self)
            if self._refusal is not None:
                raise self._refusal
            if self._parked:
                return False
            if self._progress.ended or socket is None:
                return True
            with contextlib.suppress(ConnectionLostError):
                socket.post({**what, **label_of(self._name)}, request)
            channel._until(lambda: request.done or request.error is not None or channel._socket is not socket or self._progress.ended)
            if request.error is not None and not self._progress.ended:
                raise request.error
            if request.done or self._progress.ended:
                return True
            if not repeatable:
                raise ConnectionLostError(f"the connection broke before the server confirmed the request {what['type']}")

    def resize(self, rows: int, cols: int) -> None:
        """Resizes the terminal. The latest size from any client is used; other viewers get a
        ResizeEvent."""
        if not self._ask({"type": "resize", "rows": rows, "cols": cols}, repeatable=True):
            self.execution.resize(rows, cols)
        self.rows, self.cols = rows, cols

    def signal(self, signal: Union[str, int]) -> None:
        """Sends a signal ("INT", "TERM", 9) to the process group; on a terminal, to the foreground
        group."""
        if not self._ask({"type": "signal", "signal": signal}, repeatable=False):
            self.execution.signal(signal)

    def cancel(self) -> None:
        """Kills the execution and every process that it started. `ExitEvent` arrives as the last
        event."""
        if not self._ask({"type": "cancel"}, repeatable=True):
            self.execution.cancel()

    def answer(self, text: Optional[str]) -> None:
        """Sends the line that code in a context requested (`InputRequestEvent`); None is the end of
        the input. Raises ConflictError if no line was requested."""
        line: Dict[str, Any] = {"eof": True} if text is None else {"text": text}
        if not self._ask({"type": "input", **line}, repeatable=False):
            self.execution.answer(text)

    # --- input ---

    def write(self, data: Union[str, bytes], *, close: bool = False) -> None:
        """Writes to standard input, if the execution was started with `stdin_open=True` or has a
        terminal; `close` ends the input.

        Returns when the sandbox has taken all bytes; waits while the program does not read. If the
        execution ends first, ConflictError is raised, unless the connection broke meanwhile: then
        only the exit event reports the end. No byte arrives twice. On a terminal,
        ConnectionLostError means that the connection broke in the middle of the write and that the
        amount that arrived is unknown, because other clients type there too.
        """
        sent = data.encode() if isinstance(data, str) else data
        with self._write_lock:
            self._writing = True
            try:
                if self._progress.gaps:
                    self._write_terminal(sent, close)
                else:
                    self._write_pipe(sent, close)
            finally:
                self._writing = False

    def close_stdin(self) -> None:
        """Ends the standard input."""
        self.write(b"", close=True)

    def _writable(self) -> Optional[WebSocket]:
        """The socket to write to; None: the session is parked and has no socket."""
        self._channel._until(self._is_ready)
        if self._progress.ended:
            raise ConflictError(f"execution {self.id} has ended")
        return None if self._parked else self._attached_socket

    def _put(self, socket: WebSocket, data: bytes, offset: Optional[int], close: bool) -> Request:
        request = Request(self)
        message: Dict[str, Any] = {"type": "stdin", **label_of(self._name), "base64": base64.b64encode(data).decode()}
        if offset is not None:
            message["offset"] = offset
        with contextlib.suppress(ConnectionLostError):
            socket.post({**message, "close": True} if close else message, request)
        return request

    def _write_pipe(self, data: bytes, close: bool) -> None:
        """Writes to a pipe by offset: after a broken connection the write continues after the last
        byte that arrived."""
        base = self._input_end or 0
        end, again, attempts = base + len(data), False, self._channel._http.attempts()
        while True:
            self._channel._until(self._is_ready)
            if again and self._progress.ended:
                return  # perhaps all bytes arrived before the connection broke; the exit event reports the end
            socket = self._writable()
            if socket is None:
                at = max(self._input_taken, base)
                self._channel._http.send(self.execution._stdin_call(data[at - base:], at, close))
                self._input_taken = end
                break
            try:
                if self._write_pipe_pieces(socket, data, base, close, again):
                    break
            except ConflictError as error:
                if not again:
                    raise
                error.retry_after = 0.2  # a server that has not noticed the broken connection still sees another writer
                self._channel._http.again(attempts, error, "stdin")
            again = True
        self._input_end = end

    def _write_pipe_pieces(self, socket: WebSocket, data: bytes, base: int, close: bool, again: bool) -> bool:
        at, end, last = max(self._input_taken, base), base + len(data), False
        requests: List[Request] = []
        while True:
            while not last and at - self._input_taken < WINDOW and (at < end or close):
                piece = data[at - base:at - base + PIECE]
                last = at + len(piece) >= end
                requests.append(self._put(socket, piece, at, close and last))
                at += len(piece)
            known = self._input_taken
            self._channel._until(lambda: self._channel._socket is not socket or self._progress.ended or self._input_taken != known
                                       or all(r.done for r in requests) and self._input_taken >= end or any(r.error for r in requests))
            error = next((r.error for r in requests if r.error), None)
            if again and self._input_taken >= end and isinstance(error, ConflictError):
                return True  # the end of the input had arrived before the connection broke
            if error is not None and not self._progress.ended:
                raise error
            if self._input_taken >= end and (not close or last and all(r.done for r in requests)):
                return True
            if self._channel._socket is not socket:
                return False
            if again and self._progress.ended:
                return True
            if self._progress.ended:
                raise ConflictError(f"execution {self.id} ended before it read all of the input")

    def _write_terminal(self, data: bytes, close: bool) -> None:
        """Writes to a terminal in pieces; each piece is acknowledged before the next is sent."""
        pieces = [data[at:at + PIECE] for at in range(0, len(data), PIECE)] or [b""]
        for number, piece in enumerate(pieces):
            self._write_terminal_piece(piece, close and number == len(pieces) - 1)

    def _write_terminal_piece(self, piece: bytes, close: bool) -> None:
        while True:
            socket = self._writable()
            before, acks = self._input_taken, self._acks
            if socket is None:
                self._channel._http.send(self.execution._stdin_call(piece, None, close))
                return
            request = self._put(socket, piece, None, close)
            self._channel._until(lambda: self._channel._socket is not socket or self._progress.ended or request.error is not None
                                       or (self._acks > acks if piece else request.done))
            if request.error is not None and not self._progress.ended:
                raise request.error
            if self._acks > acks or not piece and request.done:
                self._shared = self._shared or self._input_taken != before + len(piece)
                return
            if self._progress.ended and self._channel._socket is socket:
                raise ConflictError(f"execution {self.id} ended before it read all of the input")
            self._channel._until(self._is_ready)
            if self._progress.ended or self._input_taken == before + len(piece) and not self._shared:
                return
            if self._input_taken != before:
                self._shared = True
                raise ConnectionLostError("the connection broke during the write; the number of bytes that arrived is unknown",
                                          fix="Look at the terminal, then type the missing part again.")
