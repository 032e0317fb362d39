"""Executions: the handle, and the stream of events."""
from __future__ import annotations

import dataclasses
import time
from typing import Any, AsyncIterator, Callable, Mapping, Optional, Union

from .. import _aio
from .._call import NDJSON, SILENCE, Call, path
from .._error import CoveError, WaitTimeoutError
from .._json import Duration, milliseconds
from ..errors import ConflictError, ConnectionLostError, ProtocolError
from ..events import InputRequestEvent, Event, ExitEvent, OutputCollector, OutputEvent, StreamProgress, DisplayEvent
from ..models import ExecutionInfo, Receipt
from ..result import Result, collected
from ._http import AsyncHTTP, AsyncLineStream

STDIN_PATIENCE = 3600.0
"""Seconds; a program may compute for long before it reads its input."""
OUTPUT_ANSWER_MAX = 1 << 30


Answer = Callable[[InputRequestEvent], Optional[str]]
OnText = Callable[[str], object]
OnResult = Callable[[DisplayEvent], object]


async def deliver(event: object, on_stdout: Optional[OnText], on_stderr: Optional[OnText], on_result: Optional[OnResult]) -> None:
    """Calls the callback for this event, if there is one."""
    if isinstance(event, OutputEvent):
        on_text = on_stdout if event.type == "stdout" else on_stderr
        if on_text is not None:
            await _aio.call(on_text, event.text)
    elif isinstance(event, DisplayEvent) and on_result is not None:
        await _aio.call(on_result, event)


class AsyncExecution:
    """A handle of one execution. It holds no connection and can be made again from the two ids at
    any time.

        execution = await sandbox.start_command(["make", "-j4"])
        ...
        result = await execution.wait()
    """

    def __init__(self, http: AsyncHTTP, sandbox_id: str, id: str, *, fresh: bool = False, tty: bool = False) -> None:
        self._http = http
        self._tty = tty  # other clients may type there too, so the input offset is not tracked
        self.sandbox_id = sandbox_id
        self.id = id
        self._stdin: Optional[int] = 0 if fresh else None  # bytes written to stdin so far; None: not known

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id} in {self.sandbox_id}>"

    def _path(self, *more: str) -> str:
        return path("v1", "sandboxes", self.sandbox_id, "executions", self.id, *more)

    async def info(self) -> ExecutionInfo:
        """The current state of the execution."""
        return await self._http.get(ExecutionInfo, Call("GET", self._path()))

    def stream(self, *, stdout_offset: int = 0, stderr_offset: int = 0) -> AsyncStream:
        """The events from the given offsets on, until the execution has ended."""
        return AsyncStream(self._http, self.sandbox_id, StreamProgress(self.id, stdout_offset, stderr_offset), None)

    async def wait(self, timeout: Optional[Duration] = None) -> Result:
        """Waits for the end. After `timeout` seconds WaitTimeoutError is raised, and the execution
        continues."""
        stream = self.stream()
        if timeout is not None:
            stream.deadline = time.monotonic() + milliseconds(timeout) / 1000
        async with stream:
            return await stream.result()

    async def cancel(self) -> ExecutionInfo:
        """Kills the execution and every process that it started. If it has ended already, returns
        its state."""
        return await self._http.get(ExecutionInfo, Call("POST", self._path("cancel")))

    async def output(self, stream: str = "stdout", *, offset: int = 0) -> bytes:
        """The output so far, from `offset` on. The next call continues at `offset + len(...)`."""
        response = await self._http.send(Call("GET", self._path("output"), {"stream": stream, "offset": offset}, answer_max=OUTPUT_ANSWER_MAX))
        return response.content

    async def follow(self, stream: str = "stdout", *, offset: int = 0) -> AsyncIterator[bytes]:
        """The bytes of one stream as they are written, until the execution has ended. Pieces may be
        cut anywhere."""
        if stream not in ("stdout", "stderr"):
            raise ValueError(f"stream is stdout or stderr, not {stream!r}")
        async with self.stream(**{f"{stream}_offset": offset}) as events:
            async for event in events:
                if isinstance(event, OutputEvent) and event.type == stream:
                    yield event.data

    async def write_stdin(self, data: Union[str, bytes], *, close: bool = False) -> None:
        """Writes to standard input, if the execution was started with `stdin_open=True`; `close`
        ends the input.

        Returns when the sandbox has taken all bytes; waits while the program does not read. Only
        one caller may write at a time. After a broken connection the call reconnects, and no byte
        arrives twice.
        """
        if self._stdin is None and not self._tty:
            self._stdin = int((await self._http.json(self._stdin_call(b"", None, False)))["stdinBytes"])
        sent = data.encode() if isinstance(data, str) else data
        if self._tty:
            await self._http.send(self._stdin_call(sent, None, close))
            return
        await self._http.send(self._stdin_call(sent, self._stdin, close))
        self._stdin = (self._stdin or 0) + len(sent)

    async def resize(self, rows: int, cols: int) -> None:
        """Resizes the terminal, if the execution was started with `start_terminal`. The latest size
        from any client is used."""
        await self._http.send(Call("POST", self._path("resize"), json={"rows": rows, "cols": cols}))

    async def signal(self, signal: Union[str, int]) -> None:
        """Sends a signal ("INT", "TERM", 9) to the process group; on a terminal, to the foreground
        group."""
        await self._http.send(Call("POST", self._path("signal"), json={"signal": signal}, repeatable=False))

    async def answer(self, text: Optional[str]) -> None:
        """Sends the line that code in a context requested with `input()`; None is the end of the
        input."""
        body: Mapping[str, Any] = {"eof": True} if text is None else {"text": text}
        await self._http.send(Call("POST", self._path("input"), json=body, repeatable=False))

    async def close_stdin(self) -> None:
        """Ends the standard input."""
        await self.write_stdin(b"", close=True)

    def _stdin_call(self, data: bytes, offset: Optional[int], close: bool) -> Call:
        return Call("POST", self._path("stdin"), {"offset": offset, "close": close or None}, body=data,
                    headers={"Content-Type": "application/octet-stream"}, repeatable=offset is not None or not data, read_timeout=STDIN_PATIENCE,
                    done_if=(ConflictError,) if close else ())

    async def receipt(self) -> Receipt:
        """The usage of the execution, the limits that it hit, its denials and the files that it
        changed. Available after the end."""
        return await self._http.get(Receipt, Call("GET", self._path("receipt")))


class AsyncStream:
    """The events of one execution: `StartedEvent`, `OutputEvent` as output is written, and finally
    `ExitEvent`. An execution in a context also yields displayed values (`DisplayEvent`), its
    exception (`ExceptionEvent`) and requests for a line (`InputRequestEvent`), each after the
    output that preceded it.

    After a broken connection the stream reconnects at the next byte: nothing is lost and nothing is
    repeated. Closing the stream early does not end the execution.

        async for event in sandbox.stream_command(["make"]):
            if event.type == "stdout":
                print(event.text, end="")
    """

    def __init__(self, http: AsyncHTTP, sandbox_id: str, progress: StreamProgress, first: Optional[Call]) -> None:
        self._http = http
        self._sandbox_id = sandbox_id
        self._progress = progress
        self._first = first  # the request that starts the execution; repeated until its id is known
        self._attempts = http.attempts()
        self._lines = AsyncLineStream(http)
        self._execution: Optional[AsyncExecution] = None
        self._closed = False
        self.deadline: Optional[float] = None
        self._read_timeout = SILENCE

    @property
    def execution(self) -> AsyncExecution:
        """The handle. Available from the first event on."""
        if self._progress.execution_id is None:
            raise RuntimeError("the id of the execution is unknown before the first event of its stream; read one event first")
        if self._execution is None:
            self._execution = AsyncExecution(self._http, self._sandbox_id, self._progress.execution_id, fresh=self._first is not None)
        return self._execution

    async def __aenter__(self) -> AsyncStream:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.aclose()

    def __aiter__(self) -> AsyncStream:
        return self

    async def __anext__(self) -> Event:
        while not self._progress.ended and not self._closed:
            try:
                if not self._lines.is_open:
                    self._read_timeout = self._patience()
                    self._progress.reopened()
                    await self._lines.open(self._call())
                event = self._progress.take(await self._lines.next())
            except CoveError as error:
                await self._lines.drop()
                if isinstance(error, ConnectionLostError):
                    self._check_deadline()
                await self._http.again(self._attempts, error, "stream")
                continue
            self._attempts.record_success()
            self._check_deadline()
            if event is not None:
                if isinstance(event, ExitEvent):
                    await self._lines.finish()
                return event
            await self._shorten()
        raise StopAsyncIteration

    async def aclose(self) -> None:
        """Closes the stream. The execution continues."""
        self._closed = True
        await self._lines.drop()

    async def result(self, answer: Optional[Answer] = None, *, on_stdout: Optional[OnText] = None, on_stderr: Optional[OnText] = None,
                     on_result: Optional[OnResult] = None) -> Result:
        """Reads the stream to its end. The result has only the output that is read by this call.

        Args:
            answer: called for each input request of code in a context; returns the line, or None
                for the end of the input.
            on_stdout, on_stderr: called with each piece of text as it arrives.
            on_result: called with each displayed value.
        """
        collector = OutputCollector()
        async for event in self:
            collector.take(event)
            await deliver(event, on_stdout, on_stderr, on_result)
            if isinstance(event, InputRequestEvent) and answer is not None:
                await self._answer(answer(event))
            elif isinstance(event, ExitEvent):
                return collected(event.execution.raw, collector)
        raise ProtocolError("the stream is already closed or was read to its end; use execution.wait()")

    async def _answer(self, text: Optional[str]) -> None:
        try:
            await self.execution.answer(text)
        except ConflictError:
            pass  # the code was interrupted meanwhile, or another client answered first

    def _call(self) -> Call:
        known = self._progress
        if known.execution_id is None:
            assert self._first is not None
            return dataclasses.replace(self._first, read_timeout=self._read_timeout)
        return Call("GET", path("v1", "sandboxes", self._sandbox_id, "executions", known.execution_id, "stream"),
                    {"stdoutOffset": known.offsets["stdout"], "stderrOffset": known.offsets["stderr"]}, headers={"Accept": NDJSON},
                    read_timeout=self._read_timeout)

    # Each read waits at most for the remaining time: the stream is reopened with a shorter timeout.

    def _patience(self) -> float:
        if self.deadline is None:
            return SILENCE
        return min(SILENCE, max(self.deadline - time.monotonic(), 0.001))

    def _check_deadline(self) -> None:
        if self.deadline is not None and time.monotonic() >= self.deadline:
            raise WaitTimeoutError(f"{self._progress.execution_id or 'the execution'} has not ended yet")

    async def _shorten(self) -> None:
        if self._patience() < self._read_timeout and self._progress.execution_id is not None and self._lines.is_drained:
            await self._lines.drop()
