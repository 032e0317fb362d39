"""cove: run untrusted code in fast, locked-down sandboxes.

    import cove

    print(cove.execute("6 * 7").text)

    with cove.Sandbox.create() as sandbox:
        print(sandbox.run_command("uname -s").stdout)

`Sandbox` and `Cove` block until a call is done; `AsyncSandbox` and `AsyncCove` have the same
methods for asyncio and trio. docs/python.md is the manual.
"""
from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Dict, List

__version__ = "0.1.0"

if TYPE_CHECKING:
    from . import errors
    from ._async.channel import AsyncChannel
    from ._async.client import AsyncCove, AsyncTemplates
    from ._async.contexts import AsyncContext, AsyncContexts
    from ._async.execution import AsyncExecution, AsyncStream
    from ._async.files import AsyncFiles, AsyncWatch
    from ._async.mcp_sessions import AsyncMcpSessions
    from ._async.pools import AsyncPools
    from ._async.records import AsyncAudit, AsyncEvents, AsyncEventStream, AsyncExecutions, AsyncUsages
    from ._async.sandbox import AsyncCommands, AsyncSandbox
    from ._async.scripts import AsyncScripts
    from ._async.secrets import AsyncSecrets
    from ._async.session import AsyncSession
    from ._async.tenants import AsyncKeys, AsyncRoles, AsyncTenants, AsyncUsers
    from ._async.terminals import AsyncTerminal, AsyncTerminals
    from ._async.tools import AsyncTools
    from ._default import calculate, execute
    from ._error import CoveError, ExecutionFailedError, WaitTimeoutError
    from ._local import DownloadResult
    from ._settings import Retry
    from ._sync.channel import Channel
    from ._sync.client import Cove, Templates
    from ._sync.contexts import Context, Contexts
    from ._sync.execution import Execution, Stream
    from ._sync.files import Files, Watch
    from ._sync.mcp_sessions import McpSessions
    from ._sync.pools import Pools
    from ._sync.records import Audit, Events, EventStream, Executions, Usages
    from ._sync.sandbox import Commands, Sandbox
    from ._sync.scripts import Scripts
    from ._sync.secrets import Secrets
    from ._sync.session import Session
    from ._sync.tenants import Keys, Roles, Tenants, Users
    from ._sync.terminals import Terminal, Terminals
    from ._sync.tools import Tools
    from .calculation import Calculation
    from .events import (InputRequestEvent, ChannelEvent, Event, ExitEvent, FileEvent, OutputEvent, ExceptionEvent, ResizeEvent, DisplayEvent, StartedEvent)
    from .models import (ApiKey, ApiKeySecret, Capabilities, GcReport, Completions, ContextInfo, EventGap, ExecutionInfo, FileEntry, FileUrl, SandboxEvent,
        Driver, Inspection, Level, LimitRange, McpSession, Policy, Readiness, Reason, Receipt, ReceiptSummary, Resources, Runtime, SandboxInfo, SandboxStatus,
        SandboxToken, Script, Secret, ServerEvent, Template, TemplateSpec, Ticket, Tool, ToolImage, ToolResult, Usage, Used, Whoami, WriteResult)
    from .network import Network, NetworkConnection, NetworkDecision, NetworkDestination, NetworkSecret, NetworkUse
    from .pools import Pool, PoolScaling, PoolStatus, PoolZygote, RecycledStatus, ZygoteStatus
    from .result import CodeReport, OmittedFile, Result, Violation
    from .tenants import (Actor, AuditHead, AuditKey, AuditRecord, Budget, BudgetBounds, BudgetPeriod, LiveLimits, LiveSandbox, LiveUsage, LoginInfo, Quota,
        QuotaUsed, Role, Tenant, UsageReport, UsageRow, User)

# A name is imported when it is first used: a synchronous program loads no asynchronous code.
HOMES = {
    "_async.channel": "AsyncChannel",
    "_async.client": "AsyncCove AsyncTemplates",
    "_async.contexts": "AsyncContext AsyncContexts",
    "_async.execution": "AsyncExecution AsyncStream",
    "_async.files": "AsyncFiles AsyncWatch",
    "_async.mcp_sessions": "AsyncMcpSessions",
    "_async.pools": "AsyncPools",
    "_async.records": "AsyncAudit AsyncEvents AsyncEventStream AsyncExecutions AsyncUsages",
    "_async.sandbox": "AsyncCommands AsyncSandbox",
    "_async.scripts": "AsyncScripts",
    "_async.secrets": "AsyncSecrets",
    "_async.session": "AsyncSession",
    "_async.tenants": "AsyncKeys AsyncRoles AsyncTenants AsyncUsers",
    "_async.terminals": "AsyncTerminal AsyncTerminals",
    "_async.tools": "AsyncTools",
    "_default": "calculate execute",
    "_error": "CoveError ExecutionFailedError WaitTimeoutError",
    "_local": "DownloadResult",
    "_settings": "Retry",
    "_sync.channel": "Channel",
    "_sync.client": "Cove Templates",
    "_sync.contexts": "Context Contexts",
    "_sync.execution": "Execution Stream",
    "_sync.files": "Files Watch",
    "_sync.mcp_sessions": "McpSessions",
    "_sync.pools": "Pools",
    "_sync.records": "Audit Events EventStream Executions Usages",
    "_sync.sandbox": "Commands Sandbox",
    "_sync.scripts": "Scripts",
    "_sync.secrets": "Secrets",
    "_sync.session": "Session",
    "_sync.tenants": "Keys Roles Tenants Users",
    "_sync.terminals": "Terminal Terminals",
    "_sync.tools": "Tools",
    "calculation": "Calculation",
    "events": ("InputRequestEvent ChannelEvent Event ExitEvent FileEvent OutputEvent ExceptionEvent ResizeEvent "
        "DisplayEvent StartedEvent"),
    "models": ("ApiKey ApiKeySecret Capabilities GcReport Completions ContextInfo EventGap ExecutionInfo FileEntry "
        "FileUrl SandboxEvent Driver Inspection Level LimitRange McpSession Policy Readiness Reason Receipt ReceiptSummary Resources "
        "Runtime SandboxInfo SandboxStatus SandboxToken Script Secret ServerEvent Template TemplateSpec Ticket Tool ToolImage ToolResult Usage Used Whoami "
        "WriteResult"),
    "network": "Network NetworkConnection NetworkDecision NetworkDestination NetworkSecret NetworkUse",
    "pools": "Pool PoolScaling PoolStatus PoolZygote RecycledStatus ZygoteStatus",
    "result": "CodeReport OmittedFile Result Violation",
    "tenants": ("Actor AuditHead AuditKey AuditRecord Budget BudgetBounds BudgetPeriod LiveLimits LiveSandbox LiveUsage "
        "LoginInfo Quota QuotaUsed Role Tenant UsageReport UsageRow User"),
}
HOME_OF: Dict[str, str] = {name: home for home, names in HOMES.items() for name in names.split()}

__all__ = [
    "Actor", "ApiKey", "ApiKeySecret", "AsyncAudit", "AsyncChannel", "AsyncCommands", "AsyncContext", "AsyncContexts", "AsyncCove", "AsyncEventStream",
    "AsyncEvents", "AsyncExecution", "AsyncExecutions", "AsyncFiles", "AsyncKeys", "AsyncMcpSessions", "AsyncPools", "AsyncRoles", "AsyncSandbox", "AsyncScripts", "AsyncSecrets", "AsyncSession",
    "AsyncStream", "AsyncTemplates", "AsyncTenants", "AsyncTerminal", "AsyncTerminals", "AsyncTools", "AsyncUsages", "AsyncUsers", "AsyncWatch", "Audit",
    "AuditHead", "AuditKey", "AuditRecord", "Budget", "BudgetBounds", "BudgetPeriod", "Calculation", "Capabilities", "Channel", "ChannelEvent", "CodeReport", "Commands", "Completions",
    "Context", "ContextInfo", "Contexts", "Cove", "CoveError", "DisplayEvent", "DownloadResult", "Driver", "Event", "EventGap", "EventStream", "Events",
    "ExceptionEvent", "Execution", "ExecutionFailedError", "ExecutionInfo", "Executions", "ExitEvent", "FileEntry", "FileEvent",
    "FileUrl", "Files", "GcReport", "InputRequestEvent", "Inspection", "Keys", "Level", "LimitRange", "LiveLimits", "LiveSandbox", "LiveUsage",
    "LoginInfo", "McpSession", "McpSessions", "Network", "NetworkConnection", "NetworkDecision", "NetworkDestination", "NetworkSecret", "NetworkUse", "OmittedFile", "OutputEvent", "Policy", "Pool", "PoolScaling", "PoolStatus", "PoolZygote", "Pools", "Quota", "QuotaUsed",
    "Readiness", "Reason", "Receipt", "ReceiptSummary", "RecycledStatus", "ResizeEvent", "Resources", "Result", "Retry", "Role", "Roles", "Runtime",
    "Sandbox", "SandboxEvent", "SandboxInfo", "SandboxStatus", "SandboxToken", "Script", "Scripts", "Secret", "Secrets", "ServerEvent", "Session", "StartedEvent",
    "Stream", "Template", "TemplateSpec", "Templates", "Tenant", "Tenants", "Terminal", "Terminals", "Ticket", "Tool", "ToolImage", "ToolResult",
    "Tools", "Usage", "UsageReport",
    "UsageRow", "Usages", "Used", "User", "Users", "Violation", "WaitTimeoutError", "Watch", "Whoami", "WriteResult", "ZygoteStatus", "calculate", "errors", "execute",
]


def __getattr__(name: str) -> Any:
    home = HOME_OF.get(name)
    if home is None and name != "errors":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = importlib.import_module(f"{__name__}.{home or name}")
    value = found if home is None else getattr(found, name)
    globals()[name] = value
    return value


def __dir__() -> List[str]:
    return sorted({*globals(), *__all__})
