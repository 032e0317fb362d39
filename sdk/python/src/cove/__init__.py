"""cove: run code that nobody has read behind real walls.

    from cove import Sandbox

    with Sandbox.create("python") as sandbox:
        print(sandbox.run_code("print(6 * 7)").stdout)

`Sandbox` and `Cove` wait; `AsyncSandbox` and `AsyncCove` are the same for asyncio and trio. Everything is in docs/python.md.
"""
from __future__ import annotations

__version__ = "0.1.0"

from . import errors
from ._async.client import AsyncCove, AsyncKeys, AsyncTemplates
from ._async.execution import AsyncExecution, AsyncResult, AsyncStream
from ._async.files import AsyncFiles, AsyncWatch
from ._async.sandbox import AsyncSandbox
from ._error import CoveError, ExecutionFailedError, WaitTimeoutError
from ._local import Downloaded
from ._settings import Retry
from ._sync.client import Cove, Keys, Templates
from ._sync.execution import Execution, Result, Stream
from ._sync.files import Files, Watch
from ._sync.sandbox import Sandbox
from .events import Event, Exit, FileEvent, Output, Started
from .models import (ApiKey, ApiKeySecret, Capabilities, Cleaned, ExecutionInfo, FileEntry, FileUrl, Happening, Level, LimitRange, Listing, Policy, Ready, Reason,
                     Receipt, Resources, Runtime, SandboxInfo, SandboxToken, Template, TemplateSpec, Ticket, Usage, Whoami, Written)
from .options import RunOptions, StartOptions

__all__ = [
    "ApiKey", "ApiKeySecret", "AsyncCove", "AsyncExecution", "AsyncFiles", "AsyncKeys", "AsyncResult", "AsyncSandbox", "AsyncStream",
    "AsyncTemplates", "AsyncWatch", "Capabilities", "Cleaned", "Cove", "CoveError", "Downloaded", "Event", "Execution", "ExecutionFailedError", "ExecutionInfo",
    "Exit", "FileEntry", "FileEvent", "FileUrl", "Files", "Happening", "Keys", "Level", "LimitRange", "Listing", "Output", "Policy", "Ready", "Reason", "Receipt", "Resources",
    "Result", "Retry", "RunOptions", "Runtime", "Sandbox", "SandboxInfo", "SandboxToken", "StartOptions", "Started", "Stream", "Template", "TemplateSpec", "Templates", "Ticket", "Usage",
    "WaitTimeoutError", "Watch", "Whoami", "Written", "errors",
]
