"""What the server tells about those who share it: tenants, users, roles, what they use, and the record of what they did."""
from __future__ import annotations

import dataclasses
import datetime
from typing import Any, Dict, List, Mapping, Optional

from ._json import raw


@dataclasses.dataclass(frozen=True)
class Quota:
    """Sums over what lives in a tenant, and executions begun within an hour. What is None has no bound."""

    sandboxes: Optional[int] = None
    cpu_millis: Optional[int] = None
    """Thousandths of a processor."""
    memory_bytes: Optional[int] = None
    storage_bytes: Optional[int] = None
    executions_per_hour: Optional[int] = None


@dataclasses.dataclass(frozen=True)
class QuotaUsed:
    """What counts against a quota now."""

    sandboxes: int
    cpu_millis: int
    memory_bytes: int
    storage_bytes: int
    executions_per_hour: int


@dataclasses.dataclass(frozen=True)
class Tenant:
    """One of those who share a server and see nothing of each other."""

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
    """What may be used in a day or a month. What is None has no bound."""

    cpu_seconds: Optional[int] = None
    sandbox_seconds: Optional[int] = None
    executions: Optional[int] = None


@dataclasses.dataclass(frozen=True)
class BudgetPeriod(BudgetBounds):
    """The bounds, what is used of them, and when the next day or month begins, in UTC."""

    used: Optional[BudgetBounds] = None
    renews_at: Optional[datetime.datetime] = None


@dataclasses.dataclass(frozen=True)
class Budget:
    tenant: str
    day: BudgetPeriod
    month: BudgetPeriod


@dataclasses.dataclass(frozen=True)
class UsageRow:
    """A sum. Of `hour`, `tenant`, `user` and `sandbox_id` it has those that were asked for by `group`."""

    executions: int
    failed_executions: int
    """Of them, those that could not start or were lost."""
    cpu_seconds: float
    execution_seconds: float
    sandbox_seconds: float
    """That sandboxes were alive, paused ones too."""
    memory_mib_seconds: float
    storage_mib_seconds: float
    memory_peak_bytes: int
    output_bytes: int
    hour: Optional[datetime.datetime] = None
    tenant: Optional[str] = None
    user: Optional[str] = None
    """A user, or a key without one; "local" is the owner of the server."""
    sandbox_id: Optional[str] = None


@dataclasses.dataclass(frozen=True)
class UsageReport:
    """Sums of whole hours from `begin` to `end`, which are what the times that were asked for became."""

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
    """What a sandbox uses at this moment. A figure that the host does not count is None."""

    id: str
    tenant: str
    state: str
    created_at: datetime.datetime
    executions: int
    """Under way."""
    limits: LiveLimits
    cpu_us: Optional[int] = None
    """Since its beginning."""
    memory_bytes: Optional[int] = None
    pids: Optional[int] = None


@dataclasses.dataclass(frozen=True)
class LiveUsage:
    at: datetime.datetime
    sandboxes: List[LiveSandbox]
    truncated: bool
    """There are more."""


@dataclasses.dataclass(frozen=True)
class Actor:
    """Who did it: kind is key, local, anonymous, server, ..."""

    kind: str
    key: Optional[str] = None
    user: Optional[str] = None
    address: Optional[str] = None


@dataclasses.dataclass(frozen=True)
class AuditRecord:
    """One record of the audit log; `raw` is all of it."""

    seq: int
    at: datetime.datetime
    tenant: str
    """Whose; empty for the server's own."""
    action: str
    """sandbox.create, apikey.revoke, security.flood, ..."""
    outcome: str
    """accepted (the work began; another record with the same request_id tells its outcome), success, refused or failed"""
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
    """What `cove audit verify` needs, kept on another machine."""

    id: str
    algorithm: str
    public_key: str
    """In PEM form."""
    head: AuditHead


@dataclasses.dataclass(frozen=True)
class LoginInfo:
    """The issuer whose tokens a server accepts; all is None where people bring keys."""

    issuer: Optional[str] = None
    audience: Optional[str] = None
    client_id: Optional[str] = None
