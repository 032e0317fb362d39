# Written by tools/unasync.py from _async/execution.py: change that.
"""Executions: the handle of one, the stream of its life, and what came out."""
from __future__ import annotations

import dataclasses
import time
from typing import Any, Iterator, Callable, Mapping, Optional, Sequence, Union

from .._call import NDJSON, SILENCE, Call, path
from .._error import CoveError, ExecutionFailedError, WaitTimeoutError
from .._json import Duration, milliseconds
from ..errors import ConflictError, ConnectionLostError, ProtocolError
from ..events import InputRequestEvent, Event, ExitEvent, OutputCollector, OutputEvent, StreamProgress, ExceptionEvent, DisplayEvent
from ..models import ExecutionInfo, Reason, Receipt
from ._http import HTTP, LineStream

STDIN_PATIENCE = 3600.0
OUTPUT_ANSWER_MAX = 1 << 30
"""A program may take its time before it reads."""


Answer = Callable[[InputRequestEvent], Optional[str]]


class Execution:
    """A handle of one execution. It holds no connection; it can be made anew from the two ids at any time.

        execution = sandbox.start_command(["make", "-j4"])
        ...
        result = execution.wait()
    """

    def __init__(self, http: HTTP, sandbox_id: str, id: str, *, fresh: bool = False, tty: bool = False) -> None:
        self._http = http
        self._tty = tty  # others may type there too, so what was written is not counted
        self.sandbox_id = sandbox_id
        self.id = id
        self._stdin: Optional[int] = 0 if fresh else None  # bytes that were written to it, as far as we know

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id} in {self.sandbox_id}>"

    def _path(self, *more: str) -> str:
        return path("v1", "sandboxes", self.sandbox_id, "executions", self.id, *more)

    def info(self) -> ExecutionInfo:
        """As it is now."""
        return self._http.get(ExecutionInfo, Call("GET", self._path()))

    def stream(self, *, stdout_offset: int = 0, stderr_offset: int = 0) -> Stream:
        """Its events from the given bytes on; it goes on until the execution has ended."""
        return Stream(self._http, self.sandbox_id, StreamProgress(self.id, stdout_offset, stderr_offset), None)

    def wait(self, timeout: Optional[Duration] = None) -> Result:
        """Waits for its end. After `timeout` seconds WaitTimeoutError is raised, and the execution goes on."""
        stream = self.stream()
        if timeout is not None:
            stream.deadline = time.monotonic() + milliseconds(timeout) / 1000
        with stream:
            return stream.result()

    def cancel(self) -> ExecutionInfo:
        """Kills it and everything it started. One that has ended is told as it is."""
        return self._http.get(ExecutionInfo, Call("POST", self._path("cancel")))

    def output(self, stream: str = "stdout", *, offset: int = 0) -> bytes:
        """What it has written by now, from a byte on. The next call goes on with `offset + len(...)`."""
        response = self._http.send(Call("GET", self._path("output"), {"stream": stream, "offset": offset}, answer_max=OUTPUT_ANSWER_MAX))
        return response.content

    def follow(self, stream: str = "stdout", *, offset: int = 0) -> Iterator[bytes]:
        """The bytes of one stream as they are written, until it has ended. Pieces are cut where they come."""
        if stream not in ("stdout", "stderr"):
            raise ValueError(f"stream is stdout or stderr, not {stream!r}")
        with self.stream(**{f"{stream}_offset": offset}) as events:
            for event in events:
                if isinstance(event, OutputEvent) and event.type == stream:
                    yield event.data

    def write_stdin(self, data: Union[str, bytes], *, close: bool = False) -> None:
        """Writes to its standard input, if it was started with `stdin_open=True`; `close` says that nothing follows.

        It returns when the sandbox has taken all of it; while the program does not read, it waits. One writes at a time.
        A connection that breaks is made again, and no byte arrives twice.
        """
        if self._stdin is None and not self._tty:
            self._stdin = int((self._http.json(self._stdin_call(b"", None, False)))["stdinBytes"])
        sent = data.encode() if isinstance(data, str) else data
        if self._tty:
            self._http.send(self._stdin_call(sent, None, close))
            return
        self._http.send(self._stdin_call(sent, self._stdin, close))
        self._stdin = (self._stdin or 0) + len(sent)

    def resize(self, rows: int, cols: int) -> None:
        """Gives its terminal another size, if it was started with `start_terminal`. The last size counts, whoever gave it."""
        self._http.send(Call("POST", self._path("resize"), json={"rows": rows, "cols": cols}))

    def signal(self, signal: Union[str, int]) -> None:
        """Sends a signal ("INT", "TERM", 9) to its process group; of a terminal, to the one in the foreground."""
        self._http.send(Call("POST", self._path("signal"), json={"signal": signal}, repeatable=False))

    def answer(self, text: Optional[str]) -> None:
        """The line that code in a context asked for with `input()`; None is the end of its input."""
        body: Mapping[str, Any] = {"eof": True} if text is None else {"text": text}
        self._http.send(Call("POST", self._path("input"), json=body, repeatable=False))

    def close_stdin(self) -> None:
        """Says that nothing follows."""
        self.write_stdin(b"", close=True)

    def _stdin_call(self, data: bytes, offset: Optional[int], close: bool) -> Call:
        return Call("POST", self._path("stdin"), {"offset": offset, "close": close or None}, body=data,
                    headers={"Content-Type": "application/octet-stream"}, repeatable=offset is not None or not data, read_timeout=STDIN_PATIENCE,
                    done_if=(ConflictError,) if close else ())

    def receipt(self) -> Receipt:
        """What it used, met and changed. There is one as soon as it has ended."""
        return self._http.get(Receipt, Call("GET", self._path("receipt")))


class Stream:
    """The events of one execution: `StartedEvent`, `OutputEvent` as it is written, and at last `ExitEvent`. One in a context brings also
    what it shows (`DisplayEvent`), what it raised (`ExceptionEvent`) and that it waits for a line (`InputRequestEvent`), behind the output before them.

    A connection that breaks is made again, and the stream goes on behind the last byte that came; nothing is lost and
    nothing comes twice. Leaving it early ends nothing but the stream: the execution goes on.

        for event in sandbox.stream_command(["make"]):
            if event.type == "stdout":
                print(event.text, end="")
    """

    def __init__(self, http: HTTP, sandbox_id: str, progress: StreamProgress, first: Optional[Call]) -> None:
        self._http = http
        self._sandbox_id = sandbox_id
        self._progress = progress
        self._first = first  # the request that starts it; repeated until the execution has a name
        self._attempts = http.attempts()
        self._lines = LineStream(http)
        self._execution: Optional[Execution] = None
        self._closed = False
        self.deadline: Optional[float] = None
        self._read_timeout = SILENCE

    @property
    def execution(self) -> Execution:
        """The handle. It is known from the first event on."""
        if self._progress.execution_id is None:
            raise RuntimeError("the execution has no name before the first event of its stream")
        if self._execution is None:
            self._execution = Execution(self._http, self._sandbox_id, self._progress.execution_id, fresh=self._first is not None)
        return self._execution

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __iter__(self) -> Stream:
        return self

    def __next__(self) -> Event:
        while not self._progress.ended and not self._closed:
            try:
                if not self._lines.is_open:
                    self._read_timeout = self._patience()
                    self._progress.reopened()
                    self._lines.open(self._call())
                event = self._progress.take(self._lines.next())
            except CoveError as error:
                self._lines.drop()
                if isinstance(error, ConnectionLostError):
                    self._check_deadline()
                self._http.again(self._attempts, error, "stream")
                continue
            self._attempts.record_success()
            self._check_deadline()
            if event is not None:
                if isinstance(event, ExitEvent):
                    self._lines.finish()
                return event
            self._shorten()
        raise StopIteration

    def close(self) -> None:
        """Leaves the stream. The execution goes on."""
        self._closed = True
        self._lines.drop()

    def result(self, answer: Optional[Answer] = None) -> Result:
        """Reads it to its end. Only what comes from here on is in the result.

        `answer` is called with each question of code in a context, and returns the line, or None for the end of its input.
        """
        told = OutputCollector()
        for event in self:
            told.take(event)
            if isinstance(event, InputRequestEvent) and answer is not None:
                self._answer(answer(event))
            elif isinstance(event, ExitEvent):
                return Result(self.execution, event.execution, told.stdout, told.stderr, told.shown, told.raised)
        raise ProtocolError("the stream has been read to its end, or was closed, before")

    def _answer(self, text: Optional[str]) -> None:
        try:
            self.execution.answer(text)
        except ConflictError:
            pass  # it was interrupted meanwhile, or somebody else was quicker

    def _call(self) -> Call:
        known = self._progress
        if known.execution_id is None:
            assert self._first is not None
            return dataclasses.replace(self._first, read_timeout=self._read_timeout)
        return Call("GET", path("v1", "sandboxes", self._sandbox_id, "executions", known.execution_id, "stream"),
                    {"stdoutOffset": known.offsets["stdout"], "stderrOffset": known.offsets["stderr"]}, headers={"Accept": NDJSON},
                    read_timeout=self._read_timeout)

    # A deadline is kept by reading no longer than what is left of it: the stream is taken up again with a shorter patience.

    def _patience(self) -> float:
        if self.deadline is None:
            return SILENCE
        return min(SILENCE, max(self.deadline - time.monotonic(), 0.001))

    def _check_deadline(self) -> None:
        if self.deadline is not None and time.monotonic() >= self.deadline:
            raise WaitTimeoutError(f"{self._progress.execution_id or 'the execution'} has not ended yet")

    def _shorten(self) -> None:
        if self._patience() < self._read_timeout and self._progress.execution_id is not None and self._lines.is_drained:
            self._lines.drop()


class Result:
    """What came out of an execution that has ended.

    Attributes:
        stdout, stderr: as text; what is no UTF-8 becomes U+FFFD.
        stdout_bytes, stderr_bytes: as it was written.
        exit_code: None when a signal or a limit ended it.
        ended_by: exit, signal, lifetime, idle, wall, cpu, memory, killed or lost.
        duration: seconds from start to end, by the server's clock.
        dropped_bytes: output past the cap, which was not kept.
        error: why it could not be started, or was lost.
        execution: the handle.
        results: of one in a context, what it displayed and the value of its last expression, in their order.
        exception: of one in a context, what it raised.
    """

    def __init__(self, execution: Execution, info: ExecutionInfo, stdout: bytes, stderr: bytes, results: Sequence[DisplayEvent] = (),
                 exception: Optional[ExceptionEvent] = None) -> None:
        self.results = list(results)
        self.exception = exception
        self.execution = execution
        self.info = info
        self.stdout_bytes = stdout
        self.stderr_bytes = stderr

    @property
    def stdout(self) -> str:
        return self.stdout_bytes.decode("utf-8", "replace")

    @property
    def stderr(self) -> str:
        return self.stderr_bytes.decode("utf-8", "replace")

    @property
    def text(self) -> Optional[str]:
        """The value of the last expression of code in a context, as text."""
        return next((shown.text for shown in self.results if shown.type == "result"), None)

    @property
    def status(self) -> Optional[str]:
        """Of one in a context: ok; error, it raised; interrupted, with the state kept; killed or died, with the state gone."""
        return self.info.status

    @property
    def exit_code(self) -> Optional[int]:
        return self.info.exit_code

    @property
    def signal(self) -> Optional[int]:
        return self.info.signal

    @property
    def ended_by(self) -> Optional[str]:
        return self.info.ended_by

    @property
    def duration(self) -> Optional[float]:
        return self.info.duration

    @property
    def dropped_bytes(self) -> int:
        return self.info.dropped_bytes

    @property
    def error(self) -> Optional[Reason]:
        return self.info.error

    @property
    def success(self) -> bool:
        """It ran to its own end, with status 0."""
        return self.info.state == "ended" and self.info.exit_code == 0

    def check(self) -> Result:
        """Itself if all went well; otherwise ExecutionFailedError."""
        if self.success:
            return self
        error = ExecutionFailedError(failure_text(self))
        error.result = self
        raise error

    def receipt(self) -> Receipt:
        """What it used, met and changed."""
        return self.execution.receipt()

    def __repr__(self) -> str:
        how = f"error={self.error.message!r}" if self.error else f"exit_code={self.exit_code} ended_by={self.ended_by}"
        return (f"<{type(self).__name__} {how} stdout={shortened(self.stdout)!r} stderr={shortened(self.stderr)!r}>")


def shortened(text: str) -> str:
    return text if len(text) <= 200 else text[:200] + "..."


def failure_text(result: Result) -> str:
    if result.error is not None:
        return result.error.message
    if result.exception is not None:
        return str(result.exception)
    how = {"exit": f"it ended with status {result.exit_code}", "signal": f"signal {result.signal} ended it"}.get(result.ended_by or "")
    last = result.stderr.strip().splitlines()[-1:]
    return (how or f"it was ended by: {result.ended_by}") + (f"; its last words: {shortened(last[0])}" if last else "")
