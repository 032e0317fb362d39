"""The sessions of MCP clients on a server."""
from __future__ import annotations

from typing import AsyncIterator, Optional

from .._call import Call, path
from .._json import without_none
from ..errors import NotFoundError
from ..models import McpSession
from ._http import AsyncHTTP


class AsyncMcpSessions:
    """Sessions of clients of the Model Context Protocol. A session has a sandbox of its own, which
    ends with it."""

    def __init__(self, http: AsyncHTTP) -> None:
        self._http = http

    async def create(self, *, sandbox: Optional[str] = None, template: Optional[str] = None) -> McpSession:
        """Opens a session for a bridge: requests to `/mcp` with its secret in the header
        `Cove-Session` share one sandbox.

        Args:
            sandbox: a sandbox that exists, which outlives the session.
            template: the template of the sandbox that the first call creates.
        """
        body = without_none(sandbox=sandbox, template=template)
        return await self._http.get(McpSession, Call("POST", path("v1", "mcp", "sessions"), json=body))

    async def list(self) -> AsyncIterator[McpSession]:
        """Open sessions, newest first. Needs `sandboxes:read`."""
        async for session in self._http.pages(McpSession, Call("GET", path("v1", "mcp", "sessions"))):
            yield session

    async def get(self, id: str) -> McpSession:
        """An open session. Needs `sandboxes:read`."""
        return await self._http.get(McpSession, Call("GET", path("v1", "mcp", "sessions", id)))

    async def delete(self, id: str) -> None:
        """Ends a session: its calls are cancelled, and its sandbox is deleted. Needs
        `sandboxes:write`."""
        await self._http.send(Call("DELETE", path("v1", "mcp", "sessions", id), done_if=(NotFoundError,)))
