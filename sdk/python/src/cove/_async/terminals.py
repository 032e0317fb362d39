"""Terminals of a sandbox. Each terminal object has its own channel, so several clients can share
one terminal.
"""
from __future__ import annotations

from typing import Any, AsyncIterator, Mapping, Optional, Sequence, Union

from .._call import Call, path
from .._json import Duration
from ..events import StreamProgress
from ..models import ExecutionInfo
from ..options import run_body, terminal_of
from ._http import AsyncHTTP
from .channel import AsyncChannel, execution_id
from .session import AsyncSession


class AsyncTerminals:
    """The terminals of a sandbox.

        async with await sandbox.terminals.create() as terminal:
            await terminal.write("ls\\n")
            async for event in terminal:
                ...

    A terminal continues without a viewer; any number of clients can `attach` to it again, from any
    machine.
    """

    def __init__(self, http: AsyncHTTP, sandbox_id: str) -> None:
        self._http = http
        self._sandbox_id = sandbox_id

    async def create(self, command: Union[str, Sequence[str], None] = None, *, rows: int = 24, cols: int = 80,
                     timeout: Optional[Duration] = None, cpu_time: Optional[Duration] = None, env: Optional[Mapping[str, str]] = None,
                     cwd: Optional[str] = None, output_bytes: Optional[int] = None, changes: Optional[bool] = None,
                     idempotency_key: Optional[str] = None) -> AsyncTerminal:
        """Starts a program on a terminal; the default is a shell. Without `timeout` the terminal
        lives as long as the sandbox."""
        body = run_body(timeout, cpu_time, env, cwd, None, None, output_bytes, changes)
        progress = StreamProgress(execution_id(self._sandbox_id, idempotency_key))
        return await self._attach_terminal(progress, {**terminal_of(command, rows, cols), **body}, None)

    async def attach(self, id: str, *, offset: int = 0, tail_bytes: Optional[int] = None) -> AsyncTerminal:
        """Attaches to an existing terminal, from `offset` on, or from `tail_bytes` before the end
        of its output."""
        return await self._attach_terminal(StreamProgress(id, offset), None, tail_bytes)

    async def list(self) -> AsyncIterator[ExecutionInfo]:
        """The running terminals, the newest first."""
        call = Call("GET", path("v1", "sandboxes", self._sandbox_id, "executions"), {"state": "running"})
        async for info in self._http.pages(ExecutionInfo, call):
            if info.tty:
                yield info

    async def _attach_terminal(self, progress: StreamProgress, launch: Optional[Mapping[str, Any]], tail_bytes: Optional[int]) -> AsyncTerminal:
        channel = AsyncChannel(self._http, self._sandbox_id)
        terminal = AsyncTerminal(channel, progress, launch, tail_bytes)
        try:
            await channel._begin(terminal)
        except BaseException:
            await channel.aclose()
            raise
        return terminal


class AsyncTerminal(AsyncSession):
    """A connection to a terminal: `write` types, `resize` sets the window size, and output arrives
    as events. Closing it does not end the terminal."""

    async def __aenter__(self) -> AsyncTerminal:
        return self

    async def aclose(self) -> None:
        """Closes the connection. The terminal continues."""
        await super().aclose()
        await self._channel.aclose()
