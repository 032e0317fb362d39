# Written by tools/unasync.py from _async/channel.py: change that.
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

from .. import _sio
from .._call import HEARTBEAT, Call, event_error, path
from .._error import CoveError, WaitTimeoutError
from .._json import Duration, decode, milliseconds, without_none
from ..errors import ConflictError, ConnectionLostError, ProtocolError, RateLimitedError, ServiceUnavailableError, UnauthorizedError
from ..events import StreamProgress
from ..models import SandboxStatus
from ..options import argv_of, code_of, run_body, terminal_of
from ._http import HTTP
from ._websocket import WebSocket, Request
from .contexts import Context
from .session import Session, label_of

AHEAD = 4 << 20
"""Bytes of unread output of one session; beyond that the session is parked until its output is
read.
"""


def execution_id(sandbox_id: str, key: Optional[str]) -> str:
    """A new id, or the id that is derived from the caller's idempotency key."""
    noise = os.urandom(20) if key is None else hashlib.sha256(f"{sandbox_id}\n{key}".encode()).digest()[:20]
    return "ex" + base64.b32encode(noise)[:20].decode().lower()


class Channel:
    """Executions of one sandbox over one connection.

        with sandbox.channel() as channel:
            build = channel.start_command(["make"])
            tests = channel.start_command(["make", "check"])
            for event in build:
                ...

    A channel can be used by many threads at a time. Closing it ends no execution.
    """

    def __init__(self, http: HTTP, sandbox_id: str, status_interval: Optional[Duration] = None) -> None:
        self._http = http
        self.sandbox_id = sandbox_id
        self.status: Optional[SandboxStatus] = None
        """The latest state of the sandbox that the server sent."""
        self._call = Call("GET", path("v1", "sandboxes", sandbox_id, "stream"),
                          {"statusIntervalMs": None if status_interval is None else milliseconds(status_interval)})
        self._attempts = http.attempts()
        self._turn = _sio.ReaderTurn()
        self._gate = _sio.Lock()
        self._socket: Optional[WebSocket] = None
        self._sessions: Dict[str, Session] = {}
        self._names: Dict[str, Session] = {}  # by the name on the current socket
        self._serial = 0
        self._refusal: Optional[CoveError] = None
        self._failure: Optional[CoveError] = None
        self._closed = False

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.sandbox_id}>"

    def __enter__(self) -> Channel:
        self._until(lambda: self._socket is not None)
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes the channel. The executions continue."""
        self._closed = True
        socket = self._socket
        if socket is not None:
            socket.cut()
        if self._turn.take():  # otherwise the caller that reads closes it
            self._drop(socket)
            self._turn.give()
        self._turn.notify()

    # --- executions ---

    def start_code(self, code: str, *, language: Optional[str] = None, isolated: Optional[bool] = None,
                         timeout: Optional[Duration] = None, cpu_time: Optional[Duration] = None,
                         env: Optional[Mapping[str, str]] = None, cwd: Optional[str] = None, stdin: Optional[str] = None, stdin_open: Optional[bool] = None,
                         output_bytes: Optional[int] = None, changes: Optional[bool] = None, idempotency_key: Optional[str] = None) -> Session:
        """Starts code; its output arrives on this channel. The arguments are those of
        `Sandbox.stream_code`."""
        body = run_body(timeout, cpu_time, env, cwd, stdin, stdin_open, output_bytes, changes)
        return self._start({**code_of(code, language, isolated), **body}, idempotency_key)

    def start_command(self, command: Union[str, Sequence[str]], *, timeout: Optional[Duration] = None, cpu_time: Optional[Duration] = None,
                            env: Optional[Mapping[str, str]] = None, cwd: Optional[str] = None, stdin: Optional[str] = None, stdin_open: Optional[bool] = None,
                            output_bytes: Optional[int] = None, changes: Optional[bool] = None, idempotency_key: Optional[str] = None) -> Session:
        """Starts a program."""
        body = run_body(timeout, cpu_time, env, cwd, stdin, stdin_open, output_bytes, changes)
        return self._start({"command": argv_of(command), **body}, idempotency_key)

    def start_terminal(self, command: Union[str, Sequence[str], None] = None, *, rows: int = 24, cols: int = 80,
                             timeout: Optional[Duration] = None, cpu_time: Optional[Duration] = None, env: Optional[Mapping[str, str]] = None,
                             cwd: Optional[str] = None, output_bytes: Optional[int] = None, changes: Optional[bool] = None,
                             idempotency_key: Optional[str] = None) -> Session:
        """Starts a program on a terminal; the default is a shell. `sandbox.terminals` has terminals
        that need no channel."""
        body = run_body(timeout, cpu_time, env, cwd, None, None, output_bytes, changes)
        return self._start({**terminal_of(command, rows, cols), **body}, idempotency_key)

    def start_in_context(self, context: Union[Context, str], code: str, *, timeout: Optional[Duration] = None,
                               output_bytes: Optional[int] = None, idempotency_key: Optional[str] = None) -> Session:
        """Queues code in a context; its output, displayed values, exceptions and input requests
        arrive on this channel."""
        body = without_none(timeoutMs=None if timeout is None else milliseconds(timeout), outputBytes=output_bytes)
        progress = StreamProgress(execution_id(self.sandbox_id, idempotency_key))
        return self._begin(Session(self, progress, {"contextId": context if isinstance(context, str) else context.id, "code": code, **body}, None))

    def follow(self, execution: str, *, stdout_offset: int = 0, stderr_offset: int = 0, tail_bytes: Optional[int] = None) -> Session:
        """Follows an existing execution from the given offsets on, or from `tail_bytes` before the
        end of its output."""
        progress = StreamProgress(execution, stdout_offset, stderr_offset)
        return self._begin(Session(self, progress, None, tail_bytes))

    def _start(self, body: Mapping[str, Any], idempotency_key: Optional[str]) -> Session:
        progress = StreamProgress(execution_id(self.sandbox_id, idempotency_key))
        return self._begin(Session(self, progress, body, None))

    def _begin(self, session: Session) -> Session:
        """Returns after the server has confirmed that the execution runs or has run."""
        if session.id in self._sessions:
            raise ConflictError(f"{session.id} is already followed on this channel")
        self._sessions[session.id] = session
        attempts = self._http.attempts()
        try:
            while True:
                self._attach(session)
                self._until(lambda: session._started or session._refusal is not None)
                if session._refusal is None:
                    return session
                error, session._refusal, session._attached_socket = session._refusal, None, None
                self._http.again(attempts, error, "execute")
        except BaseException:
            self._forget(session)
            raise

    def _forget(self, session: Session) -> None:
        self._sessions.pop(session.id, None)
        self._names.pop(session._name, None)

    def _attach(self, session: Session) -> None:
        """Attaches a session on the current socket, once. Without a socket, the caller that
        connects attaches it."""
        with self._gate:
            socket = self._socket
            if socket is None or session._attached_socket is socket:
                return
            self._names.pop(session._name, None)
            self._serial += 1
            session._attached_socket, session._attached, session._parked = socket, False, False
            session._name = session.id if session._launch is not None and not session._started else f"r{self._serial}"
            self._names[session._name] = session
            with contextlib.suppress(ConnectionLostError):  # the caller that reads sees this error too
                socket.post(session._attach_message(), Request(session))

    # --- reading ---

    def _until(self, done: Callable[[], bool], deadline: Optional[float] = None) -> None:
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
                self._turn.wait(seen, left)
                continue
            try:
                if not done():
                    self._step(HEARTBEAT if left is None else left)
                self._drop_if_closed()
            finally:
                self._turn.give()

    def _step(self, patience: float) -> None:
        """Connects, or receives messages."""
        socket = self._socket
        try:
            if socket is None:
                self._connect()
                return
            messages = socket.receive(patience)
            try:
                for message in messages:
                    self._take(socket, message)
            except BaseException:  # the remaining messages arrive again on another socket
                self._drop(socket)
                raise
        except CoveError as error:
            self._drop(socket)
            try:
                if isinstance(error, UnauthorizedError) and self._refusal is not None:
                    raise self._refusal  # the message before the close frame has more details
                if not self._closed:
                    self._http.again(self._attempts, error, "channel")
            except CoveError as last:
                self._failure = last

    def _connect(self) -> None:
        query = "&".join(f"{name}={value}" for name, value in self._call.params())
        socket = WebSocket.open(self._http.settings, self._call.path + (f"?{query}" if query else ""))
        self._http.known = True
        self._names.clear()
        self._refusal = None
        self._socket = socket
        try:
            for session in [*self._sessions.values()]:
                if not session._parked:
                    self._attach(session)
        except BaseException:
            self._drop(socket)
            raise

    def _drop(self, socket: Optional[WebSocket]) -> None:
        if socket is not None:
            self._socket = None
            socket.close()

    def _drop_if_closed(self) -> None:
        if self._closed:
            self._drop(self._socket)

    def _take(self, socket: WebSocket, message: Dict[str, Any]) -> None:
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
                self._park(session)

    def _take_error(self, socket: WebSocket, session: Optional[Session], message: Mapping[str, Any]) -> None:
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

    def _park(self, session: Session) -> None:
        """Parks a session that is not read: the server keeps the output until it is read."""
        session._parked, session._attached = True, False
        name = session._name
        self._names.pop(name, None)
        if self._socket is not None:
            with contextlib.suppress(ConnectionLostError):
                self._socket.post({"type": "detach", **label_of(name)})

    def _unpark(self, session: Session) -> None:
        session._parked, session._attached_socket = False, None
        self._attach(session)
