# Written by tools/unasync.py from _async/terminals.py: change that.
"""Terminals of a sandbox. Each terminal object has its own channel, so several clients can share
one terminal.
"""
from __future__ import annotations

from typing import Any, Iterator, Mapping, Optional, Sequence, Union

from .._call import Call, path
from .._json import Duration
from ..events import StreamProgress
from ..models import ExecutionInfo
from ..options import run_body, terminal_of
from ._http import HTTP
from .channel import Channel, execution_id
from .session import Session


class Terminals:
    """The terminals of a sandbox.

        with sandbox.terminals.create() as terminal:
            terminal.write("ls\\n")
            for event in terminal:
                ...

    A terminal continues without a viewer; any number of clients can `attach` to it again, from any
    machine.
    """

    def __init__(self, http: HTTP, sandbox_id: str) -> None:
        self._http = http
        self._sandbox_id = sandbox_id

    def create(self, command: Union[str, Sequence[str], None] = None, *, rows: int = 24, cols: int = 80,
                     timeout: Optional[Duration] = None, cpu_time: Optional[Duration] = None, env: Optional[Mapping[str, str]] = None,
                     cwd: Optional[str] = None, output_bytes: Optional[int] = None, changes: Optional[bool] = None,
                     idempotency_key: Optional[str] = None) -> Terminal:
        """Starts a program on a terminal; the default is a shell. Without `timeout` the terminal
        lives as long as the sandbox."""
        body = run_body(timeout, cpu_time, env, cwd, None, None, output_bytes, changes)
        progress = StreamProgress(execution_id(self._sandbox_id, idempotency_key))
        return self._attach_terminal(progress, {**terminal_of(command, rows, cols), **body}, None)

    def attach(self, id: str, *, offset: int = 0, tail_bytes: Optional[int] = None) -> Terminal:
        """Attaches to an existing terminal, from `offset` on, or from `tail_bytes` before the end
        of its output."""
        return self._attach_terminal(StreamProgress(id, offset), None, tail_bytes)

    def list(self) -> Iterator[ExecutionInfo]:
        """The running terminals, the newest first."""
        call = Call("GET", path("v1", "sandboxes", self._sandbox_id, "executions"), {"state": "running"})
        for info in self._http.pages(ExecutionInfo, call):
            if info.tty:
                yield info

    def _attach_terminal(self, progress: StreamProgress, launch: Optional[Mapping[str, Any]], tail_bytes: Optional[int]) -> Terminal:
        channel = Channel(self._http, self._sandbox_id)
        terminal = Terminal(channel, progress, launch, tail_bytes)
        try:
            channel._begin(terminal)
        except BaseException:
            channel.close()
            raise
        return terminal


class Terminal(Session):
    """A connection to a terminal: `write` types, `resize` sets the window size, and output arrives
    as events. Closing it does not end the terminal."""

    def __enter__(self) -> Terminal:
        return self

    def close(self) -> None:
        """Closes the connection. The terminal continues."""
        super().close()
        self._channel.close()
