"""Tools: what a language model can call, of a server or in a sandbox."""
from __future__ import annotations

from typing import Any, List, Optional

from .._call import Call, path
from .._json import decode
from ..models import Tool, ToolResult
from ._http import AsyncHTTP

TOOL_PATIENCE = 3600.0
"""Seconds; a tool is answered when its work has ended."""
TOOL_ANSWER_MAX = 256 << 20


class AsyncTools:
    """The tools that the server offers to language models.

        result = await sandbox.tools.call("bash", command="ls -l")
        print(result.text)
    """

    def __init__(self, http: AsyncHTTP, sandbox_id: Optional[str] = None) -> None:
        self._http = http
        self._sandbox_id = sandbox_id

    async def list(self) -> List[Tool]:
        """All tools, with their JSON schemas: those of a sandbox if this is `sandbox.tools`."""
        all_tools = [decode(Tool, item) for item in (await self._http.json(Call("GET", path("v1", "tools"))))["items"]]
        return [tool for tool in all_tools if self._sandbox_id is None or tool.place == "sandbox"]

    async def get(self, name: str, /) -> Tool:
        """One tool."""
        return await self._http.get(Tool, Call("GET", path("v1", "tools", name)))

    async def call(self, name: str, /, **arguments: Any) -> ToolResult:
        """Calls a tool and waits for its end. `client.tools` calls tools that need no sandbox,
        `sandbox.tools` those of the sandbox.

        Work that failed raises nothing: look at `result.is_error`. Wrong arguments, a missing
        permission and a quota raise the errors of every other request. A call is never repeated
        after a lost connection, because its work may have been done.
        """
        where = ("tools", name) if self._sandbox_id is None else ("sandboxes", self._sandbox_id, "tools", name)
        return await self._http.get(ToolResult, Call("POST", path("v1", *where), json=arguments, repeatable=False, read_timeout=TOOL_PATIENCE,
                                                     answer_max=TOOL_ANSWER_MAX))
