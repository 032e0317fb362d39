"""cove: run code that nobody has read behind real walls.

    from cove import Sandbox

    with Sandbox.create("python") as sandbox:
        print(sandbox.run_code("print(6 * 7)").stdout)

`Sandbox` and `Cove` wait; `AsyncSandbox` and `AsyncCove` are the same for asyncio and trio. Everything is in docs/python.md.
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
from ._async.team import AsyncKeys, AsyncRoles, AsyncTenants, AsyncUsers
from ._async.terminals import AsyncTerminal, AsyncTerminals
from ._error import CoveError, ExecutionFailedError, WaitTimeoutError
from ._local import Downloaded
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
from ._sync.team import Keys, Roles, Tenants, Users
from ._sync.terminals import Terminal, Terminals
from .events import Asked, ChannelEvent, Event, Exit, FileEvent, Output, Raised, Resized, Shown, Started
from .executed import Executed, Omitted
from .models import (ApiKey, ApiKeySecret, Capabilities, Cleaned, Completions, ContextInfo, EventGap, ExecutionInfo, FileEntry, FileUrl, Happening, Inspection, Level, LimitRange, Listing, Policy, Ready, Reason,
                     Receipt, Resources, Runtime, SandboxInfo, SandboxStatus, SandboxToken, ServerEvent, Template, TemplateSpec, Ticket, Usage, Whoami, Written)
from .options import RunOptions, StartOptions
from .pools import Pool, PoolScaling, PoolStatus, PoolZygote, RecycledStatus, ZygoteStatus
from .team import (Actor, AuditHead, AuditKey, AuditRecord, Budget, BudgetBounds, BudgetPeriod, LiveLimits, LiveSandbox, LiveUsage, LoginInfo, Quota,
                   QuotaUsed, Role, Tenant, UsageReport, UsageRow, User)

__all__ = [
    "Actor", "ApiKey", "ApiKeySecret", "Asked", "AsyncAudit", "AsyncChannel", "AsyncContext", "AsyncContexts", "AsyncCove", "AsyncEventStream",
    "AsyncEvents", "AsyncExecution", "AsyncFiles", "AsyncKeys", "AsyncPools", "AsyncResult", "AsyncRoles", "AsyncSandbox", "AsyncSession",
    "AsyncStream", "AsyncTemplates", "AsyncTenants", "AsyncTerminal", "AsyncTerminals", "AsyncUsages", "AsyncUsers", "AsyncWatch", "Audit",
    "AuditHead", "AuditKey", "AuditRecord", "Budget", "BudgetBounds", "BudgetPeriod", "Capabilities", "Channel", "ChannelEvent", "Cleaned",
    "Completions", "Context", "ContextInfo", "Contexts", "Cove", "CoveError", "Downloaded", "Event", "EventGap", "EventStream", "Events", "Executed",
    "Execution", "ExecutionFailedError", "ExecutionInfo", "Exit", "FileEntry", "FileEvent", "FileUrl", "Files", "Happening", "Inspection", "Keys",
    "Level", "LimitRange", "Listing", "LiveLimits", "LiveSandbox", "LiveUsage", "LoginInfo", "Omitted", "Output", "Policy", "Pool", "PoolScaling",
    "PoolStatus", "PoolZygote", "Pools", "Quota", "QuotaUsed", "Raised", "Ready", "Reason", "Receipt", "RecycledStatus", "Resized", "Resources", "Result", "Retry",
    "Role", "Roles", "RunOptions", "Runtime", "Sandbox", "SandboxInfo", "SandboxStatus", "SandboxToken", "ServerEvent", "Session", "Shown",
    "StartOptions", "Started", "Stream", "Template", "TemplateSpec", "Templates", "Tenant", "Tenants", "Terminal", "Terminals", "Ticket", "Usage",
    "UsageReport", "UsageRow", "Usages", "User", "Users", "WaitTimeoutError", "Watch", "Whoami", "Written", "ZygoteStatus", "errors",
]
