"""cove: run untrusted code in fast, locked-down sandboxes.

    from cove import Sandbox

    with Sandbox.create("python") as sandbox:
        print(sandbox.run_code("print(6 * 7)").stdout)

`Sandbox` and `Cove` block until a call is done; `AsyncSandbox` and `AsyncCove` have the same
methods for asyncio and trio. docs/python.md is the manual.
"""
from __future__ import annotations

__version__ = "0.1.0"

from . import errors
from ._async.channel import AsyncChannel
from ._async.client import AsyncCove, AsyncTemplates
from ._async.contexts import AsyncContext, AsyncContexts
from ._async.execution import AsyncExecution, AsyncResult, AsyncStream
from ._async.files import AsyncFiles, AsyncWatch
from ._async.pools import AsyncPools
from ._async.records import AsyncAudit, AsyncEvents, AsyncEventStream, AsyncUsages
from ._async.sandbox import AsyncSandbox
from ._async.session import AsyncSession
from ._async.tenants import AsyncKeys, AsyncRoles, AsyncTenants, AsyncUsers
from ._async.terminals import AsyncTerminal, AsyncTerminals
from ._error import CoveError, ExecutionFailedError, WaitTimeoutError
from ._local import DownloadResult
from ._settings import Retry
from ._sync.channel import Channel
from ._sync.client import Cove, Templates
from ._sync.contexts import Context, Contexts
from ._sync.execution import Execution, Result, Stream
from ._sync.files import Files, Watch
from ._sync.pools import Pools
from ._sync.records import Audit, Events, EventStream, Usages
from ._sync.sandbox import Sandbox
from ._sync.session import Session
from ._sync.tenants import Keys, Roles, Tenants, Users
from ._sync.terminals import Terminal, Terminals
from .events import InputRequestEvent, ChannelEvent, Event, ExitEvent, FileEvent, OutputEvent, ExceptionEvent, ResizeEvent, DisplayEvent, StartedEvent
from .execute_result import ExecuteResult, OmittedFile
from .models import (ApiKey, ApiKeySecret, Capabilities, GcReport, Completions, ContextInfo, EventGap, ExecutionInfo, FileEntry, FileUrl, SandboxEvent, Inspection, Level, LimitRange, FileList, Policy, Readiness, Reason,
                     Receipt, Resources, Runtime, SandboxInfo, SandboxStatus, SandboxToken, ServerEvent, Template, TemplateSpec, Ticket, Usage, Whoami, WriteResult)
from .options import RunOptions, StartOptions
from .pools import Pool, PoolScaling, PoolStatus, PoolZygote, RecycledStatus, ZygoteStatus
from .tenants import (Actor, AuditHead, AuditKey, AuditRecord, Budget, BudgetBounds, BudgetPeriod, LiveLimits, LiveSandbox, LiveUsage, LoginInfo, Quota,
                   QuotaUsed, Role, Tenant, UsageReport, UsageRow, User)

__all__ = [
    "Actor", "ApiKey", "ApiKeySecret", "InputRequestEvent", "AsyncAudit", "AsyncChannel", "AsyncContext", "AsyncContexts", "AsyncCove", "AsyncEventStream",
    "AsyncEvents", "AsyncExecution", "AsyncFiles", "AsyncKeys", "AsyncPools", "AsyncResult", "AsyncRoles", "AsyncSandbox", "AsyncSession",
    "AsyncStream", "AsyncTemplates", "AsyncTenants", "AsyncTerminal", "AsyncTerminals", "AsyncUsages", "AsyncUsers", "AsyncWatch", "Audit",
    "AuditHead", "AuditKey", "AuditRecord", "Budget", "BudgetBounds", "BudgetPeriod", "Capabilities", "Channel", "ChannelEvent", "GcReport",
    "Completions", "Context", "ContextInfo", "Contexts", "Cove", "CoveError", "DownloadResult", "Event", "EventGap", "EventStream", "Events", "ExecuteResult",
    "Execution", "ExecutionFailedError", "ExecutionInfo", "ExitEvent", "FileEntry", "FileEvent", "FileUrl", "Files", "SandboxEvent", "Inspection", "Keys",
    "Level", "LimitRange", "FileList", "LiveLimits", "LiveSandbox", "LiveUsage", "LoginInfo", "OmittedFile", "OutputEvent", "Policy", "Pool", "PoolScaling",
    "PoolStatus", "PoolZygote", "Pools", "Quota", "QuotaUsed", "ExceptionEvent", "Readiness", "Reason", "Receipt", "RecycledStatus", "ResizeEvent", "Resources", "Result", "Retry",
    "Role", "Roles", "RunOptions", "Runtime", "Sandbox", "SandboxInfo", "SandboxStatus", "SandboxToken", "ServerEvent", "Session", "DisplayEvent",
    "StartOptions", "StartedEvent", "Stream", "Template", "TemplateSpec", "Templates", "Tenant", "Tenants", "Terminal", "Terminals", "Ticket", "Usage",
    "UsageReport", "UsageRow", "Usages", "User", "Users", "WaitTimeoutError", "Watch", "Whoami", "WriteResult", "ZygoteStatus", "errors",
]
