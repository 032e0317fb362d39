"""The objects of the server as plain values. Times are aware datetimes in UTC, durations are
seconds, sizes are bytes.

`raw` is the complete answer, with fields that are newer than this package.
"""
from __future__ import annotations

import base64
import dataclasses
import datetime
from typing import Any, Dict, List, Mapping, Optional

from ._json import Duration, Size, bytes_of, raw, seconds, without_none
from .network import Network, NetworkUse, network_field, network_use_field, network_value_field


@dataclasses.dataclass(frozen=True)
class Resources:
    """Resource limits of a sandbox; None means the value of the template or the server."""

    cpu_millis: Optional[int] = None
    """Thousandths of a CPU."""
    memory_bytes: Optional[int] = None
    storage_bytes: Optional[int] = None
    """Bytes in /workspace."""
    pids: Optional[int] = None
    """The greatest number of processes and threads at the same time."""
    cpu_pinning: Optional[bool] = None
    tmp_bytes: Optional[int] = None
    """Bytes in /tmp."""
    shm_bytes: Optional[int] = None
    """Bytes in /dev/shm."""


def limits_of(memory: Optional[Size], disk: Optional[Size], cpus: Optional[float], pids: Optional[int], base: Optional[Resources]) -> Optional[Resources]:
    """`base` with the limits that are given; None if no limit is given."""
    given = without_none(memory_bytes=None if memory is None else bytes_of(memory), storage_bytes=None if disk is None else bytes_of(disk),
                         cpu_millis=None if cpus is None else round(cpus * 1000), pids=pids)
    return dataclasses.replace(base or Resources(), **given) if given else base


@dataclasses.dataclass(frozen=True)
class Reason:
    """Why an object ended or could not be created."""

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
    """Seconds; the default timeout of an execution."""
    lifetime: float = seconds("lifetimeMs")
    idle_timeout: float = seconds("idleTimeoutMs")
    """Seconds; 0: no idle timeout."""
    idle_action: str = "end"
    metadata: Dict[str, str] = dataclasses.field(default_factory=dict)
    driver: Optional[str] = None
    """The driver that made it: native or bwrap."""
    network: Optional[Network] = network_field()
    template: Optional[str] = None
    name: Optional[str] = None
    created_at: Optional[datetime.datetime] = None
    expires_at: Optional[datetime.datetime] = None
    ended_at: Optional[datetime.datetime] = None
    ended_by: Optional[str] = None
    """exit, signal, lifetime, idle, wall, cpu, memory, killed or lost"""
    reason: Optional[Reason] = None
    raw: Mapping[str, Any] = raw()


@dataclasses.dataclass(frozen=True)
class SandboxStatus:
    """The state of a sandbox as sent on a channel; the figures need `status_interval`."""

    state: str
    cpu_ms: Optional[float] = None
    """Milliseconds of CPU time so far."""
    memory_bytes: Optional[int] = None


@dataclasses.dataclass(frozen=True)
class Usage:
    """The current usage of a sandbox. A figure that could not be measured is None, and `absent`
    says why."""

    sandbox_id: str
    at: datetime.datetime
    absent: Dict[str, str]
    cpu_ms: Optional[float] = None
    throttled_ms: Optional[float] = None
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
    """An event of one sandbox."""

    seq: int
    at: datetime.datetime
    kind: str
    """sandbox_created, execution_started, ..."""
    execution_id: Optional[str] = None
    body: Dict[str, Any] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class ServerEvent(SandboxEvent):
    """An event of any sandbox. Numbers only grow."""

    tenant: str = ""
    sandbox_id: Optional[str] = None


@dataclasses.dataclass(frozen=True)
class EventGap:
    """Replaces events that the server deleted before they were read; `next` is the first number
    that may still exist."""

    next: int
    kind: str = "gap"


@dataclasses.dataclass(frozen=True)
class ExecutionInfo:
    """An execution as the server saw it at one moment."""

    id: str
    sandbox_id: str
    state: str
    """starting, running or ended"""
    background: bool
    stdout_bytes: int
    """Bytes of stdout kept so far."""
    stderr_bytes: int
    dropped_bytes: int
    """Bytes beyond the limit on output."""
    created_at: Optional[datetime.datetime] = None
    started_at: Optional[datetime.datetime] = None
    ended_at: Optional[datetime.datetime] = None
    exit_code: Optional[int] = None
    signal: Optional[int] = None
    ended_by: Optional[str] = None
    outcome: Optional[str] = None
    """After the end: success, error, timeout, out_of_memory, killed or lost."""
    value: Optional[str] = None
    """The value of the last expression of code in a context, as text."""
    truncated: bool = False
    """There was more output than is kept."""
    hint: Optional[str] = None
    """Advice for the next step."""
    error: Optional[Reason] = None
    """Why the execution could not be started, or ended without a result."""
    tty: bool = False
    """Whether the execution has a terminal."""
    context_id: Optional[str] = None
    """The context of the execution, if any."""
    context_reset: bool = False
    """The language kernel was restarted: the variables of the context are lost."""
    raw: Mapping[str, Any] = raw()

    @property
    def ended(self) -> bool:
        return self.state == "ended"

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
    """The number of executions in the queue."""
    executions: int
    """The number of executions since the language kernel was started."""
    restarts: int
    refused_events: int
    version: Optional[str] = None
    forked_from: Optional[str] = None
    """The context from which this one was forked; None after a restart."""
    created_by: Optional[str] = None
    created_at: Optional[datetime.datetime] = None
    execution_id: Optional[str] = None
    """The running execution."""
    reason: Optional[Reason] = None
    """Why the context is dead."""
    outcome: Optional[str] = None
    """Only in the answer to an interrupt: idle, finished, interrupted or killed."""
    raw: Mapping[str, Any] = raw()


@dataclasses.dataclass(frozen=True)
class Completions:
    """Possible replacements for the characters from `start` to `end`."""

    matches: List[str]
    start: int
    end: int


@dataclasses.dataclass(frozen=True)
class Inspection:
    """Documentation of the object at the cursor."""

    found: bool
    data: Dict[str, Any] = dataclasses.field(default_factory=dict)
    """By MIME type."""


@dataclasses.dataclass(frozen=True)
class Used:
    """The figures of a receipt. A figure that could not be measured is None."""

    wall_ms: Optional[float] = None
    cpu_ms: Optional[float] = None
    memory_peak_bytes: Optional[int] = None
    read_bytes: Optional[int] = None
    written_bytes: Optional[int] = None
    tasks_started: Optional[int] = None
    pids_peak: Optional[int] = None
    pids_refused: Optional[int] = None
    oom_kills: Optional[int] = None
    throttled_ms: Optional[float] = None


@dataclasses.dataclass(frozen=True)
class ReceiptSummary:
    """The parts of a receipt that a result has: usage, and what was refused or changed."""

    used: Used = dataclasses.field(default_factory=Used)
    limit_hits: List[Any] = dataclasses.field(default_factory=list)
    """The limits that refused or ended something."""
    denials: List[Any] = dataclasses.field(default_factory=list)
    """The system calls that were refused."""
    changes: Dict[str, Any] = dataclasses.field(default_factory=dict)
    """The files below /workspace that were changed, if the execution was started with `changes`."""
    network: Optional[NetworkUse] = network_use_field()
    """The use of the network, if there was any, or if something was refused."""
    raw: Mapping[str, Any] = raw()


@dataclasses.dataclass(frozen=True)
class Receipt:
    """The usage of an execution, the limits that it hit, its denials and the files that it
    changed. A figure that could not be measured is None, and `absent` says why."""

    sandbox: str
    execution: str
    final: bool
    """Whether the receipt will not change any more: the kernel's sums for the whole sandbox are
    complete, or are not counted for this execution. False in the answer of `client.execute()`,
    whose sandbox still lives."""
    ended_by: str
    level: str
    exit_code: Optional[int] = None
    signal: Optional[int] = None
    started_at: Optional[datetime.datetime] = None
    used: Used = dataclasses.field(default_factory=Used)
    stdout_bytes: Optional[int] = None
    stderr_bytes: Optional[int] = None
    dropped_bytes: Optional[int] = None
    policy: Optional[str] = None
    profile: Optional[str] = None
    driver: Optional[str] = None
    weaker: List[Any] = dataclasses.field(default_factory=list)
    """Weaknesses of the driver, compared with native: dicts with name and description."""
    network: Optional[NetworkUse] = network_use_field()
    cgroup: Optional[str] = None
    walls: Dict[str, Any] = dataclasses.field(default_factory=dict)
    limits: Dict[str, Any] = dataclasses.field(default_factory=dict)
    limit_hits: List[Any] = dataclasses.field(default_factory=list)
    changes: Dict[str, Any] = dataclasses.field(default_factory=dict)
    denials: List[Any] = dataclasses.field(default_factory=list)
    denials_more: int = 0
    request_id: Optional[str] = None
    """The id of the request that started the execution; the same id is in the server's log."""
    absent: Dict[str, str] = dataclasses.field(default_factory=dict)
    raw: Mapping[str, Any] = raw()


@dataclasses.dataclass(frozen=True)
class FileEntry:
    """A name in a directory; in the answer of stat, the path."""

    name: str
    kind: str
    """file, directory, link, fifo, socket or device"""
    mode: str
    """Permission bits, octal: "0644"."""
    size_bytes: int
    modified_at: datetime.datetime
    target: Optional[str] = None
    """The target of a link."""
    name_base64: Optional[str] = None
    """The bytes of a name that is not valid UTF-8."""

    @property
    def is_directory(self) -> bool:
        return self.kind == "directory"


@dataclasses.dataclass(frozen=True)
class WriteResult:
    """The files that a write or an upload left in the sandbox."""

    path: str
    size_bytes: int
    files: int = 1


@dataclasses.dataclass(frozen=True)
class Runtime:
    """A programming language."""

    name: str
    program: str
    profile: str
    """The name of the system call profile."""
    available: bool
    path: Optional[str] = None
    reason: Optional[str] = None
    """Why the language is not available."""


@dataclasses.dataclass(frozen=True)
class TemplateSpec:
    """The contents of a template; every field is optional."""

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
    """Python modules that are imported before a sandbox is requested."""
    policy: Optional[Mapping[str, Any]] = None
    """A policy as docs/policies.md describes; the level is then custom."""
    driver: Optional[str] = None
    network: Optional[Any] = network_value_field()
    """The hosts that a sandbox may reach: "none" or an object, as docs/network.md describes."""


@dataclasses.dataclass(frozen=True)
class Policy:
    """A built-in policy."""

    name: str
    description: str
    available: bool
    """Whether this server can enforce the policy."""
    policy: Optional[Mapping[str, Any]] = None
    """The complete policy; only in the answer to a request for one policy."""
    sources: Optional[Mapping[str, Any]] = None
    """The source of each value of the policy."""


@dataclasses.dataclass(frozen=True)
class GcReport:
    """The objects that were removed, or would be removed by a dry run."""

    dry_run: bool
    executions: int
    output_bytes: int
    """Bytes of output of these executions."""
    sandboxes: int
    events: int
    idempotency_keys: int
    stray_files: int
    """Output files that do not belong to an execution."""
    stray_bytes: int
    scripts: int = 0


@dataclasses.dataclass(frozen=True)
class Template:
    name: str
    generation: int
    """The version of the template."""
    spec: TemplateSpec
    builtin: bool = False
    """Comes with the server and has no times."""
    created_at: Optional[datetime.datetime] = None
    updated_at: Optional[datetime.datetime] = None
    available: bool = True
    """Whether the server's host has the language and the preloaded modules of the template."""
    reason: Optional[str] = None
    """Why the template is not available."""
    fix: Optional[str] = None
    """The command that installs the missing packages, for the operator of the host."""
    missing: List[str] = dataclasses.field(default_factory=list)
    """Modules that the host does not have."""


@dataclasses.dataclass(frozen=True)
class Script:
    """Code that ran successfully."""

    id: str
    digest: str
    """SHA-256 of language and code, in hexadecimal."""
    language: str
    size_bytes: int
    uses: int
    """Successful runs."""
    created_at: datetime.datetime
    last_used_at: datetime.datetime
    description: Optional[str] = None
    """The first line of its first comment or docstring."""
    last_execution_id: Optional[str] = None
    created_by: Optional[str] = None
    code: Optional[str] = None
    """Only in the answer of `get`."""


@dataclasses.dataclass(frozen=True)
class Secret:
    """A value that sandboxes use without seeing it."""

    name: str
    hosts: List[str]
    """Hosts that sandboxes may send it to; empty: every host."""
    generation: int
    """Counts the values that were set."""
    uses: int
    """Requests to which the proxy added it."""
    created_at: datetime.datetime
    updated_at: datetime.datetime
    last_used_at: Optional[datetime.datetime] = None
    created_by: Optional[str] = None


@dataclasses.dataclass(frozen=True)
class Tool:
    """A tool that a language model can call."""

    name: str
    title: str
    description: str
    """For the model: what the tool does, its bounds, when to use another."""
    place: str
    """Where it acts: sandbox, fresh_sandbox or server."""
    scopes: List[str]
    """The permissions that a call needs."""
    annotations: Dict[str, bool]
    """The hints of the Model Context Protocol: readOnlyHint and others."""
    input_schema: Dict[str, Any]
    """JSON Schema of the arguments."""
    output_schema: Dict[str, Any]
    """JSON Schema of `ToolResult.result`."""


@dataclasses.dataclass(frozen=True)
class ToolImage:
    """An image in the result of a tool."""

    type: str
    """For example image/png."""
    content_base64: str = dataclasses.field(repr=False)

    @property
    def data(self) -> bytes:
        return base64.b64decode(self.content_base64)


@dataclasses.dataclass(frozen=True)
class ToolResult:
    """The result of a tool: for a language model in `text` and `images`, for programs in
    `result`."""

    tool: str
    is_error: bool
    """The tool ran, and its work failed."""
    truncated: bool
    """Some of the content is missing; `text` says how to get it."""
    text: str
    result: Dict[str, Any]
    images: List[ToolImage] = dataclasses.field(default_factory=list)
    execution_id: Optional[str] = None


@dataclasses.dataclass(frozen=True)
class McpSession:
    """The state of an MCP client, or of a bridge in front of one, on the server."""

    id: str
    kind: str
    """`client` or `bridge`."""
    created_at: datetime.datetime
    used_at: datetime.datetime
    expires_at: datetime.datetime
    """The session ends then, unless it is used."""
    protocol_version: Optional[str] = None
    client_name: Optional[str] = None
    client_version: Optional[str] = None
    sandbox_id: Optional[str] = None
    """None before the first call that needs a sandbox."""
    template: Optional[str] = None
    created_by: Optional[str] = None
    secret: Optional[str] = None
    """Only in the answer of `create`: the value of the header `Cove-Session`."""


@dataclasses.dataclass(frozen=True)
class ApiKey:
    """A key, without its secret."""

    id: str
    name: str
    prefix: str
    """The first characters of the key."""
    scopes: List[str]
    created_at: datetime.datetime
    expires_at: Optional[datetime.datetime] = None
    last_used_at: Optional[datetime.datetime] = None
    revoked_at: Optional[datetime.datetime] = None
    tenant: str = ""
    user: Optional[str] = None
    """The user of the key; an action needs both a scope of the key and the role of the user."""


@dataclasses.dataclass(frozen=True)
class ApiKeySecret(ApiKey):
    """A key that was just created. `key` is not shown again."""

    key: str = dataclasses.field(default="", repr=False)


@dataclasses.dataclass(frozen=True)
class SandboxToken:
    """A token for one sandbox. `token` is not shown again."""

    id: str
    sandbox_id: str
    operations: List[str]
    expires_at: datetime.datetime
    port: Optional[int] = None
    token: str = dataclasses.field(default="", repr=False)


@dataclasses.dataclass(frozen=True)
class FileUrl:
    """A URL that reads or writes one file without a key, relative to the address of the server."""

    id: str
    sandbox_id: str
    method: str
    path: str
    expires_at: datetime.datetime
    url: str = dataclasses.field(default="", repr=False)


@dataclasses.dataclass(frozen=True)
class Ticket:
    """A single-use token for one request within a minute, sent as `?ticket=` in its URL."""

    method: str
    path: str
    expires_at: datetime.datetime
    ticket: str = dataclasses.field(default="", repr=False)


@dataclasses.dataclass(frozen=True)
class Whoami:
    """The principal of this client, as the server sees it."""

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
class Driver:
    """A driver of a server, which makes sandboxes."""

    name: str
    summary: str
    allowed: bool
    """Whether the operator allows it."""
    default: bool
    available: bool
    reason: Optional[str] = None
    """Why it is not available."""
    fix: Optional[str] = None
    capabilities: Dict[str, bool] = dataclasses.field(default_factory=dict)
    """Whether its sandboxes have denials, pause, keep, pool, recycle and zygote."""
    weaker: List[Any] = dataclasses.field(default_factory=list)
    """Weaknesses of its sandboxes, compared with native: dicts with name and description."""
    raw: Mapping[str, Any] = raw()


@dataclasses.dataclass(frozen=True)
class LimitRange:
    default: int
    min: int
    max: int
    action: Optional[str] = None


@dataclasses.dataclass(frozen=True)
class Capabilities:
    """The levels, languages, drivers and limits of a server."""

    version: str
    levels: List[Level]
    runtimes: List[Runtime]
    limits: Dict[str, LimitRange]
    drivers: List[Driver] = dataclasses.field(default_factory=list)
    tools: List[str] = dataclasses.field(default_factory=list)
    """Names of the tools; `client.tools.list()` describes them."""
    raw: Mapping[str, Any] = raw()


@dataclasses.dataclass(frozen=True)
class Readiness:
    """Whether sandboxes can be created, and if not, why."""

    status: str
    checks: Dict[str, str]

    @property
    def ready(self) -> bool:
        return self.status == "ready"
