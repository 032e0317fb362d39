"""Records of a server: the executions and events of all sandboxes, the audit trail, usage."""
from __future__ import annotations

import datetime
import os
from typing import Any, AsyncIterator, Dict, Optional, Sequence, Union

from .. import _aio
from .._call import NDJSON, SILENCE, Call, event_error, path
from .._error import CoveError
from .._json import decode, loads_object, time_text
from .._local import DownloadResult, AtomicFile, LocalPath
from ..errors import ProtocolError, ServiceUnavailableError
from ..models import EventGap, ExecutionInfo, ServerEvent
from ..tenants import AuditKey, AuditRecord, LiveUsage, UsageReport
from ._http import AsyncHTTP, AsyncLineStream

Moment = Union[str, datetime.date, datetime.datetime]
"""A time, a date, or either as text in the form that the server accepts."""


def moment_text(value: Optional[Moment]) -> Optional[str]:
    if isinstance(value, datetime.datetime):
        return time_text(value)
    return value.isoformat() if isinstance(value, datetime.date) else value


async def save_to_file(http: AsyncHTTP, call: Call, local: LocalPath) -> DownloadResult:
    """Saves the body of an answer as a local file, which appears complete or not at all."""
    landing = await _aio.blocking(AtomicFile, os.fspath(local))
    try:
        chunks = http.chunks(await http.open(call))
        try:
            async for piece in chunks:
                await _aio.blocking(landing.write, piece)
        finally:
            await chunks.aclose()
        return await _aio.blocking(landing.keep)
    finally:
        await _aio.blocking(landing.discard)


class AsyncExecutions:
    """Executions of all sandboxes of a tenant, also of ended ones; with the scope `admin`, of all
    tenants. Needs `executions:read`."""

    def __init__(self, http: AsyncHTTP) -> None:
        self._http = http

    async def list(self, *, state: Union[str, Sequence[str], None] = None, outcome: Union[str, Sequence[str], None] = None,
                   sandbox: Optional[str] = None) -> AsyncIterator[ExecutionInfo]:
        """Executions, the newest first.

        Args:
            state: "starting", "running" or "ended", or several of them; with "!" in front, all
                others: "!ended".
            outcome: "success", "error", "timeout", "out_of_memory", "killed" or "lost", or several
                of them; with "!" in front, all others. Executions that have not ended have none.
            sandbox: the id of a sandbox.
        """
        query = {"state": state, "outcome": outcome, "sandboxId": sandbox}
        async for info in self._http.pages(ExecutionInfo, Call("GET", path("v1", "executions"), query)):
            yield info


class AsyncEvents:
    """Events of all sandboxes of a tenant; with the scope `admin`, of all tenants. Needs
    `sandboxes:read`."""

    def __init__(self, http: AsyncHTTP) -> None:
        self._http = http

    async def list(self, *, after: int = 0, sandbox: Optional[str] = None, kinds: Sequence[str] = ()) -> AsyncIterator[ServerEvent]:
        """Past events, the oldest first; `after` is the number of an event, docs/events.md lists
        the `kinds`."""
        call = Call("GET", path("v1", "events"), events_query(after, sandbox, kinds))
        async for event in self._http.pages(ServerEvent, call):
            yield event

    def follow(self, *, after: Optional[int] = None, sandbox: Optional[str] = None, kinds: Sequence[str] = ()) -> AsyncEventStream:
        """Events from now on, or after the event with the number `after`, until the stream is
        closed."""
        return AsyncEventStream(self._http, after, sandbox, kinds)


def events_query(after: Optional[int], sandbox: Optional[str], kinds: Sequence[str]) -> Dict[str, Any]:
    return {"after": after, "sandbox": sandbox, "kind": ",".join(kinds) or None}


class AsyncEventStream:
    """Events in the order of their numbers, each once; after a broken connection the stream resumes
    after the last event.

        async with client.events.follow(kinds=["sandbox_ended"]) as events:
            async for event in events:
                print(event.kind)

    No event is missed inside the block, from its first line on. An `EventGap` replaces events that
    the server no longer has.
    """

    def __init__(self, http: AsyncHTTP, after: Optional[int], sandbox: Optional[str], kinds: Sequence[str]) -> None:
        self._http = http
        self._sandbox, self._kinds = sandbox, kinds
        self._attempts = http.attempts()
        self._lines = AsyncLineStream(http)
        self._started = False
        self._closed = False
        self.after = after
        """The number of the latest event."""

    async def __aenter__(self) -> AsyncEventStream:
        while not self._started:
            await self._next()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.aclose()

    def __aiter__(self) -> AsyncEventStream:
        return self

    async def __anext__(self) -> Union[ServerEvent, EventGap]:
        while not self._closed:
            event = await self._next()
            if event is not None:
                return event
        raise StopAsyncIteration

    async def aclose(self) -> None:
        """Closes the stream; `follow(after=stream.after)` continues there."""
        self._closed = True
        await self._lines.drop()

    async def _next(self) -> Union[None, ServerEvent, EventGap]:
        """The next event; None if the line was not an event."""
        while True:
            try:
                if not self._lines.is_open:
                    await self._lines.open(Call("GET", path("v1", "events"), events_query(self.after, self._sandbox, self._kinds),
                                                headers={"Accept": NDJSON}, read_timeout=SILENCE))
                event = self._take(loads_object(await self._lines.next()))
            except CoveError as error:
                await self._lines.drop()
                await self._http.again(self._attempts, error, "events")
                continue
            self._attempts.record_success()
            return event

    def _take(self, message: Dict[str, Any]) -> Union[None, ServerEvent, EventGap]:
        kind = message.get("type")
        try:
            if kind == "ready":
                self._started, self.after = True, int(message["after"])
            elif kind == "gap":
                return EventGap(int(message["next"]))
            elif kind == "event":
                event = decode(ServerEvent, message)
                self.after = event.seq
                return event
        except (KeyError, TypeError, ValueError) as error:
            raise ProtocolError(f"a line of the event stream is malformed: {error!r}") from error
        if kind == "end":
            raise ended_error(message.get("error") or {})
        return None


def ended_error(message: Dict[str, Any]) -> CoveError:
    """The reason why an endless stream has ended. After a shutdown of the server the client
    reconnects, as after a broken connection."""
    error = event_error(message)
    if isinstance(error, ServiceUnavailableError):
        error.retry_after = error.retry_after or 0.0
    return error


class AsyncAudit:
    """The record of actions with their principals and outcomes. Needs the scope `audit`.

    `since` and `until` are times; `tenant` names another tenant and is for the operator. `latest`
    limits the result to that many of the newest records.
    """

    def __init__(self, http: AsyncHTTP) -> None:
        self._http = http

    async def records(self, *, action: Optional[str] = None, since: Optional[datetime.datetime] = None, until: Optional[datetime.datetime] = None,
                      tenant: Optional[str] = None, latest: Optional[int] = None) -> AsyncIterator[AuditRecord]:
        """Records, the oldest first. `action` is one action, or a prefix that ends with a dot, such
        as "key."."""
        async for record in self._all(action, since, until, tenant, latest):
            yield record

    async def security(self, *, action: Optional[str] = None, since: Optional[datetime.datetime] = None, until: Optional[datetime.datetime] = None,
                       tenant: Optional[str] = None, latest: Optional[int] = None) -> AsyncIterator[AuditRecord]:
        """Records that look like an attack: escape attempts, floods, repeated failures. Their
        actions begin with "security."."""
        async for record in self._all(action or "security.", since, until, tenant, latest):
            yield record

    async def _all(self, action: Optional[str], since: Optional[datetime.datetime], until: Optional[datetime.datetime],
                   tenant: Optional[str], latest: Optional[int]) -> AsyncIterator[AuditRecord]:
        call = Call("GET", path("v1", "audit"), audit_query(action, since, until, tenant))
        if latest is None:
            async for record in self._http.pages(AuditRecord, call):
                yield record
            return
        page = await self._http.json(Call("GET", call.path, {**call.query, "latest": True, "limit": latest}))
        for item in page["items"]:
            yield decode(AuditRecord, item)

    async def export(self, local: LocalPath, *, action: Optional[str] = None, since: Optional[datetime.datetime] = None,
                     until: Optional[datetime.datetime] = None, tenant: Optional[str] = None) -> DownloadResult:
        """Saves all records as lines of JSON in a local file that `cove audit verify` can read."""
        query = {**audit_query(action, since, until, tenant), "format": "jsonl"}
        return await save_to_file(self._http, Call("GET", path("v1", "audit"), query), local)

    async def key(self) -> AuditKey:
        """The public key of the audit trail, and its newest record."""
        return await self._http.get(AuditKey, Call("GET", path("v1", "audit", "key")))


def audit_query(action: Optional[str], since: Optional[datetime.datetime], until: Optional[datetime.datetime],
                tenant: Optional[str]) -> Dict[str, Any]:
    return {"action": action, "since": moment_text(since), "until": moment_text(until), "tenant": tenant}


class AsyncUsages:
    """Past and current usage."""

    def __init__(self, http: AsyncHTTP) -> None:
        self._http = http

    async def report(self, *, begin: Optional[Moment] = None, end: Optional[Moment] = None, group: Sequence[str] = (), tenant: Optional[str] = None,
                     user: Optional[str] = None, sandbox: Optional[str] = None) -> UsageReport:
        """Sums of whole hours in UTC; default: the last day. Needs the scope `usage`.

        Args:
            group: one row for each "hour", "tenant", "user" or "sandbox"; without it there is one
                row.
            tenant, user, sandbox: restrict the sums.
        """
        call = Call("GET", path("v1", "usage"), usage_query(begin, end, group, tenant, user, sandbox))
        return await self._http.get(UsageReport, call)

    async def csv(self, *, begin: Optional[Moment] = None, end: Optional[Moment] = None, group: Sequence[str] = (), tenant: Optional[str] = None,
                  user: Optional[str] = None, sandbox: Optional[str] = None) -> str:
        """The same as CSV for spreadsheets."""
        query = {**usage_query(begin, end, group, tenant, user, sandbox), "format": "csv"}
        return (await self._http.send(Call("GET", path("v1", "usage"), query))).text

    async def live(self) -> LiveUsage:
        """The current usage of every living sandbox, the oldest first. Needs `sandboxes:read`."""
        return await self._http.get(LiveUsage, Call("GET", path("v1", "usage", "live")))


def usage_query(begin: Optional[Moment], end: Optional[Moment], group: Sequence[str], tenant: Optional[str], user: Optional[str],
                sandbox: Optional[str]) -> Dict[str, Any]:
    return {"from": moment_text(begin), "to": moment_text(end), "group": ",".join(group) or None, "tenant": tenant, "user": user, "sandbox": sandbox}
