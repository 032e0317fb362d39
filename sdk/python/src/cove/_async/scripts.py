"""The scripts of a server: code that ran successfully."""
from __future__ import annotations

from typing import AsyncIterator, Optional

from .._call import Call, path
from ..errors import NotFoundError
from ..models import Script
from ._http import AsyncHTTP


class AsyncScripts:
    """Code that the tool `run_sandbox` ran successfully, kept for the tenant. Reading needs
    `executions:read`."""

    def __init__(self, http: AsyncHTTP) -> None:
        self._http = http

    async def list(self, *, search: Optional[str] = None, language: Optional[str] = None) -> AsyncIterator[Script]:
        """Scripts without their code; those that were used last come first.

        Args:
            search: only scripts that contain every one of these words, whatever the case; those
                with more occurrences come first.
            language: only scripts in this language.
        """
        async for script in self._http.pages(Script, Call("GET", path("v1", "scripts"), {"search": search, "language": language})):
            yield script

    async def get(self, id: str) -> Script:
        """A script with its code."""
        return await self._http.get(Script, Call("GET", path("v1", "scripts", id)))

    async def delete(self, id: str) -> None:
        """Removes a script. Needs `executions`."""
        await self._http.send(Call("DELETE", path("v1", "scripts", id), done_if=(NotFoundError,)))
