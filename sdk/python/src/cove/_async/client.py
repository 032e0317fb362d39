"""A server: the identity of the client, keys, templates, and the abilities of the server."""
from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, AsyncIterator, Mapping, Optional, Sequence, Union

from .._call import NDJSON, Call, path
from .._json import Duration, Size, decode, encode, without_none
from .._settings import Retry, resolve
from .._local import DownloadResult, LocalPath
from ..errors import NotFoundError
from ..models import Capabilities, GcReport, Policy, Readiness, Resources, Runtime, Template, TemplateSpec, Ticket, Whoami, limits_of
from ..network import NetworkLike, network_of
from ..options import Content, execute_body
from ..result import CodeReport, ExecuteStreamParser, Result
from ._http import AsyncHTTP, AsyncLineStream
from .execution import OnResult, OnText, deliver

if TYPE_CHECKING:
    from ..calculation import Calculation
    from ..tenants import LoginInfo, Tenant
    from .mcp_sessions import AsyncMcpSessions
    from .pools import AsyncPools
    from .records import AsyncAudit, AsyncEvents, AsyncExecutions, AsyncUsages
    from .scripts import AsyncScripts
    from .secrets import AsyncSecrets
    from .tenants import AsyncKeys, AsyncRoles, AsyncTenants, AsyncUsers
    from .tools import AsyncTools

EXECUTE_PATIENCE = 3600.0
"""Seconds; an execution may wait in a queue before it runs."""
EXECUTE_ANSWER_MAX = 256 << 20  # output of 16 MiB, and its size after escaping


class AsyncCove:
    """A client of one server. It can be used by many tasks at a time.

    Args:
        url: default: COVE_URL, then the URL of `cove login`, then the Unix socket of a server on
            this machine, then http://127.0.0.1:8700.
        api_key: default: COVE_API_KEY, then the key of `cove login` if it is for this server. The
            owner of a server needs no key over its socket; "" sends none.
        socket: path of a Unix socket, instead of a URL.
        timeout: seconds without any byte from the server after which a request fails. The time
            limit of a program is set where the program is started.
        retry: how long a request is repeated.
        insecure: send the key over http:// to another machine.
        cacert: PEM file with the authority that signed the server's certificate; default:
            COVE_CACERT, then the authority of `cove login`, then the authorities that this machine
            trusts.
    """

    def __init__(self, url: Optional[str] = None, api_key: Optional[str] = None, *, socket: Optional[str] = None, timeout: float = 60.0,
                 retry: Optional[Retry] = None, insecure: bool = False, cacert: Optional[str] = None) -> None:
        self._http = AsyncHTTP(resolve(url, api_key, socket, timeout, retry, insecure, os.environ, cacert))
        self.templates = AsyncTemplates(self._http)
        """The templates of the server."""

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._http.settings.where}>"

    async def __aenter__(self) -> AsyncCove:
        return self

    async def __aexit__(self, *exc: Any) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Closes the connections. Sandboxes continue to run."""
        await self._http.aclose()

    # --- areas of the server; their modules are imported when they are used ---

    @property
    def keys(self) -> AsyncKeys:
        """API keys."""
        from .tenants import AsyncKeys

        return AsyncKeys(self._http)

    @property
    def pools(self) -> AsyncPools:
        """Sandboxes that are prepared before they are requested."""
        from .pools import AsyncPools

        return AsyncPools(self._http)

    @property
    def tenants(self) -> AsyncTenants:
        """The tenants of the server, for its operator."""
        from .tenants import AsyncTenants

        return AsyncTenants(self._http)

    @property
    def users(self) -> AsyncUsers:
        """The users of a tenant."""
        from .tenants import AsyncUsers

        return AsyncUsers(self._http)

    @property
    def roles(self) -> AsyncRoles:
        """Lists of permissions for users."""
        from .tenants import AsyncRoles

        return AsyncRoles(self._http)

    @property
    def executions(self) -> AsyncExecutions:
        """Executions of all sandboxes."""
        from .records import AsyncExecutions

        return AsyncExecutions(self._http)

    @property
    def mcp_sessions(self) -> AsyncMcpSessions:
        """Sessions of MCP clients."""
        from .mcp_sessions import AsyncMcpSessions

        return AsyncMcpSessions(self._http)

    @property
    def scripts(self) -> AsyncScripts:
        """Code that ran successfully."""
        from .scripts import AsyncScripts

        return AsyncScripts(self._http)

    @property
    def secrets(self) -> AsyncSecrets:
        """Values that sandboxes use without seeing them."""
        from .secrets import AsyncSecrets

        return AsyncSecrets(self._http)

    @property
    def tools(self) -> AsyncTools:
        """Tools that a language model can call."""
        from .tools import AsyncTools

        return AsyncTools(self._http)

    @property
    def events(self) -> AsyncEvents:
        """Events of sandboxes."""
        from .records import AsyncEvents

        return AsyncEvents(self._http)

    @property
    def audit(self) -> AsyncAudit:
        """The audit log."""
        from .records import AsyncAudit

        return AsyncAudit(self._http)

    @property
    def usage(self) -> AsyncUsages:
        """Past and current usage."""
        from .records import AsyncUsages

        return AsyncUsages(self._http)

    # --- one program ---

    async def execute(self, code: Optional[str] = None, *, command: Union[str, Sequence[str], None] = None, language: Optional[str] = None,
                      template: Optional[str] = None, files: Optional[Mapping[str, Content]] = None, outputs: Sequence[str] = (),
                      stdin: Optional[str] = None, env: Optional[Mapping[str, str]] = None, cwd: Optional[str] = None,
                      timeout: Optional[Duration] = None, output_bytes: Optional[int] = None, level: Optional[str] = None, driver: Optional[str] = None,
                      policy: Optional[Mapping[str, Any]] = None, allow: Optional[Sequence[str]] = None, network: Optional[NetworkLike] = None,
                      memory: Optional[Size] = None, disk: Optional[Size] = None, cpus: Optional[float] = None, pids: Optional[int] = None,
                      resources: Optional[Resources] = None, cache: Optional[bool] = None, tier: Optional[str] = None, on_stdout: Optional[OnText] = None,
                      on_stderr: Optional[OnText] = None, on_result: Optional[OnResult] = None) -> Result:
        """Runs code, or a command, in a fresh sandbox that is removed afterwards: one call, one
        answer, no state is kept.

        Args:
            files: contents of files that are written before the program starts, by path.
            outputs: paths or patterns of the files that the answer contains.
            template: "python-data" has NumPy, pandas and matplotlib already loaded.
            cache: the program is pure, so the server may return the result of an earlier identical
                run.
            tier: "simple" checks Python code and runs it in a small sandbox, and `report` of the
                result says why code was refused; "auto" tries the calculator first; "full" is the
                default.
            timeout: seconds, or a text such as "500ms".
            driver, allow, network, memory, disk, cpus, pids, resources: as for `Sandbox.create`.
            on_stdout, on_stderr: called with each piece of text as it is written.
            on_result: called with each displayed value.

        An exception from a callback ends the program. With a callback the program always runs, and
        `cache` has no effect.

        The call is not repeated when the connection breaks, because the program may already have
        run.
        """
        limits = limits_of(memory, disk, cpus, pids, resources)
        body = execute_body(code, command, files, outputs, env, timeout, limits, language=language, template=template, stdin=stdin, cwd=cwd,
                            outputBytes=output_bytes, level=level, driver=driver, policy=policy, cache=cache, tier=tier,
                            network=network_of(network, allow))
        if on_stdout is not None or on_stderr is not None or on_result is not None:
            return await self._listen(body, on_stdout, on_stderr, on_result)
        return await self._http.get(Result, Call("POST", path("v1", "execute"), json=body, repeatable=False, read_timeout=EXECUTE_PATIENCE,
                                                        answer_max=EXECUTE_ANSWER_MAX))

    async def validate(self, code: str, *, language: Optional[str] = None, template: Optional[str] = None) -> CodeReport:
        """Reports what code would use that the tier "simple" of `execute` does not give it. The
        code is parsed in a sandbox and does not run.

        Args:
            language: "python" by default; of "node" and "bash" only the syntax is checked.
            template: "python-data" permits NumPy, pandas and matplotlib.
        """
        body = without_none(code=code, language=language, template=template)
        return await self._http.get(CodeReport, Call("POST", path("v1", "validate"), json=body, read_timeout=EXECUTE_PATIENCE))

    async def _listen(self, body: Mapping[str, Any], on_stdout: Optional[OnText], on_stderr: Optional[OnText],
                      on_result: Optional[OnResult]) -> Result:
        lines, heard = AsyncLineStream(self._http), ExecuteStreamParser()
        try:
            await lines.open(Call("POST", path("v1", "execute"), json=body, headers={"Accept": NDJSON}, read_timeout=EXECUTE_PATIENCE))
            while heard.answer is None:
                await deliver(heard.take(await lines.next()), on_stdout, on_stderr, on_result)
            await lines.finish()
            return heard.answer
        finally:
            await lines.drop()

    # --- the server ---

    async def calculate(self, expression: Optional[str] = None, *, problem: Optional[str] = None, digits: Optional[int] = None,
                        steps: Optional[bool] = None) -> Calculation:
        """Computes a formula, or a short problem in English words, exactly and without a sandbox.

        Args:
            expression: a formula such as "1/3 + 1/6".
            problem: a formula or words, such as "What is 15% of 80?". A problem that is not
                understood has no answer and an `explanation`.
            digits: significant digits of a result that is rounded.
            steps: list the reductions in `steps`.
        """
        from ..calculation import calculation_of

        body = without_none(expression=expression, problem=problem, digits=digits, steps=steps)
        return calculation_of(await self._http.json(Call("POST", path("v1", "calculate"), json=body)))

    async def capabilities(self) -> Capabilities:
        """Levels, runtimes, and limits with their ranges."""
        return await self._http.get(Capabilities, Call("GET", path("v1", "capabilities")))

    async def runtimes(self) -> Sequence[Runtime]:
        """The languages that cove knows; `available` says whether this server has the language."""
        return [decode(Runtime, item) for item in (await self._http.json(Call("GET", path("v1", "runtimes"))))["items"]]

    async def runtime(self, name: str) -> Runtime:
        return await self._http.get(Runtime, Call("GET", path("v1", "runtimes", name)))

    async def policies(self) -> Sequence[Policy]:
        """The built-in policies; your own policies can extend them."""
        return [decode(Policy, item) for item in (await self._http.json(Call("GET", path("v1", "policies"))))["items"]]

    async def policy(self, name: str) -> Policy:
        """A built-in policy in full, with the values of this server."""
        return await self._http.get(Policy, Call("GET", path("v1", "policies", name)))

    async def version(self) -> str:
        """The version of the server."""
        return str((await self._http.json(Call("GET", "/health")))["version"])

    async def ready(self) -> Readiness:
        """Whether sandboxes can be created, and if not, why."""
        return await self._http.get(Readiness, Call("GET", "/ready", also_ok=(503,)))

    async def whoami(self) -> Whoami:
        """The principal that this client is to the server, and its permissions."""
        return await self._http.get(Whoami, Call("GET", path("v1", "whoami")))

    async def ticket(self, target: str, *, method: str = "GET") -> Ticket:
        """A ticket for one request of a browser to the path `target` or below it, for example
        "/v1/events"."""
        return await self._http.get(Ticket, Call("POST", path("v1", "tickets"), json={"path": target, "method": method}, repeatable=False))

    async def revoke_tokens(self) -> None:
        """Revokes every sandbox token and every signed URL of the server. Keys stay valid. Needs
        the scope `admin`."""
        await self._http.send(Call("DELETE", path("v1", "tokens")))

    async def login(self) -> LoginInfo:
        """The login address of this server, if it accepts tokens of an identity provider."""
        from ..tenants import LoginInfo

        return await self._http.get(LoginInfo, Call("GET", path("v1", "login")))

    async def tenant(self) -> Tenant:
        """The tenant of this client: its quota, budget and usage."""
        from ..tenants import Tenant

        return await self._http.get(Tenant, Call("GET", path("v1", "tenants", (await self.whoami()).tenant)))

    async def metrics(self) -> str:
        """Counters in the text format of Prometheus."""
        return (await self._http.send(Call("GET", "/metrics"))).text

    async def gc(self, *, dry_run: bool = False) -> GcReport:
        """Removes data past its retention; with `dry_run`, only reports what would be removed.
        Needs the scope `admin`."""
        return await self._http.get(GcReport, Call("POST", path("v1", "maintenance", "gc"), json={"dryRun": dry_run}))

    async def backup(self, local: LocalPath) -> DownloadResult:
        """Copies the server's database into a local file, for `cove restore`. Needs the scope
        `admin`."""
        from .records import save_to_file

        return await save_to_file(self._http, Call("GET", path("v1", "maintenance", "backup")), local)


class AsyncTemplates:
    """The templates of a server."""

    def __init__(self, http: AsyncHTTP) -> None:
        self._http = http

    async def put(self, name: str, spec: TemplateSpec) -> Template:
        """Creates or replaces a template. Its existing sandboxes do not change."""
        return await self._http.get(Template, Call("PUT", path("v1", "templates", name), json=encode(spec)))

    async def list(self) -> AsyncIterator[Template]:
        """All templates, sorted by name."""
        async for template in self._http.pages(Template, Call("GET", path("v1", "templates"))):
            yield template

    async def get(self, name: str) -> Template:
        return await self._http.get(Template, Call("GET", path("v1", "templates", name)))

    async def delete(self, name: str) -> None:
        await self._http.send(Call("DELETE", path("v1", "templates", name), done_if=(NotFoundError,)))
