# Written by tools/unasync.py from _async/sandbox.py: change that.
"""A sandbox: its lifecycle, its programs, its files."""
from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Iterator, List, Mapping, Optional, Sequence, Union

from .. import _sio
from .._call import NDJSON, Call, fresh_key, path
from .._json import Duration, Size, encode, milliseconds, without_none
from ..errors import NotFoundError
from ..events import StreamProgress
from ..models import ExecutionInfo, Resources, SandboxEvent, SandboxInfo, SandboxToken, TemplateSpec, Usage, limits_of
from ..network import NetworkConnection, NetworkDecision, NetworkLike, network_of
from ..options import argv_of, code_of, run_body, terminal_of
from ..result import Result
from ._http import delete_on_exit
from .client import Cove
from .contexts import Contexts
from .execution import Answer, Execution, Stream, OnResult, OnText
from .files import Files

if TYPE_CHECKING:
    from .channel import Channel
    from .terminals import Terminals
    from .tools import Tools


SANDBOX_ID = re.compile("sb[a-z2-7]{20}")
LANGUAGES = ("python3", "py", "javascript", "js", "sh", "shell")
"""Names of languages that are not names of built-in templates."""


class Sandbox:
    """An isolated environment for untrusted code.

        with Sandbox.create("python") as sandbox:
            result = sandbox.run_code("print(6 * 7)")
            print(result.stdout)

    Leaving the block ends the sandbox, with every process and file in it. Without a block the
    sandbox lives until its lifetime is over or `delete()` is called.
    """

    def __init__(self, client: Optional[Cove] = None, info: Optional[SandboxInfo] = None, *, owns_client: bool = False) -> None:
        name = type(self).__name__
        if not isinstance(client, Cove) or info is None:
            raise TypeError(f"{name}(): makes no sandbox; use {name}.create(), or {name}.connect(id) for a sandbox that exists")
        self._client = client
        self._http = client._http
        self._owns_client = owns_client
        self.info = info
        """The latest answer of the server; `refresh()` updates it."""
        self.files = Files(client._http, info.id)
        """The files of the sandbox."""
        self.contexts = Contexts(client._http, info.id)
        """Language kernels that keep their state."""

    @property
    def tools(self) -> Tools:
        """Tools that a language model can call in the sandbox."""
        from .tools import Tools

        return Tools(self._http, self.info.id)

    @classmethod
    def create(cls, template: Optional[str] = None, *, name: Optional[str] = None, runtime: Optional[str] = None, level: Optional[str] = None,
                     driver: Optional[str] = None, policy: Optional[Mapping[str, Any]] = None, allow: Optional[Sequence[str]] = None,
                     network: Optional[NetworkLike] = None, memory: Optional[Size] = None, disk: Optional[Size] = None,
                     cpus: Optional[float] = None, pids: Optional[int] = None, resources: Optional[Resources] = None,
                     env: Optional[Mapping[str, str]] = None, metadata: Optional[Mapping[str, str]] = None, timeout: Optional[Duration] = None,
                     lifetime: Optional[Duration] = None, idle_timeout: Optional[Duration] = None, idle_action: Optional[str] = None,
                     idempotency_key: Optional[str] = None, client: Optional[Cove] = None) -> Sandbox:
        """Creates a sandbox, which is running when this returns.

        Args:
            template: what is in the sandbox: a language ("python", "node", "bash"), "python-data",
                or a template of yours; default: python. It also supplies the values that are not
                given here.
            name: a name for `connect` and `list`; only one sandbox at a time can have it.
            runtime: the language of `run_code`, if it is not that of the template.
            level: the strength of the walls; "standard" or "high".
            driver: what makes the sandbox: "native" or "bwrap", as docs/drivers.md describes;
                default: that of the template or policy, else the first that the operator allows.
            policy: your own walls and limits, as docs/policies.md describes; the level is then
                "custom".
            allow: hosts that the sandbox may reach, such as "pypi.org", "*.example.org:443" or
                "preset:pypi"; without it, and without `network`, there is no network.
            network: all rules, as docs/network.md describes; `{"egress": []}` allows nothing at
                first, and `update` can change it.
            memory: bytes, or a text such as "512M".
            disk: the size of /workspace, as `memory`.
            cpus: CPUs; 0.5 is half of one.
            pids: the greatest number of processes and threads at the same time.
            resources: the same limits as one value; an argument of its own takes precedence.
            env: variables for every program of the sandbox.
            metadata: pairs for your own use; `list` finds sandboxes by them.
            timeout: the default timeout of an execution: seconds, or a text such as "30s".
            lifetime: the time after which the sandbox ends in any case.
            idle_timeout: the time without an execution or a file request, after which `idle_action`
                ("end" or "pause") happens.
            idempotency_key: your own key; without one each call creates a new sandbox, and only the
                retry after a broken connection finds the first.
            client: the server; default: the server of COVE_URL, or of this machine.
        """
        if template in LANGUAGES and runtime is None:
            template, runtime = None, template
        spec = TemplateSpec(runtime, level, limits_of(memory, disk, cpus, pids, resources), env, metadata, timeout,
                            lifetime, idle_timeout, idle_action, policy=policy, driver=driver, network=network_of(network, allow))
        call = Call("POST", path("v1", "sandboxes"), json={**encode(spec), **without_none(template=template, name=name)},
                    headers={"Idempotency-Key": idempotency_key or fresh_key()})
        owner = client is None
        client = client or Cove()
        try:
            return cls(client, client._http.get(SandboxInfo, call), owns_client=owner)
        except BaseException:
            if owner:
                client.close()
            raise

    @classmethod
    def connect(cls, id: str, *, resume: bool = True, client: Optional[Cove] = None) -> Sandbox:
        """A handle of an existing sandbox, by its id or its name. A paused sandbox is resumed,
        unless `resume` is false; apart from that, connecting changes nothing: no timeout is reset.
        """
        owner = client is None
        client = client or Cove()
        try:
            if SANDBOX_ID.fullmatch(id):
                info = client._http.get(SandboxInfo, Call("GET", path("v1", "sandboxes", id)))
            else:
                info = cls._find(client, id)
            sandbox = cls(client, info, owns_client=owner)
            if resume and sandbox.info.state == "paused":
                sandbox.resume()
            return sandbox
        except BaseException:
            if owner:
                client.close()
            raise

    @classmethod
    def _find(cls, client: Cove, name: str) -> SandboxInfo:
        for info in cls.list(name=name, state="!ended", client=client):
            return info
        raise NotFoundError(f"sandbox '{name}': no living sandbox has this name; Sandbox.list() lists them")

    @staticmethod
    def list(*, state: Union[str, Sequence[str], None] = None, name: Optional[str] = None, template: Optional[str] = None,
                   metadata: Optional[Mapping[str, str]] = None, client: Optional[Cove] = None) -> Iterator[SandboxInfo]:
        """Sandboxes, the newest first, with ended ones until their retention is over.

        Args:
            state: "creating", "running", "paused" or "ended", or several of them; with "!" in
                front, all others: "!ended".
            name: sandboxes with this name, of which at most one is alive.
            template: sandboxes of this template.
            metadata: pairs that the sandboxes must have, all of them.
        """
        owner = client is None
        client = client or Cove()
        pairs = [f"{key}={value}" for key, value in (metadata or {}).items()]
        query = {"state": state, "name": name, "template": template, "metadata": pairs}
        try:
            for info in client._http.pages(SandboxInfo, Call("GET", path("v1", "sandboxes"), query)):
                yield info
        finally:
            if owner:
                client.close()

    @property
    def id(self) -> str:
        return self.info.id

    @property
    def commands(self) -> Commands:
        """`commands.run` is `run_command`."""
        return Commands(self)

    @property
    def terminals(self) -> Terminals:
        """Programs on interactive terminals."""
        from .terminals import Terminals

        return Terminals(self._http, self.id)

    @property
    def sandbox_id(self) -> str:
        """The same as `id`."""
        return self.info.id

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id} {self.info.state}>"

    def __enter__(self) -> Sandbox:
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        with _sio.shielded():
            try:
                delete_on_exit(self.delete, error)
            finally:
                self.close()

    def close(self) -> None:
        """Closes the connections. The sandbox continues."""
        if self._owns_client:
            self._client.close()

    def _path(self, *more: str) -> str:
        return path("v1", "sandboxes", self.id, *more)

    # --- lifecycle ---

    def _request_info(self, call: Call) -> SandboxInfo:
        self.info = self._http.get(SandboxInfo, call)
        return self.info

    def refresh(self) -> SandboxInfo:
        """Asks the server for the current state. `info` of an ended sandbox says why it ended."""
        return self._request_info(Call("GET", self._path()))

    def delete(self) -> SandboxInfo:
        """Ends the sandbox, with every process and file in it. If it has ended already, returns its
        state."""
        info = self._request_info(Call("DELETE", self._path()))
        if self._owns_client:
            self._http.connections.close_idle()
        return info

    def kill(self) -> SandboxInfo:
        """The same as `delete`."""
        return self.delete()

    def is_running(self) -> bool:
        """Asks the server whether the sandbox is running, and not paused or ended."""
        return (self.refresh()).state == "running"

    def pause(self) -> SandboxInfo:
        """Freezes every process. The lifetime goes on; the other timeouts stop."""
        return self._request_info(Call("POST", self._path("pause")))

    def resume(self) -> SandboxInfo:
        """Resumes a paused sandbox."""
        return self._request_info(Call("POST", self._path("resume")))

    def update(self, *, name: Optional[str] = None, metadata: Optional[Mapping[str, Optional[str]]] = None,
                     lifetime: Optional[Duration] = None, idle_timeout: Optional[Duration] = None,
                     idle_action: Optional[str] = None, allow: Optional[Sequence[str]] = None,
                     network: Optional[NetworkLike] = None) -> SandboxInfo:
        """Changes what is given.

        Args:
            name: a new name; "" removes the name.
            metadata: pairs to set; a pair that is None is removed, and all others stay.
            lifetime: the sandbox ends after this time from now, which may be sooner than before.
            idle_timeout: as in `create`; 0: no idle timeout.
            idle_action: as in `create`.
            allow, network: all rules from now on; rules that are not named again are gone. Open
                connections that the new rules refuse are closed. The sandbox must have been
                created with a network.
        """
        body = without_none(name=name, metadata=metadata, idleAction=idle_action, network=network_of(network, allow), lifetimeMs=None if lifetime is None else milliseconds(lifetime),
                            idleTimeoutMs=None if idle_timeout is None else milliseconds(idle_timeout))
        if name == "":
            body["name"] = None
        return self._request_info(Call("PATCH", self._path(), json=body))

    def set_timeout(self, timeout: Duration) -> SandboxInfo:
        """The same as `update(lifetime=timeout)`: the sandbox ends `timeout` from now."""
        return self.update(lifetime=timeout)

    def create_token(self, operations: Sequence[str] = ("executions", "files"), *, ttl: Optional[Duration] = None,
                           port: Optional[int] = None) -> SandboxToken:
        """A token that is valid for this sandbox only; use it as the `api_key` of another client.
        It expires after `ttl` seconds, with the sandbox, and with the key that created it."""
        body = {"operations": [*operations], **without_none(ttlMs=None if ttl is None else milliseconds(ttl), port=port)}
        return self._http.get(SandboxToken, Call("POST", path("v1", "sandboxes", self.id, "tokens"), json=body, repeatable=False))

    def usage(self) -> Usage:
        """The current resource usage of the sandbox, from the kernel's counters."""
        return self._http.get(Usage, Call("GET", self._path("usage")))

    def connections(self) -> List[NetworkConnection]:
        """The open connections of the sandbox to hosts outside."""
        return [found for found in self._http.pages(NetworkConnection, Call("GET", self._path("connections")))]

    def explain_url(self, url: str, *, method: Optional[str] = None) -> NetworkDecision:
        """Whether the current rules allow the URL, which rule decides, and what would allow it.
        Nothing is sent."""
        return self._http.get(NetworkDecision, Call("GET", self._path("network", "why"), {"url": url, "method": method}))

    def events(self) -> Iterator[SandboxEvent]:
        """The events of the sandbox, the oldest first."""
        for event in self._http.pages(SandboxEvent, Call("GET", self._path("events"))):
            yield event

    # --- programs ---

    def run_code(self, code: str, *, language: Optional[str] = None, isolated: Optional[bool] = None, answer: Optional[Answer] = None,
                       timeout: Optional[Duration] = None, cpu_time: Optional[Duration] = None,
                       env: Optional[Mapping[str, str]] = None, cwd: Optional[str] = None, stdin: Optional[str] = None,
                       output_bytes: Optional[int] = None, changes: Optional[bool] = None, idempotency_key: Optional[str] = None,
                       on_stdout: Optional[OnText] = None, on_stderr: Optional[OnText] = None,
                       on_result: Optional[OnResult] = None) -> Result:
        """Runs code and waits for its end. The code sees the variables of earlier code, and
        `result.text` is the value of its last expression. Code that fails raises nothing: look at
        `result.success`, or call `result.check()`.

        Args:
            language: python, node or bash; default: that of the sandbox.
            isolated: run the code in a process of its own, without variables of earlier code.
            answer: called when the code asks for a line with `input()`; returns the line. Without
                it, the code reads the lines of `stdin`.
            timeout: elapsed time; then the code is interrupted, or its process killed, and
                `outcome` is "timeout".
            cpu_time: CPU time of a process of its own and of every process that it starts.
            env: variables in addition to those of the sandbox.
            cwd: absolute, or relative to /workspace.
            stdin: the text of standard input; without it the input is empty.
            output_bytes: bytes of output that are kept, both streams together; the rest is counted
                and dropped.
            changes: whether the receipt lists the changes below /workspace; needs `isolated`.
            idempotency_key: your own key; a second call with it finds the same execution, even from
                another process.
            on_stdout, on_stderr: called with each piece of text as it is written.
            on_result: called with each displayed value.
        """
        with self.stream_code(code, language=language, isolated=isolated, timeout=timeout, cpu_time=cpu_time, env=env, cwd=cwd, stdin=stdin,
                                    stdin_open=None if answer is None else True, output_bytes=output_bytes, changes=changes,
                                    idempotency_key=idempotency_key) as stream:
            return stream.result(answer, on_stdout=on_stdout, on_stderr=on_stderr, on_result=on_result)

    def run_command(self, command: Union[str, Sequence[str]], *, timeout: Optional[Duration] = None, cpu_time: Optional[Duration] = None,
                          env: Optional[Mapping[str, str]] = None, cwd: Optional[str] = None, stdin: Optional[str] = None,
                          output_bytes: Optional[int] = None, changes: Optional[bool] = None, idempotency_key: Optional[str] = None,
                          on_stdout: Optional[OnText] = None, on_stderr: Optional[OnText] = None) -> Result:
        """Runs a program and waits for its end: `["ls", "-l"]` directly, `"ls -l | wc"` through a
        shell. The arguments are those of `run_code`."""
        with self.stream_command(command, timeout=timeout, cpu_time=cpu_time, env=env, cwd=cwd, stdin=stdin, output_bytes=output_bytes,
                                       changes=changes, idempotency_key=idempotency_key) as stream:
            return stream.result(on_stdout=on_stdout, on_stderr=on_stderr)

    def stream_code(self, code: str, *, language: Optional[str] = None, isolated: Optional[bool] = None,
                    timeout: Optional[Duration] = None, cpu_time: Optional[Duration] = None,
                    env: Optional[Mapping[str, str]] = None, cwd: Optional[str] = None, stdin: Optional[str] = None, stdin_open: Optional[bool] = None,
                    output_bytes: Optional[int] = None, changes: Optional[bool] = None, idempotency_key: Optional[str] = None) -> Stream:
        """Runs code and yields its events as they happen. The code starts when the first event is
        read.

        With `stdin_open`, instead of `stdin`, `stream.execution.write_stdin` writes while the
        program runs; the other arguments are those of `run_code`.
        """
        body = run_body(timeout, cpu_time, env, cwd, stdin, stdin_open, output_bytes, changes)
        return Stream(self._http, self.id, StreamProgress(), self._launch({**code_of(code, language, isolated), **body}, idempotency_key))

    def stream_command(self, command: Union[str, Sequence[str]], *, timeout: Optional[Duration] = None, cpu_time: Optional[Duration] = None,
                       env: Optional[Mapping[str, str]] = None, cwd: Optional[str] = None, stdin: Optional[str] = None, stdin_open: Optional[bool] = None,
                       output_bytes: Optional[int] = None, changes: Optional[bool] = None, idempotency_key: Optional[str] = None) -> Stream:
        """Runs a program and yields its events as they happen. The program starts when the first
        event is read. The arguments are those of `stream_code`."""
        body = run_body(timeout, cpu_time, env, cwd, stdin, stdin_open, output_bytes, changes)
        return Stream(self._http, self.id, StreamProgress(), self._launch({"command": argv_of(command), **body}, idempotency_key))

    def start_code(self, code: str, *, language: Optional[str] = None, isolated: Optional[bool] = None,
                         timeout: Optional[Duration] = None, cpu_time: Optional[Duration] = None,
                         env: Optional[Mapping[str, str]] = None, cwd: Optional[str] = None, stdin: Optional[str] = None, stdin_open: Optional[bool] = None,
                         output_bytes: Optional[int] = None, changes: Optional[bool] = None, idempotency_key: Optional[str] = None) -> Execution:
        """Starts code and returns immediately. The arguments are those of `stream_code`."""
        body = run_body(timeout, cpu_time, env, cwd, stdin, stdin_open, output_bytes, changes)
        return self._start({**code_of(code, language, isolated), **body}, idempotency_key)

    def start_command(self, command: Union[str, Sequence[str]], *, timeout: Optional[Duration] = None, cpu_time: Optional[Duration] = None,
                            env: Optional[Mapping[str, str]] = None, cwd: Optional[str] = None, stdin: Optional[str] = None, stdin_open: Optional[bool] = None,
                            output_bytes: Optional[int] = None, changes: Optional[bool] = None, idempotency_key: Optional[str] = None) -> Execution:
        """Starts a program and returns immediately. The arguments are those of `stream_code`."""
        body = run_body(timeout, cpu_time, env, cwd, stdin, stdin_open, output_bytes, changes)
        return self._start({"command": argv_of(command), **body}, idempotency_key)

    def start_terminal(self, command: Union[str, Sequence[str], None] = None, *, rows: int = 24, cols: int = 80,
                             timeout: Optional[Duration] = None, cpu_time: Optional[Duration] = None, env: Optional[Mapping[str, str]] = None,
                             cwd: Optional[str] = None, output_bytes: Optional[int] = None, changes: Optional[bool] = None,
                             idempotency_key: Optional[str] = None) -> Execution:
        """Starts a program on a terminal and returns immediately; the default is a shell.

        The terminal continues without a viewer until the sandbox ends or `timeout` has passed.
        `stream()` shows its output from any byte on, `write_stdin` types, `resize` changes the
        window size, `signal` sends a signal.
        """
        body = run_body(timeout, cpu_time, env, cwd, None, None, output_bytes, changes)
        started = self._start({**terminal_of(command, rows, cols), **body}, idempotency_key)
        return Execution(self._http, self.id, started.id, tty=True)

    def channel(self, *, status_interval: Optional[Duration] = None) -> Channel:
        """One connection for many executions, with input while they run. With `status_interval`,
        the server sends resource figures at that interval in seconds."""
        from .channel import Channel

        return Channel(self._http, self.id, status_interval)

    def execution(self, id: str) -> Execution:
        """The handle of an execution, by its id."""
        return Execution(self._http, self.id, id)

    def executions(self, *, state: Union[str, Sequence[str], None] = None,
                         outcome: Union[str, Sequence[str], None] = None) -> Iterator[ExecutionInfo]:
        """All executions, the newest first; the filters are those of `Cove.executions.list`."""
        query = {"state": state, "outcome": outcome}
        for info in self._http.pages(ExecutionInfo, Call("GET", self._path("executions"), query)):
            yield info

    def _launch(self, body: Mapping[str, Any], idempotency_key: Optional[str]) -> Call:
        return Call("POST", self._path("executions"), json=body, headers={"Idempotency-Key": idempotency_key or fresh_key(), "Accept": NDJSON})

    def _start(self, body: Mapping[str, Any], idempotency_key: Optional[str]) -> Execution:
        call = self._launch({**body, "background": True}, idempotency_key)
        call.headers["Accept"] = "application/json"
        return Execution(self._http, self.id, (self._http.get(ExecutionInfo, call)).id, fresh=True)


class Commands:
    """`sandbox.commands.run` is `sandbox.run_command`."""

    def __init__(self, sandbox: Sandbox) -> None:
        self.run = sandbox.run_command
