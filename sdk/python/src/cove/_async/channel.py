"""A channel to a sandbox: one WebSocket on which executions are started, followed, typed to and ended, many at a time.

Nobody reads in the background. Of all who wait for something one reads and hands out what comes, so a channel costs no task and
no thread, and a program that prints more than anybody reads is left alone until somebody does.

1. An execution has its id before it is asked for. So what was cut off before it was heard of is asked for again, and starts once.
2. What was heard is counted in bytes. When the connection breaks another is made, and all sessions go on where they were.
3. Input goes to a pipe by its offset: it arrives once. A terminal has one input for all who type, so there a break in the middle of
   a write is mended only if it can be told what has arrived; otherwise whoever typed is told.
"""
from __future__ import annotations

import base64
import collections
import contextlib
import hashlib
import os
import time
from typing import TYPE_CHECKING, Any, Callable, Deque, Dict, List, Mapping, Optional, Sequence, Union

from .. import _aio
from .._call import HEARTBEAT, Call, event_error, path
from .._error import CoveError, WaitTimeoutError
from .._json import Duration, decode, milliseconds
from ..errors import ConflictError, ConnectionLostError, ProtocolError, RateLimitedError, SandboxEndedError, ServiceUnavailableError, UnauthorizedError
from ..events import ChannelEvent, Exit, Output, Progress, Resized, Started
from ..models import ExecutionInfo, SandboxStatus
from ..options import StartOptions, run_body, words_of
from ._http import AsyncHTTP
from ._link import AsyncLink, Request
from .execution import AsyncExecution, AsyncResult, AsyncStream

if TYPE_CHECKING:
    from typing_extensions import Unpack

AHEAD = 4 << 20
"""Bytes of output that wait for their reader; then the execution is left alone until they are read."""
WINDOW = 128 << 10
"""Bytes of input that are under way to one execution; a server stops reading a socket beyond twice that."""
PIECE = 32 << 10
HOW_IT_ENDED = ("execution_timeout", "execution_failed")
"""Not about anything that was asked; the exit tells it too."""


def execution_id(sandbox_id: str, key: Optional[str]) -> str:
    """A new id, or the one that a key of the caller's choosing stands for."""
    noise = os.urandom(20) if key is None else hashlib.sha256(f"{sandbox_id}\n{key}".encode()).digest()[:20]
    return "ex" + base64.b32encode(noise)[:20].decode().lower()


class AsyncChannel:
    """Executions of one sandbox over one connection.

        async with sandbox.channel() as channel:
            build = await channel.start_command(["make"])
            tests = await channel.start_command(["make", "check"])
            async for event in build:
                ...

    It can be used by many tasks at a time. Leaving it ends no execution.
    """

    def __init__(self, http: AsyncHTTP, sandbox_id: str, status_interval: Optional[Duration] = None) -> None:
        self._http = http
        self.sandbox_id = sandbox_id
        self.status: Optional[SandboxStatus] = None
        """What the server said last about the sandbox."""
        self._call = Call("GET", path("v1", "sandboxes", sandbox_id, "stream"),
                          {"statusIntervalMs": None if status_interval is None else milliseconds(status_interval)})
        self._attempts = http.attempts()
        self._turn = _aio.Turn()
        self._gate = _aio.Lock()
        self._link: Optional[AsyncLink] = None
        self._sessions: Dict[str, AsyncSession] = {}
        self._names: Dict[str, AsyncSession] = {}  # on the link that there is
        self._serial = 0
        self._refusal: Optional[CoveError] = None
        self._failure: Optional[CoveError] = None
        self._closed = False

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.sandbox_id}>"

    async def __aenter__(self) -> AsyncChannel:
        await self._until(lambda: self._link is not None)
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Leaves it. The executions go on."""
        self._closed = True
        link = self._link
        if link is not None:
            await link.cut()
        if self._turn.take():  # otherwise whoever reads does it
            await self._drop(link)
            self._turn.give()
        self._turn.ring()

    # --- executions ---

    async def start_code(self, code: str, **options: Unpack[StartOptions]) -> AsyncSession:
        """Starts code; its output comes over this channel."""
        return await self._start({"code": code}, options)

    async def start_command(self, command: Union[str, Sequence[str]], **options: Unpack[StartOptions]) -> AsyncSession:
        """Starts a program."""
        return await self._start({"command": words_of(command)}, options)

    async def start_terminal(self, command: Union[str, Sequence[str], None] = None, *, rows: int = 24, cols: int = 80,
                             **options: Unpack[StartOptions]) -> AsyncSession:
        """Starts a program on a terminal, a shell if none is named. `sandbox.terminals` has terminals that need no channel."""
        return await self._start(terminal_of(command, rows, cols), options)

    async def follow(self, execution: str, *, stdout_offset: int = 0, stderr_offset: int = 0, tail_bytes: Optional[int] = None) -> AsyncSession:
        """An execution that there is, from the given bytes on, or from so many before the end of what it has written."""
        progress = Progress(execution, stdout_offset, stderr_offset)
        return await self._begin(AsyncSession(self, progress, None, tail_bytes))

    async def _start(self, what: Mapping[str, Any], options: StartOptions) -> AsyncSession:
        progress = Progress(execution_id(self.sandbox_id, options.get("idempotency_key")))
        return await self._begin(AsyncSession(self, progress, {**what, **run_body(options)}, None))

    async def _begin(self, session: AsyncSession) -> AsyncSession:
        """Returns when the server has said that it runs, or ran."""
        if session.id in self._sessions:
            raise ConflictError(f"{session.id} is followed on this channel already")
        self._sessions[session.id] = session
        attempts = self._http.attempts()
        try:
            while True:
                await self._attach(session)
                await self._until(lambda: session._begun or session._refusal is not None)
                if session._refusal is None:
                    return session
                error, session._refusal, session._on = session._refusal, None, None
                await self._http.again(attempts, error, "execute")
        except BaseException:
            self._forget(session)
            raise

    def _forget(self, session: AsyncSession) -> None:
        self._sessions.pop(session.id, None)
        self._names.pop(session._name, None)

    async def _attach(self, session: AsyncSession) -> None:
        """Asks for a session on the link there is, once; without one, whoever connects does it."""
        async with self._gate:
            link = self._link
            if link is None or session._on is link:
                return
            self._names.pop(session._name, None)
            self._serial += 1
            session._on, session._attached, session._parked = link, False, False
            session._name = session.id if session._launch is not None and not session._begun else f"r{self._serial}"
            self._names[session._name] = session
            with contextlib.suppress(ConnectionLostError):  # whoever reads will see it too
                await link.post(session._hello(), Request(session))

    # --- reading ---

    async def _until(self, done: Callable[[], bool], deadline: Optional[float] = None) -> None:
        """Lets messages come until `done`."""
        while True:
            seen = self._turn.count
            if done():
                return
            if self._failure is not None:
                raise self._failure
            if self._closed:
                raise ConnectionLostError("the channel was closed")
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                raise WaitTimeoutError("it has not happened yet")
            if not self._turn.take():
                await self._turn.wait(seen, left)
                continue
            try:
                if not done():
                    await self._step(HEARTBEAT if left is None else left)
                await self._drop_if_closed()
            finally:
                self._turn.give()

    async def _step(self, patience: float) -> None:
        """Connects, or lets in what comes."""
        link = self._link
        try:
            if link is None:
                await self._connect()
                return
            messages = await link.receive(patience)
            try:
                for message in messages:
                    await self._take(link, message)
            except BaseException:  # the rest of them comes again on another link
                await self._drop(link)
                raise
        except CoveError as error:
            await self._drop(link)
            try:
                if isinstance(error, UnauthorizedError) and self._refusal is not None:
                    raise self._refusal  # it was said in more words before the farewell
                if not self._closed:
                    await self._http.again(self._attempts, error, "channel")
            except CoveError as last:
                self._failure = last

    async def _connect(self) -> None:
        query = "&".join(f"{name}={value}" for name, value in self._call.params().items())
        link = await AsyncLink.open(self._http.settings, self._call.path + (f"?{query}" if query else ""))
        self._http.known = True
        self._names.clear()
        self._refusal = None
        self._link = link
        try:
            for session in [*self._sessions.values()]:
                if not session._parked:
                    await self._attach(session)
        except BaseException:
            await self._drop(link)
            raise

    async def _drop(self, link: Optional[AsyncLink]) -> None:
        if link is not None:
            self._link = None
            await link.aclose()

    async def _drop_if_closed(self) -> None:
        if self._closed:
            await self._drop(self._link)

    async def _take(self, link: AsyncLink, told: Dict[str, Any]) -> None:
        kind = told.get("type")
        session = self._names.get(str(told.get("executionId")))
        if kind == "status_update":
            self.status = decode(SandboxStatus, {**told, **(told.get("resources") or {})})
            return
        self._attempts.came_through()
        if kind == "pong":
            link.answered(told.get("pingTimestamp"))
        elif kind == "error":
            self._take_error(link, session, told)
        elif session is not None:
            try:
                session._take(str(kind), told)
            except (KeyError, TypeError, ValueError) as error:
                raise ProtocolError(f"a message of the channel is malformed: {error!r}") from error
            if session._progress.ended:
                self._forget(session)
            elif session._waiting_bytes > AHEAD and not session._writing and not session._parked:
                await self._park(session)

    def _take_error(self, link: AsyncLink, session: Optional[AsyncSession], told: Mapping[str, Any]) -> None:
        error = event_error(told)
        passing = isinstance(error, (ServiceUnavailableError, RateLimitedError))
        if passing:
            error.retry_after = error.retry_after or 0.0
        if not told.get("executionId"):  # a message that could not even be read, or the reason of a farewell
            self._refusal = error
            session = link.requests[0].about if link.requests else None
        if session is None:
            return
        if not session._attached and session._begun and passing:
            raise error  # the server has just started: all sessions are asked for again
        if not session._attached:
            session._refusal = error
            if session._begun:
                session._progress.ended = True
                self._forget(session)
        elif link.requests and link.requests[0].about is session and told.get("code") not in HOW_IT_ENDED:
            link.requests[0].error = error

    async def _park(self, session: AsyncSession) -> None:
        """Nobody reads it: the server keeps what it writes, until somebody does."""
        session._parked, session._attached = True, False
        name = session._name
        self._names.pop(name, None)
        if self._link is not None:
            with contextlib.suppress(ConnectionLostError):
                await self._link.post({"type": "detach", "executionId": name})

    async def _unpark(self, session: AsyncSession) -> None:
        session._parked, session._on = False, None
        await self._attach(session)


class AsyncSession:
    """One execution on a channel: its events, its input, its end.

    A connection that breaks is made again by itself; nothing is lost and nothing comes twice. Events are those of a stream, and of
    a terminal `Resized` besides. Leaving it early ends nothing but the session: the execution goes on.
    """

    def __init__(self, channel: AsyncChannel, progress: Progress, launch: Optional[Mapping[str, Any]], tail_bytes: Optional[int]) -> None:
        assert progress.execution_id is not None
        self._channel = channel
        self._progress = progress
        self._launch = launch  # None: it exists
        self._tail = tail_bytes
        self.id: str = progress.execution_id
        self.rows: Optional[int] = None
        """Of a terminal."""
        self.cols: Optional[int] = None
        self._name = ""
        self._on: Optional[AsyncLink] = None  # where it was asked for
        self._attached = False  # and the server has agreed
        self._parked = False
        self._begun = False
        self._refusal: Optional[CoveError] = None
        self._events: Deque[ChannelEvent] = collections.deque()
        self._came = self._read = 0  # bytes of output; each has one writer, whatever threads there are
        self._rest: Optional[AsyncStream] = None
        self._closed = False
        self._pen = _aio.Lock()
        self._writing = False
        self._typed = 0 if launch is not None else None  # bytes of input that are ours, or were there before
        self._taken = 0  # bytes of input that the sandbox has
        self._acks = 0
        self._shared = False  # others type there too

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id} in {self._channel.sandbox_id}>"

    async def __aenter__(self) -> AsyncSession:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.aclose()

    @property
    def execution(self) -> AsyncExecution:
        """The handle, which needs no channel."""
        return AsyncExecution(self._channel._http, self._channel.sandbox_id, self.id, tty=self._progress.gaps)

    @property
    def offsets(self) -> Mapping[str, int]:
        """Bytes that have come of "stdout" and "stderr"; `follow` goes on there."""
        return dict(self._progress.offsets)

    # --- what comes ---

    @property
    def _waiting_bytes(self) -> int:
        return self._came - self._read

    def _hello(self) -> Dict[str, Any]:
        if self._launch is not None and not self._begun:
            return {"type": "execute", "executionId": self.id, **self._launch}
        told: Dict[str, Any] = {"type": "resume", "executionId": self.id, "name": self._name}
        if self._tail is not None and not self._begun:
            return {**told, "tailBytes": self._tail}
        return {**told, "stdoutOffset": self._progress.offsets["stdout"], "stderrOffset": self._progress.offsets["stderr"]}

    def _take(self, kind: str, told: Dict[str, Any]) -> None:
        event: Optional[ChannelEvent] = None
        if kind == "output":
            event = self._progress.output({**told, "data": told.get("content")} if "content" in told else told)
            self._came += len(event.data) if isinstance(event, Output) else 0
        elif kind == "execution_start":
            event = self._take_start(told)
        elif kind == "execution_complete":
            event = self._progress.turn("end", decode(ExecutionInfo, told["execution"]))
        elif kind == "stdin_ack":
            self._taken = int(told["stdinBytes"])
            self._acks += 1
        elif kind == "resized":
            self.rows, self.cols = int(told["rows"]), int(told["cols"])
            event = Resized(self.rows, self.cols)
        if event is not None:
            self._events.append(event)

    def _take_start(self, told: Mapping[str, Any]) -> Optional[Started]:
        event = self._progress.turn("started", decode(ExecutionInfo, told["execution"]))
        first, self._begun, self._attached = not self._begun, True, True
        if first and self._tail is not None:
            self._progress.offsets.update(stdout=int(told["stdoutOffset"]), stderr=int(told["stderrOffset"]))
        if "stdinBytes" in told:
            count = int(told["stdinBytes"])
            self._shared = self._shared or self._progress.gaps and not first and not self._writing and count != self._taken
            self._taken = count
        if self._typed is None:
            self._typed = self._taken
        size = told.get("rows"), told.get("cols")
        changed = None not in size and not first and size != (self.rows, self.cols)
        if None not in size:
            self.rows, self.cols = size
        if changed and self.rows is not None and self.cols is not None:
            self._events.append(Resized(self.rows, self.cols))
        return event if isinstance(event, Started) else None

    def __aiter__(self) -> AsyncSession:
        return self

    async def __anext__(self) -> ChannelEvent:
        event = await self.read()
        if event is None:
            raise StopAsyncIteration
        return event

    async def read(self, timeout: Optional[Duration] = None) -> Optional[ChannelEvent]:
        """The next event; None behind the last. After `timeout` seconds without one WaitTimeoutError is raised."""
        deadline = None if timeout is None else time.monotonic() + milliseconds(timeout) / 1000
        return await self._next(deadline)

    async def _next(self, deadline: Optional[float]) -> Optional[ChannelEvent]:
        while True:
            if self._closed:
                return None
            if self._events:
                event = self._events.popleft()
                self._read += len(event.data) if isinstance(event, Output) else 0
                return event
            if self._progress.ended:
                if self._rest is None and self._refusal is not None:
                    raise self._refusal
                return None
            if self._rest is not None:
                self._rest.deadline = deadline
                return await self._rest.__anext__()
            if self._parked:
                await self._channel._unpark(self)
            try:
                await self._channel._until(lambda: bool(self._events) or self._progress.ended or self._closed, deadline)
            except SandboxEndedError:
                if not self._begun:
                    raise
                # The server closes the channel of such a sandbox; what was written there is still to be had.
                self._rest = self.execution.stream()
                self._rest._progress = self._progress

    async def wait(self, timeout: Optional[Duration] = None) -> AsyncResult:
        """Reads it to its end. Only what comes from here on is in the result's output.

        After `timeout` seconds WaitTimeoutError is raised, and the execution goes on; what had come by then is lost to this session.
        """
        deadline = None if timeout is None else time.monotonic() + milliseconds(timeout) / 1000
        out: List[bytes] = []
        err: List[bytes] = []
        while True:
            event = await self._next(deadline)
            if isinstance(event, Output):
                (out if event.type == "stdout" else err).append(event.data)
            elif isinstance(event, Exit):
                return AsyncResult(self.execution, event.execution, b"".join(out), b"".join(err))
            elif event is None:
                raise ProtocolError("the session has been read to its end, or was closed, before")

    async def aclose(self) -> None:
        """Leaves it. The execution goes on."""
        self._closed = True
        self._channel._forget(self)
        if self._attached and self._on is not None and self._on is self._channel._link and not self._progress.ended:
            with contextlib.suppress(CoveError):
                await self._on.post({"type": "detach", "executionId": self._name})
        if self._rest is not None:
            await self._rest.aclose()
        self._channel._turn.ring()

    # --- what is asked ---

    def _is_ready(self) -> bool:
        return self._attached and self._on is self._channel._link or self._parked or self._progress.ended

    async def _ask(self, what: Mapping[str, Any], *, repeatable: bool) -> bool:
        """True when the server has carried it out, or there is nothing left to do it to. False: it is not attached here."""
        channel = self._channel
        while True:
            await channel._until(self._is_ready)
            link, request = self._on, Request(self)
            if self._refusal is not None:
                raise self._refusal
            if self._parked:
                return False
            if self._progress.ended or link is None:
                return True
            with contextlib.suppress(ConnectionLostError):
                await link.post({**what, "executionId": self._name}, request)
            await channel._until(lambda: request.done or request.error is not None or channel._link is not link or self._progress.ended)
            if request.error is not None and not self._progress.ended:
                raise request.error
            if request.done or self._progress.ended:
                return True
            if not repeatable:
                raise ConnectionLostError(f"the connection broke before the server said that it has done this: {what['type']}")

    async def resize(self, rows: int, cols: int) -> None:
        """Gives its terminal another size. The last size counts, whoever gave it; other viewers are told."""
        if not await self._ask({"type": "resize", "rows": rows, "cols": cols}, repeatable=True):
            await self.execution.resize(rows, cols)
        self.rows, self.cols = rows, cols

    async def signal(self, signal: Union[str, int]) -> None:
        """Sends a signal ("INT", "TERM", 9) to its process group; of a terminal, to the one in the foreground."""
        if not await self._ask({"type": "signal", "signal": signal}, repeatable=False):
            await self.execution.signal(signal)

    async def cancel(self) -> None:
        """Kills it and everything it started. Its `Exit` comes as the last event."""
        if not await self._ask({"type": "cancel"}, repeatable=True):
            await self.execution.cancel()

    # --- input ---

    async def write(self, data: Union[str, bytes], *, close: bool = False) -> None:
        """Writes to its standard input, if it was started with `stdin_open=True` or is a terminal; `close` says that nothing follows.

        It returns when the sandbox has taken all of it; while the program does not read, it waits. One that ends before is a
        ConflictError, unless the connection broke meanwhile: then only its exit tells. No byte arrives twice. On a terminal
        ConnectionLostError says that a break came in the middle and that it cannot be told what of this arrived, because
        others type there too.
        """
        sent = data.encode() if isinstance(data, str) else data
        async with self._pen:
            self._writing = True
            try:
                if self._progress.gaps:
                    await self._type(sent, close)
                else:
                    await self._pour(sent, close)
            finally:
                self._writing = False

    async def close_stdin(self) -> None:
        """Says that nothing follows."""
        await self.write(b"", close=True)

    async def _writable(self) -> Optional[AsyncLink]:
        """The link to write to; None: the session is parked, and has none."""
        await self._channel._until(self._is_ready)
        if self._progress.ended:
            raise ConflictError(f"execution {self.id} has ended")
        return None if self._parked else self._on

    async def _put(self, link: AsyncLink, data: bytes, offset: Optional[int], close: bool) -> Request:
        request = Request(self)
        message: Dict[str, Any] = {"type": "stdin", "executionId": self._name, "base64": base64.b64encode(data).decode()}
        if offset is not None:
            message["offset"] = offset
        with contextlib.suppress(ConnectionLostError):
            await link.post({**message, "close": True} if close else message, request)
        return request

    async def _pour(self, data: bytes, close: bool) -> None:
        """To a pipe, by offset: after a break it goes on behind what has arrived."""
        base = self._typed or 0
        end, again, attempts = base + len(data), False, self._channel._http.attempts()
        while True:
            await self._channel._until(self._is_ready)
            if again and self._progress.ended:
                return  # perhaps because all had arrived before the break; its exit tells
            link = await self._writable()
            if link is None:
                at = max(self._taken, base)
                await self._channel._http.send(self.execution._stdin_call(data[at - base:], at, close))
                self._taken = end
                break
            try:
                if await self._pour_on(link, data, base, close, again):
                    break
            except ConflictError as error:
                if not again:
                    raise
                error.retry_after = 0.2  # a server that has not seen the break takes us for a second writer
                await self._channel._http.again(attempts, error, "stdin")
            again = True
        self._typed = end

    async def _pour_on(self, link: AsyncLink, data: bytes, base: int, close: bool, again: bool) -> bool:
        at, end, last = max(self._taken, base), base + len(data), False
        requests: List[Request] = []
        while True:
            while not last and at - self._taken < WINDOW and (at < end or close):
                piece = data[at - base:at - base + PIECE]
                last = at + len(piece) >= end
                requests.append(await self._put(link, piece, at, close and last))
                at += len(piece)
            known = self._taken
            await self._channel._until(lambda: self._channel._link is not link or self._progress.ended or self._taken != known
                                       or all(r.done for r in requests) and self._taken >= end or any(r.error for r in requests))
            error = next((r.error for r in requests if r.error), None)
            if again and self._taken >= end and isinstance(error, ConflictError):
                return True  # the farewell had arrived before the break
            if error is not None and not self._progress.ended:
                raise error
            if self._taken >= end and (not close or last and all(r.done for r in requests)):
                return True
            if self._channel._link is not link:
                return False
            if again and self._progress.ended:
                return True
            if self._progress.ended:
                raise ConflictError(f"execution {self.id} ended before it had read all of this")

    async def _type(self, data: bytes, close: bool) -> None:
        """To a terminal, piece by piece, each acknowledged before the next."""
        pieces = [data[at:at + PIECE] for at in range(0, len(data), PIECE)] or [b""]
        for number, piece in enumerate(pieces):
            await self._type_piece(piece, close and number == len(pieces) - 1)

    async def _type_piece(self, piece: bytes, close: bool) -> None:
        while True:
            link = await self._writable()
            before, acks = self._taken, self._acks
            if link is None:
                await self._channel._http.send(self.execution._stdin_call(piece, None, close))
                return
            request = await self._put(link, piece, None, close)
            await self._channel._until(lambda: self._channel._link is not link or self._progress.ended or request.error is not None
                                       or (self._acks > acks if piece else request.done))
            if request.error is not None and not self._progress.ended:
                raise request.error
            if self._acks > acks or not piece and request.done:
                self._shared = self._shared or self._taken != before + len(piece)
                return
            if self._progress.ended and self._channel._link is link:
                raise ConflictError(f"execution {self.id} ended before it had read all of this")
            await self._channel._until(self._is_ready)
            if self._progress.ended or self._taken == before + len(piece) and not self._shared:
                return
            if self._taken != before:
                self._shared = True
                raise ConnectionLostError("the connection broke while this was typed, and it cannot be told how much of it arrived",
                                          fix="Look at the terminal, and type again what is missing.")


def terminal_of(command: Union[str, Sequence[str], None], rows: int, cols: int) -> Dict[str, Any]:
    return {"tty": True, "rows": rows, "cols": cols, **({} if command is None else {"command": words_of(command)})}
