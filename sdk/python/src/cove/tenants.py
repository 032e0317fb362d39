"""Tenants, users, roles, their usage, and the audit trail, as plain values."""
from __future__ import annotations

import dataclasses
import datetime
from typing import Any, Dict, List, Mapping, Optional

from ._json import raw


@dataclasses.dataclass(frozen=True)
class Quota:
    """Limits on the sums over all living sandboxes of a tenant, and on executions started per hour.
    None: no limit."""

    sandboxes: Optional[int] = None
    cpu_millis: Optional[int] = None
    """Thousandths of a CPU."""
    memory_bytes: Optional[int] = None
    storage_bytes: Optional[int] = None
    executions_per_hour: Optional[int] = None


@dataclasses.dataclass(frozen=True)
class QuotaUsed:
    """The part of the quota that is in use now."""

    sandboxes: int
    cpu_millis: int
    memory_bytes: int
    storage_bytes: int
    executions_per_hour: int


@dataclasses.dataclass(frozen=True)
class Tenant:
    """A customer of the server. Tenants share nothing and cannot affect each other."""

    name: str
    created_at: datetime.datetime
    suspended: bool
    quota: Quota
    used: QuotaUsed
    suspended_at: Optional[datetime.datetime] = None
    removed_at: Optional[datetime.datetime] = None


@dataclasses.dataclass(frozen=True)
class User:
    id: str
    name: str
    tenant: str
    role: str
    disabled: bool
    created_at: datetime.datetime


@dataclasses.dataclass(frozen=True)
class Role:
    name: str
    tenant: str
    built_in: bool
    permissions: List[str]
    created_at: Optional[datetime.datetime] = None


@dataclasses.dataclass(frozen=True)
class BudgetBounds:
    """Limits on the usage in a day or a month. None: no limit."""

    cpu_ms: Optional[int] = None
    sandbox_ms: Optional[int] = None
    executions: Optional[int] = None


@dataclasses.dataclass(frozen=True)
class BudgetPeriod(BudgetBounds):
    """The limits, the usage, and the start of the next day or month in UTC."""

    used: Optional[BudgetBounds] = None
    renews_at: Optional[datetime.datetime] = None


@dataclasses.dataclass(frozen=True)
class Budget:
    tenant: str
    day: BudgetPeriod
    month: BudgetPeriod


@dataclasses.dataclass(frozen=True)
class UsageRow:
    """A sum. Of `hour`, `tenant`, `user` and `sandbox_id` it has those that `group` requested."""

    executions: int
    failed_executions: int
    """The executions that could not start or were lost."""
    cpu_ms: float
    execution_ms: int
    sandbox_ms: int
    """Milliseconds for which sandboxes were alive, including paused ones."""
    memory_mib_seconds: float
    """The memory limit of sandboxes in MiB, multiplied by their lifetime in seconds."""
    storage_mib_seconds: float
    memory_peak_bytes: int
    output_bytes: int
    hour: Optional[datetime.datetime] = None
    tenant: Optional[str] = None
    user: Optional[str] = None
    """A user, or a key without a user; "local" is the owner of the server."""
    sandbox_id: Optional[str] = None


@dataclasses.dataclass(frozen=True)
class UsageReport:
    """Sums of whole hours from `begin` to `end`; the requested times are extended to whole
    hours."""

    begin: datetime.datetime = dataclasses.field(metadata={"json": "from"})
    end: datetime.datetime = dataclasses.field(metadata={"json": "to"})
    rows: List[UsageRow] = dataclasses.field(metadata={"json": "usage"})
    total: UsageRow


@dataclasses.dataclass(frozen=True)
class LiveLimits:
    cpu_millis: Optional[int] = None
    memory_bytes: Optional[int] = None
    pids: Optional[int] = None


@dataclasses.dataclass(frozen=True)
class LiveSandbox:
    """The current usage of a sandbox. A figure that the host does not count is None."""

    id: str
    tenant: str
    state: str
    created_at: datetime.datetime
    executions: int
    """The number of running executions."""
    limits: LiveLimits
    cpu_ms: Optional[float] = None
    """Microseconds of CPU time since the sandbox was created."""
    memory_bytes: Optional[int] = None
    pids: Optional[int] = None


@dataclasses.dataclass(frozen=True)
class LiveUsage:
    at: datetime.datetime
    sandboxes: List[LiveSandbox]
    truncated: bool
    """There are more sandboxes than this answer holds."""


@dataclasses.dataclass(frozen=True)
class Actor:
    """The principal of an action: kind is key, local, anonymous, server, ..."""

    kind: str
    key: Optional[str] = None
    user: Optional[str] = None
    address: Optional[str] = None


@dataclasses.dataclass(frozen=True)
class AuditRecord:
    """One record of the audit trail; `raw` is the complete record."""

    seq: int
    at: datetime.datetime
    tenant: str
    """The tenant of the record; empty for records of the server itself."""
    action: str
    """sandbox.create, key.revoke, security.flood, ..."""
    outcome: str
    """accepted (the work began; another record with the same request_id has its outcome), success,
    refused or failed"""
    actor: Actor
    prev: str
    hash: str
    status: Optional[int] = None
    error: Optional[str] = None
    target: Dict[str, str] = dataclasses.field(default_factory=dict)
    request_id: Optional[str] = None
    client_request_id: Optional[str] = None
    details: Dict[str, Any] = dataclasses.field(default_factory=dict)
    raw: Mapping[str, Any] = raw()


@dataclasses.dataclass(frozen=True)
class AuditHead:
    """The newest record."""

    seq: int
    hash: str


@dataclasses.dataclass(frozen=True)
class AuditKey:
    """The data that `cove audit verify` needs; keep it on another machine."""

    id: str
    algorithm: str
    public_key: str
    """In PEM form."""
    head: AuditHead


@dataclasses.dataclass(frozen=True)
class LoginInfo:
    """The identity provider whose tokens a server accepts; every field is None if the server
    accepts keys only."""

    issuer: Optional[str] = None
    audience: Optional[str] = None
    client_id: Optional[str] = None
