# Written by tools/unasync.py from _async/scripts.py: change that.
"""The scripts of a server: code that ran successfully."""
from __future__ import annotations

from typing import Iterator, Optional

from .._call import Call, path
from ..errors import NotFoundError
from ..models import Script
from ._http import HTTP


class Scripts:
    """Code that the tool `run_sandbox` ran successfully, kept for the tenant. Reading needs
    `executions:read`."""

    def __init__(self, http: HTTP) -> None:
        self._http = http

    def list(self, *, search: Optional[str] = None, language: Optional[str] = None) -> Iterator[Script]:
        """Scripts without their code; those that were used last come first.

        Args:
            search: only scripts that contain every one of these words, whatever the case; those
                with more occurrences come first.
            language: only scripts in this language.
        """
        for script in self._http.pages(Script, Call("GET", path("v1", "scripts"), {"search": search, "language": language})):
            yield script

    def get(self, id: str) -> Script:
        """A script with its code."""
        return self._http.get(Script, Call("GET", path("v1", "scripts", id)))

    def delete(self, id: str) -> None:
        """Removes a script. Needs `executions`."""
        self._http.send(Call("DELETE", path("v1", "scripts", id), done_if=(NotFoundError,)))
