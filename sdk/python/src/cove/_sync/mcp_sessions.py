# Written by tools/unasync.py from _async/mcp_sessions.py: change that.
"""The sessions of MCP clients on a server."""
from __future__ import annotations

from typing import Iterator, Optional

from .._call import Call, path
from .._json import without_none
from ..errors import NotFoundError
from ..models import McpSession
from ._http import HTTP


class McpSessions:
    """Sessions of clients of the Model Context Protocol. A session has a sandbox of its own, which
    ends with it."""

    def __init__(self, http: HTTP) -> None:
        self._http = http

    def create(self, *, sandbox: Optional[str] = None, template: Optional[str] = None) -> McpSession:
        """Opens a session for a bridge: requests to `/mcp` with its secret in the header
        `Cove-Session` share one sandbox.

        Args:
            sandbox: a sandbox that exists, which outlives the session.
            template: the template of the sandbox that the first call creates.
        """
        body = without_none(sandbox=sandbox, template=template)
        return self._http.get(McpSession, Call("POST", path("v1", "mcp", "sessions"), json=body))

    def list(self) -> Iterator[McpSession]:
        """Open sessions, newest first. Needs `sandboxes:read`."""
        for session in self._http.pages(McpSession, Call("GET", path("v1", "mcp", "sessions"))):
            yield session

    def get(self, id: str) -> McpSession:
        """An open session. Needs `sandboxes:read`."""
        return self._http.get(McpSession, Call("GET", path("v1", "mcp", "sessions", id)))

    def delete(self, id: str) -> None:
        """Ends a session: its calls are cancelled, and its sandbox is deleted. Needs
        `sandboxes:write`."""
        self._http.send(Call("DELETE", path("v1", "mcp", "sessions", id), done_if=(NotFoundError,)))
