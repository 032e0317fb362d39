"""A channel to a sandbox: one WebSocket that starts, follows, feeds and ends many executions at the
same time.

Nothing reads in the background. One of the callers that wait for a message reads for all of them,
so a channel needs neither a task nor a thread of its own, and a program whose output is not read is
stopped by back-pressure.

1. The client chooses the id of an execution before it sends the request. A request that was cut off
   before its answer is therefore sent again, and the execution starts once.
2. Received output is counted in bytes. When the connection breaks, the channel reconnects and all
   sessions continue at their offsets.
"""
from __future__ import annotations

import base64
import contextlib
import hashlib
import os
import time
from typing import Any, Callable, Dict, Mapping, Optional, Sequence, Union

from .. import _aio
from .._call import HEARTBEAT, Call, event_error, path
from .._error import CoveError, WaitTimeoutError
from .._json import Duration, decode, milliseconds, without_none
from ..errors import ConflictError, ConnectionLostError, ProtocolError, RateLimitedError, ServiceUnavailableError, UnauthorizedError
from ..events import StreamProgress
from ..models import SandboxStatus
from ..options import argv_of, code_of, run_body, terminal_of
from ._http import AsyncHTTP
from ._websocket import AsyncWebSocket, Request
from .contexts import AsyncContext
from .session import AsyncSession, label_of

AHEAD = 4 << 20
"""Bytes of unread output of one session; beyond that the session is parked until its output is
read.
"""


def execution_id(sandbox_id: str, key: Optional[str]) -> str:
    """A new id, or the id that is derived from the caller's idempotency key."""
    noise = os.urandom(20) if key is None else hashlib.sha256(f"{sandbox_id}\n{key}".encode()).digest()[:20]
    return "ex" + base64.b32encode(noise)[:20].decode().lower()


class AsyncChannel:
    """Executions of one sandbox over one connection.

        async with sandbox.channel() as channel:
            build = await channel.start_command(["make"])
            tests = await channel.start_command(["make", "check"])
            async for event in build:
                ...

    A channel can be used by many tasks at a time. Closing it ends no execution.
    """

    def __init__(self, http: AsyncHTTP, sandbox_id: str, status_interval: Optional[Duration] = None) -> None:
        self._http = http
        self.sandbox_id = sandbox_id
        self.status: Optional[SandboxStatus] = None
        """The latest state of the sandbox that the server sent."""
        self._call = Call("GET", path("v1", "sandboxes", sandbox_id, "stream"),
                          {"statusIntervalMs": None if status_interval is None else milliseconds(status_interval)})
        self._attempts = http.attempts()
        self._turn = _aio.ReaderTurn()
        self._gate = _aio.Lock()
        self._socket: Optional[AsyncWebSocket] = None
        self._sessions: Dict[str, AsyncSession] = {}
        self._names: Dict[str, AsyncSession] = {}  # by the name on the current socket
        self._serial = 0
        self._refusal: Optional[CoveError] = None
        self._failure: Optional[CoveError] = None
        self._closed = False

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.sandbox_id}>"

    async def __aenter__(self) -> AsyncChannel:
        await self._until(lambda: self._socket is not None)
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Closes the channel. The executions continue."""
        self._closed = True
        socket = self._socket
        if socket is not None:
            await socket.cut()
        if self._turn.take():  # otherwise the caller that reads closes it
            await self._drop(socket)
            self._turn.give()
        self._turn.notify()

    # --- executions ---

    async def start_code(self, code: str, *, language: Optional[str] = None, isolated: Optional[bool] = None,
                         timeout: Optional[Duration] = None, cpu_time: Optional[Duration] = None,
                         env: Optional[Mapping[str, str]] = None, cwd: Optional[str] = None, stdin: Optional[str] = None, stdin_open: Optional[bool] = None,
                         output_bytes: Optional[int] = None, changes: Optional[bool] = None, idempotency_key: Optional[str] = None) -> AsyncSession:
        """Starts code; its output arrives on this channel. The arguments are those of
        `Sandbox.stream_code`."""
        body = run_body(timeout, cpu_time, env, cwd, stdin, stdin_open, output_bytes, changes)
        return await self._start({**code_of(code, language, isolated), **body}, idempotency_key)

    async def start_command(self, command: Union[str, Sequence[str]], *, timeout: Optional[Duration] = None, cpu_time: Optional[Duration] = None,
                            env: Optional[Mapping[str, str]] = None, cwd: Optional[str] = None, stdin: Optional[str] = None, stdin_open: Optional[bool] = None,
                            output_bytes: Optional[int] = None, changes: Optional[bool] = None, idempotency_key: Optional[str] = None) -> AsyncSession:
        """Starts a program."""
        body = run_body(timeout, cpu_time, env, cwd, stdin, stdin_open, output_bytes, changes)
        return await self._start({"command": argv_of(command), **body}, idempotency_key)

    async def start_terminal(self, command: Union[str, Sequence[str], None] = None, *, rows: int = 24, cols: int = 80,
                             timeout: Optional[Duration] = None, cpu_time: Optional[Duration] = None, env: Optional[Mapping[str, str]] = None,
                             cwd: Optional[str] = None, output_bytes: Optional[int] = None, changes: Optional[bool] = None,
                             idempotency_key: Optional[str] = None) -> AsyncSession:
        """Starts a program on a terminal; the default is a shell. `sandbox.terminals` has terminals
        that need no channel."""
        body = run_body(timeout, cpu_time, env, cwd, None, None, output_bytes, changes)
        return await self._start({**terminal_of(command, rows, cols), **body}, idempotency_key)

    async def start_in_context(self, context: Union[AsyncContext, str], code: str, *, timeout: Optional[Duration] = None,
                               output_bytes: Optional[int] = None, idempotency_key: Optional[str] = None) -> AsyncSession:
        """Queues code in a context; its output, displayed values, exceptions and input requests
        arrive on this channel."""
        body = without_none(timeoutMs=None if timeout is None else milliseconds(timeout), outputBytes=output_bytes)
        progress = StreamProgress(execution_id(self.sandbox_id, idempotency_key))
        return await self._begin(AsyncSession(self, progress, {"contextId": context if isinstance(context, str) else context.id, "code": code, **body}, None))

    async def follow(self, execution: str, *, stdout_offset: int = 0, stderr_offset: int = 0, tail_bytes: Optional[int] = None) -> AsyncSession:
        """Follows an existing execution from the given offsets on, or from `tail_bytes` before the
        end of its output."""
        progress = StreamProgress(execution, stdout_offset, stderr_offset)
        return await self._begin(AsyncSession(self, progress, None, tail_bytes))

    async def _start(self, body: Mapping[str, Any], idempotency_key: Optional[str]) -> AsyncSession:
        progress = StreamProgress(execution_id(self.sandbox_id, idempotency_key))
        return await self._begin(AsyncSession(self, progress, body, None))

    async def _begin(self, session: AsyncSession) -> AsyncSession:
        """Returns after the server has confirmed that the execution runs or has run."""
        if session.id in self._sessions:
            raise ConflictError(f"{session.id} is already followed on this channel")
        self._sessions[session.id] = session
        attempts = self._http.attempts()
        try:
            while True:
                await self._attach(session)
                await self._until(lambda: session._started or session._refusal is not None)
                if session._refusal is None:
                    return session
                error, session._refusal, session._attached_socket = session._refusal, None, None
                await self._http.again(attempts, error, "execute")
        except BaseException:
            self._forget(session)
            raise

    def _forget(self, session: AsyncSession) -> None:
        self._sessions.pop(session.id, None)
        self._names.pop(session._name, None)

    async def _attach(self, session: AsyncSession) -> None:
        """Attaches a session on the current socket, once. Without a socket, the caller that
        connects attaches it."""
        async with self._gate:
            socket = self._socket
            if socket is None or session._attached_socket is socket:
                return
            self._names.pop(session._name, None)
            self._serial += 1
            session._attached_socket, session._attached, session._parked = socket, False, False
            session._name = session.id if session._launch is not None and not session._started else f"r{self._serial}"
            self._names[session._name] = session
            with contextlib.suppress(ConnectionLostError):  # the caller that reads sees this error too
                await socket.post(session._attach_message(), Request(session))

    # --- reading ---

    async def _until(self, done: Callable[[], bool], deadline: Optional[float] = None) -> None:
        """Receives messages until `done`."""
        while True:
            seen = self._turn.count
            if done():
                return
            if self._failure is not None:
                raise self._failure
            if self._closed:
                raise ConnectionLostError("the channel is closed")
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                raise WaitTimeoutError("the time to wait is over")
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
        """Connects, or receives messages."""
        socket = self._socket
        try:
            if socket is None:
                await self._connect()
                return
            messages = await socket.receive(patience)
            try:
                for message in messages:
                    await self._take(socket, message)
            except BaseException:  # the remaining messages arrive again on another socket
                await self._drop(socket)
                raise
        except CoveError as error:
            await self._drop(socket)
            try:
                if isinstance(error, UnauthorizedError) and self._refusal is not None:
                    raise self._refusal  # the message before the close frame has more details
                if not self._closed:
                    await self._http.again(self._attempts, error, "channel")
            except CoveError as last:
                self._failure = last

    async def _connect(self) -> None:
        query = "&".join(f"{name}={value}" for name, value in self._call.params())
        socket = await AsyncWebSocket.open(self._http.settings, self._call.path + (f"?{query}" if query else ""))
        self._http.known = True
        self._names.clear()
        self._refusal = None
        self._socket = socket
        try:
            for session in [*self._sessions.values()]:
                if not session._parked:
                    await self._attach(session)
        except BaseException:
            await self._drop(socket)
            raise

    async def _drop(self, socket: Optional[AsyncWebSocket]) -> None:
        if socket is not None:
            self._socket = None
            await socket.aclose()

    async def _drop_if_closed(self) -> None:
        if self._closed:
            await self._drop(self._socket)

    async def _take(self, socket: AsyncWebSocket, message: Dict[str, Any]) -> None:
        kind = message.get("type")
        session = self._names.get(str(message.get("label") or message.get("executionId")))
        if kind == "status":
            self.status = decode(SandboxStatus, message)
            return
        self._attempts.record_success()
        if kind == "pong":
            socket.acknowledge(message.get("timestamp"))
        elif kind == "error":
            self._take_error(socket, session, message)
        elif session is not None:
            try:
                session._take(str(kind), message)
            except (KeyError, TypeError, ValueError) as error:
                raise ProtocolError(f"a message of the channel is malformed: {error!r}") from error
            if session._progress.ended:
                self._forget(session)
            elif session._waiting_bytes > AHEAD and not session._writing and not session._parked:
                await self._park(session)

    def _take_error(self, socket: AsyncWebSocket, session: Optional[AsyncSession], message: Mapping[str, Any]) -> None:
        error = event_error(message.get("error") or {})
        passing = isinstance(error, (ServiceUnavailableError, RateLimitedError))
        if passing:
            error.retry_after = error.retry_after or 0.0
        if not message.get("executionId") and not message.get("label"):  # a message that could not be parsed, or the reason for a close frame
            self._refusal = error
            session = socket.requests[0].about if socket.requests else None
        if session is None:
            return
        if not session._attached and session._started and passing:
            raise error  # the server has just started: all sessions are attached again
        if not session._attached:
            session._refusal = error
            if session._started:
                session._progress.ended = True
                self._forget(session)
        elif socket.requests and socket.requests[0].about is session:
            socket.requests[0].error = error

    async def _park(self, session: AsyncSession) -> None:
        """Parks a session that is not read: the server keeps the output until it is read."""
        session._parked, session._attached = True, False
        name = session._name
        self._names.pop(name, None)
        if self._socket is not None:
            with contextlib.suppress(ConnectionLostError):
                await self._socket.post({"type": "detach", **label_of(name)})

    async def _unpark(self, session: AsyncSession) -> None:
        session._parked, session._attached_socket = False, None
        await self._attach(session)
