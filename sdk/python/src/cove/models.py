"""What the server tells, as plain values. Times are aware datetimes in UTC, durations are seconds, sizes are bytes.

`raw` is the whole answer, for fields that are younger than this package.
"""
from __future__ import annotations

import dataclasses
import datetime
from typing import Any, Dict, List, Mapping, Optional

from ._json import Duration, raw, seconds


@dataclasses.dataclass(frozen=True)
class Resources:
    """What a sandbox may use; what is None is for the template or the server to say."""

    cpu_millis: Optional[int] = None
    """Thousandths of a processor."""
    memory_bytes: Optional[int] = None
    storage_bytes: Optional[int] = None
    """Bytes in /workspace."""
    pids: Optional[int] = None
    """Processes and threads at one time."""
    cpu_pinning: Optional[bool] = None


@dataclasses.dataclass(frozen=True)
class Reason:
    """Why something ended, or could not begin."""

    code: str
    message: str


@dataclasses.dataclass(frozen=True)
class SandboxInfo:
    """A sandbox as the server saw it at one moment."""

    id: str
    state: str
    """creating, running, paused or ended"""
    runtime: str
    level: str
    resources: Resources
    timeout: float = seconds("timeoutMs")
    """Of one execution, unless it says otherwise."""
    lifetime: float = seconds("lifetimeMs")
    idle_timeout: float = seconds("idleTimeoutMs")
    """0 is none."""
    idle_action: str = "end"
    metadata: Dict[str, str] = dataclasses.field(default_factory=dict)
    template: Optional[str] = None
    created_at: Optional[datetime.datetime] = None
    expires_at: Optional[datetime.datetime] = None
    ended_at: Optional[datetime.datetime] = None
    ended_by: Optional[str] = None
    """exit, signal, lifetime, idle, wall, cpu, memory, killed or lost"""
    reason: Optional[Reason] = None
    raw: Mapping[str, Any] = raw()


@dataclasses.dataclass(frozen=True)
class SandboxStatus:
    """What a channel was told about its sandbox; figures come only if `status_interval` asked for them."""

    state: str = dataclasses.field(metadata={"json": "status"})
    cpu_ms: Optional[int] = dataclasses.field(default=None, metadata={"json": "cpuUsage"})
    """Processor time so far."""
    memory_bytes: Optional[int] = dataclasses.field(default=None, metadata={"json": "memoryUsage"})


@dataclasses.dataclass(frozen=True)
class Usage:
    """What a sandbox uses now. A figure that could not be measured is None, and `absent` says why."""

    sandbox_id: str
    at: datetime.datetime
    absent: Dict[str, str]
    cpu_us: Optional[int] = None
    throttled_us: Optional[int] = None
    memory_bytes: Optional[int] = None
    memory_peak_bytes: Optional[int] = None
    oom_kills: Optional[int] = None
    pids: Optional[int] = None
    pids_peak: Optional[int] = None
    pids_refused: Optional[int] = None
    io_read_bytes: Optional[int] = None
    io_written_bytes: Optional[int] = None
    raw: Mapping[str, Any] = raw()


@dataclasses.dataclass(frozen=True)
class SandboxEvent:
    """Something that happened to a sandbox."""

    seq: int
    at: datetime.datetime
    kind: str
    """sandbox_created, execution_started, ..."""
    execution_id: Optional[str] = None
    body: Dict[str, Any] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class ServerEvent(SandboxEvent):
    """Something that happened to one of all sandboxes. Numbers only grow."""

    tenant: str = ""
    sandbox_id: Optional[str] = None


@dataclasses.dataclass(frozen=True)
class EventGap:
    """Stands for events that the server has forgotten before they were read; `next` is the first it may still know."""

    next: int
    kind: str = "gap"


@dataclasses.dataclass(frozen=True)
class ExecutionInfo:
    """An execution as the server saw it at one moment."""

    id: str
    sandbox_id: str
    state: str
    """starting, running, ended, or failed: it could not be started, or was lost"""
    background: bool
    stdout_bytes: int
    """Kept by then."""
    stderr_bytes: int
    dropped_bytes: int
    """Past the cap on output."""
    created_at: Optional[datetime.datetime] = None
    started_at: Optional[datetime.datetime] = None
    ended_at: Optional[datetime.datetime] = None
    exit_code: Optional[int] = None
    signal: Optional[int] = None
    ended_by: Optional[str] = None
    error: Optional[Reason] = None
    tty: bool = False
    """It is a terminal."""
    context_id: Optional[str] = None
    """The context that it ran in, if any."""
    status: Optional[str] = None
    """Of one in a context: ok, error, interrupted, killed or died"""
    raw: Mapping[str, Any] = raw()

    @property
    def ended(self) -> bool:
        return self.state in ("ended", "failed")

    @property
    def duration(self) -> Optional[float]:
        """Seconds from start to end, by the server's clock."""
        if self.started_at is None or self.ended_at is None:
            return None
        return (self.ended_at - self.started_at).total_seconds()


@dataclasses.dataclass(frozen=True)
class ContextInfo:
    """A context as the server saw it at one moment."""

    id: str
    sandbox_id: str
    language: str
    state: str
    """starting, idle, busy or dead"""
    cwd: str
    queued: int
    """Executions that wait."""
    executions: int
    """Since its interpreter was started."""
    restarts: int
    refused_events: int
    version: Optional[str] = None
    forked_from: Optional[str] = None
    """The context whose state it began with; None after a restart."""
    created_by: Optional[str] = None
    created_at: Optional[datetime.datetime] = None
    execution_id: Optional[str] = None
    """The execution that runs."""
    reason: Optional[Reason] = None
    """Of a dead one."""
    outcome: Optional[str] = None
    """Of an interrupt: idle, finished, interrupted or killed"""
    raw: Mapping[str, Any] = raw()


@dataclasses.dataclass(frozen=True)
class Completions:
    """What could stand in the place of the characters from `start` to `end`."""

    matches: List[str]
    start: int
    end: int


@dataclasses.dataclass(frozen=True)
class Inspection:
    """What is known about what stands at the cursor."""

    found: bool
    data: Dict[str, Any] = dataclasses.field(default_factory=dict)
    """By MIME type."""


@dataclasses.dataclass(frozen=True)
class Receipt:
    """What an execution used, met and changed. A figure that could not be measured is None, and `absent` says why."""

    sandbox: str
    execution: str
    final: bool
    """Whether nothing is still to change: the sums that the kernel keeps for the whole sandbox are complete, or never this
    execution's own. False in what `client.execute()` brings, whose sandbox still lives."""
    ended_by: str
    level: str
    exit_code: Optional[int] = None
    signal: Optional[int] = None
    started_at: Optional[datetime.datetime] = None
    wall_us: Optional[int] = None
    cpu_us: Optional[int] = None
    memory_peak_bytes: Optional[int] = None
    read_bytes: Optional[int] = None
    written_bytes: Optional[int] = None
    tasks_started: Optional[int] = None
    pids_peak: Optional[int] = None
    pids_refused: Optional[int] = None
    oom_kills: Optional[int] = None
    throttled_us: Optional[int] = None
    stdout_bytes: Optional[int] = None
    stderr_bytes: Optional[int] = None
    dropped_bytes: Optional[int] = None
    policy: Optional[str] = None
    profile: Optional[str] = None
    driver: Optional[str] = None
    cgroup: Optional[str] = None
    walls: Dict[str, Any] = dataclasses.field(default_factory=dict)
    limits: Dict[str, Any] = dataclasses.field(default_factory=dict)
    limits_met: List[Any] = dataclasses.field(default_factory=list)
    changes: Dict[str, Any] = dataclasses.field(default_factory=dict)
    denials: List[Any] = dataclasses.field(default_factory=list)
    denials_more: int = 0
    request_id: Optional[str] = None
    """Of the request that started it; the same id stands in the server's log."""
    absent: Dict[str, str] = dataclasses.field(default_factory=dict)
    raw: Mapping[str, Any] = raw()


@dataclasses.dataclass(frozen=True)
class FileEntry:
    """A name in a directory; of a stat, the path."""

    name: str
    kind: str
    """file, directory, link, fifo, socket or device"""
    mode: str
    """Permission bits, octal: "0644"."""
    size_bytes: int
    modified_at: datetime.datetime
    target: Optional[str] = None
    """Of a link."""
    name_base64: Optional[str] = None
    """The bytes of a name that is no valid text."""

    @property
    def is_directory(self) -> bool:
        return self.kind == "directory"


class FileList(List[FileEntry]):
    """The entries of a directory. `truncated`: there are more than were asked for."""

    truncated: bool = False


@dataclasses.dataclass(frozen=True)
class WriteResult:
    """What a write or an upload left in the sandbox."""

    path: str
    size_bytes: int
    files: int = 1


@dataclasses.dataclass(frozen=True)
class Runtime:
    """A language that code can be written in."""

    name: str
    program: str
    profile: str
    """Which system calls it may make."""
    available: bool
    path: Optional[str] = None
    reason: Optional[str] = None
    """Why it is not available."""


@dataclasses.dataclass(frozen=True)
class TemplateSpec:
    """What a template says about sandboxes; all of it may be left out."""

    runtime: Optional[str] = None
    level: Optional[str] = None
    resources: Optional[Resources] = None
    env: Optional[Mapping[str, str]] = None
    metadata: Optional[Mapping[str, str]] = None
    timeout: Optional[Duration] = seconds("timeoutMs", None)
    lifetime: Optional[Duration] = seconds("lifetimeMs", None)
    idle_timeout: Optional[Duration] = seconds("idleTimeoutMs", None)
    idle_action: Optional[str] = None
    preload: Optional[List[str]] = None
    """Modules of Python that sandboxes have imported before they are asked for."""
    policy: Optional[Mapping[str, Any]] = None
    """A document, as docs/policies.md has it; the level is custom then."""


@dataclasses.dataclass(frozen=True)
class Policy:
    """A built-in policy."""

    name: str
    description: str
    available: bool
    """Whether this server can hold it."""
    policy: Optional[Mapping[str, Any]] = None
    """In full; only of one that was asked for by its name."""
    sources: Optional[Mapping[str, Any]] = None
    """Where each value of it comes from."""


@dataclasses.dataclass(frozen=True)
class GcReport:
    """What was removed, or would be."""

    dry_run: bool
    executions: int
    output_bytes: int
    """Of these executions."""
    sandboxes: int
    events: int
    idempotency_keys: int
    stray_files: int
    """Output that belongs to no execution."""
    stray_bytes: int


@dataclasses.dataclass(frozen=True)
class Template:
    name: str
    generation: int
    """Counts its versions."""
    spec: TemplateSpec
    builtin: bool = False
    """It comes with the server, and has no times."""
    created_at: Optional[datetime.datetime] = None
    updated_at: Optional[datetime.datetime] = None
    available: bool = True
    """Whether the server's host has its runtime and the modules that it preloads."""
    reason: Optional[str] = None
    """Why it is not available."""
    fix: Optional[str] = None
    """The command that installs what is missing, for the operator of the host."""
    missing: List[str] = dataclasses.field(default_factory=list)
    """Modules that the host does not have."""


@dataclasses.dataclass(frozen=True)
class ApiKey:
    """A key, without its secret."""

    id: str
    name: str
    prefix: str
    """How the key begins."""
    scopes: List[str]
    created_at: datetime.datetime
    expires_at: Optional[datetime.datetime] = None
    last_used_at: Optional[datetime.datetime] = None
    revoked_at: Optional[datetime.datetime] = None
    tenant: str = ""
    user: Optional[str] = None
    """Whose it is; what it may do is what its scopes and the role of the user both allow."""


@dataclasses.dataclass(frozen=True)
class ApiKeySecret(ApiKey):
    """A key that was just made. `key` is shown here and never again."""

    key: str = dataclasses.field(default="", repr=False)


@dataclasses.dataclass(frozen=True)
class SandboxToken:
    """A token for one sandbox. `token` is shown here and never again."""

    id: str
    sandbox_id: str
    operations: List[str]
    expires_at: datetime.datetime
    port: Optional[int] = None
    token: str = dataclasses.field(default="", repr=False)


@dataclasses.dataclass(frozen=True)
class FileUrl:
    """A URL by which one file can be read or written without a key, relative to the address of the server."""

    id: str
    sandbox_id: str
    method: str
    path: str
    expires_at: datetime.datetime
    url: str = dataclasses.field(default="", repr=False)


@dataclasses.dataclass(frozen=True)
class Ticket:
    """A word for one request within a minute, as `?ticket=` in its URL."""

    method: str
    path: str
    expires_at: datetime.datetime
    ticket: str = dataclasses.field(default="", repr=False)


@dataclasses.dataclass(frozen=True)
class Whoami:
    """What the server knows about whoever asks."""

    kind: str
    tenant: str
    scopes: List[str]
    user_id: Optional[str] = None
    key_id: Optional[str] = None
    sandbox_id: Optional[str] = None
    port: Optional[int] = None
    expires_at: Optional[datetime.datetime] = None


@dataclasses.dataclass(frozen=True)
class Level:
    name: str
    available: bool


@dataclasses.dataclass(frozen=True)
class LimitRange:
    default: int
    min: int
    max: int
    action: Optional[str] = None


@dataclasses.dataclass(frozen=True)
class Capabilities:
    """What a server can do."""

    version: str
    levels: List[Level]
    runtimes: List[Runtime]
    limits: Dict[str, LimitRange]
    raw: Mapping[str, Any] = raw()


@dataclasses.dataclass(frozen=True)
class Readiness:
    """Whether sandboxes can be created, and what is missing if not."""

    status: str
    checks: Dict[str, str]

    @property
    def ready(self) -> bool:
        return self.status == "ready"
