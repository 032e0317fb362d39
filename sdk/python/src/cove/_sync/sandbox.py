# Written by tools/unasync.py from _async/sandbox.py: change that.
"""A sandbox: its lifecycle, its programs, its files."""
from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any, Iterator, Mapping, Optional, Sequence, Union

from .. import _sio
from .._call import NDJSON, Call, path
from .._json import Duration, encode, milliseconds, without_none
from ..events import StreamProgress
from ..models import ExecutionInfo, SandboxEvent, Resources, SandboxInfo, SandboxToken, TemplateSpec, Usage
from ..options import RunOptions, StartOptions, run_body, wait_for_end, argv_of
from ._http import delete_on_exit
from .channel import Channel
from .client import Cove
from .contexts import Contexts
from .execution import Execution, Result, Stream
from .files import Files
from .terminals import Terminals

if TYPE_CHECKING:
    from typing_extensions import Unpack


class Sandbox:
    """An isolated environment for untrusted code.

        with Sandbox.create("python") as sandbox:
            result = sandbox.run_code("print(6 * 7)")
            print(result.stdout)

    Leaving the block ends the sandbox, with every process and file in it. Without a block the
    sandbox lives until its lifetime is over or `delete()` is called.
    """

    def __init__(self, client: Cove, info: SandboxInfo, *, owns_client: bool = False) -> None:
        self._client = client
        self._http = client._http
        self._owns_client = owns_client
        self.info = info
        """The latest answer of the server; `refresh()` updates it."""
        self.files = Files(client._http, info.id)
        """The files of the sandbox."""
        self.terminals = Terminals(client._http, info.id)
        """Programs on interactive terminals."""
        self.contexts = Contexts(client._http, info.id)
        """Language kernels that keep their state."""

    @classmethod
    def create(cls, runtime: Optional[str] = None, *, template: Optional[str] = None, level: Optional[str] = None,
                     policy: Optional[Mapping[str, Any]] = None, resources: Optional[Resources] = None, env: Optional[Mapping[str, str]] = None,
                     metadata: Optional[Mapping[str, str]] = None,
                     timeout: Optional[Duration] = None, lifetime: Optional[Duration] = None, idle_timeout: Optional[Duration] = None,
                     idle_action: Optional[str] = None, idempotency_key: Optional[str] = None, client: Optional[Cove] = None) -> Sandbox:
        """Creates a sandbox, which is running when this returns.

        Args:
            runtime: the language of `run_code`; default: that of the template, otherwise python.
                `client.runtimes()` lists the languages.
            template: supplies the values that are not given here.
            level: the strength of the walls; "standard" or "high".
            policy: your own walls and limits, as docs/policies.md describes; the level is then
                "custom".
            resources: CPU, memory, storage, processes.
            env: variables for every program of the sandbox.
            metadata: pairs for your own use; `list` finds sandboxes by them.
            timeout: seconds; the default timeout of an execution.
            lifetime: seconds after which the sandbox ends in any case.
            idle_timeout: seconds without an execution or a file request, after which `idle_action`
                ("end" or "pause") happens.
            idempotency_key: your own key; without one each call creates a new sandbox, and only the
                retry after a broken connection finds the first.
            client: the server; default: the server of COVE_URL, or of this machine.
        """
        owner = client is None
        client = client or Cove()
        spec = TemplateSpec(runtime if runtime or template else "python", level, resources, env, metadata, timeout, lifetime, idle_timeout, idle_action,
                            policy=policy)
        call = Call("POST", path("v1", "sandboxes"), json={**encode(spec), **without_none(template=template)},
                    headers={"Idempotency-Key": idempotency_key or str(uuid.uuid4())})
        try:
            return cls(client, client._http.get(SandboxInfo, call), owns_client=owner)
        except BaseException:
            if owner:
                client.close()
            raise

    @classmethod
    def connect(cls, id: str, *, client: Optional[Cove] = None) -> Sandbox:
        """A handle of an existing sandbox. Connecting changes nothing: no timeout is reset."""
        owner = client is None
        client = client or Cove()
        try:
            return cls(client, client._http.get(SandboxInfo, Call("GET", path("v1", "sandboxes", id))), owns_client=owner)
        except BaseException:
            if owner:
                client.close()
            raise

    @staticmethod
    def list(*, state: Optional[str] = None, metadata: Optional[Mapping[str, str]] = None,
                   client: Optional[Cove] = None) -> Iterator[SandboxInfo]:
        """Sandboxes, the newest first, with ended ones until their retention is over.

        `metadata` holds one pair that the sandboxes must have; `state` is creating, running, paused
        or ended.
        """
        owner = client is None
        client = client or Cove()
        try:
            if metadata is not None and len(metadata) != 1:
                raise ValueError("metadata: must hold exactly one pair to search for")
            pair = "=".join(next(iter(metadata.items()))) if metadata else None
            for info in client._http.pages(SandboxInfo, "sandboxes", Call("GET", path("v1", "sandboxes"), {"state": state, "metadata": pair})):
                yield info
        finally:
            if owner:
                client.close()

    @property
    def id(self) -> str:
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
        return self._request_info(Call("DELETE", self._path()))

    def pause(self) -> SandboxInfo:
        """Freezes every process. The lifetime goes on; the other timeouts stop."""
        return self._request_info(Call("POST", self._path("pause")))

    def resume(self) -> SandboxInfo:
        """Resumes a paused sandbox."""
        return self._request_info(Call("POST", self._path("resume")))

    def extend(self, lifetime: Duration) -> SandboxInfo:
        """Sets the end of the sandbox to `lifetime` seconds from now."""
        return self._request_info(Call("POST", self._path("extend"), json={"lifetimeMs": milliseconds(lifetime)}))

    def create_token(self, operations: Sequence[str] = ("executions", "files"), *, ttl: Optional[Duration] = None,
                           port: Optional[int] = None) -> SandboxToken:
        """A token that is valid for this sandbox only; use it as the `api_key` of another client.
        It expires after `ttl` seconds, with the sandbox, and with the key that created it."""
        body = {"operations": [*operations], **without_none(ttlMs=None if ttl is None else milliseconds(ttl), port=port)}
        return self._http.get(SandboxToken, Call("POST", path("v1", "sandboxes", self.id, "tokens"), json=body, repeatable=False))

    def usage(self) -> Usage:
        """The current resource usage of the sandbox, from the kernel's counters."""
        return self._http.get(Usage, Call("GET", self._path("usage")))

    def events(self) -> Iterator[SandboxEvent]:
        """The events of the sandbox, the oldest first."""
        for event in self._http.pages(SandboxEvent, "events", Call("GET", self._path("events"))):
            yield event

    # --- programs ---

    def run_code(self, code: str, **options: Unpack[RunOptions]) -> Result:
        """Runs code in the sandbox's language and waits for its end.

        Options are those of `RunOptions`: timeout, env, cwd, stdin and so on. A program that fails
        raises nothing; look at `result.success`, or call `result.check()`.
        """
        with self.stream_code(code, **wait_for_end(options)) as stream:
            return stream.result()

    def run_command(self, command: Union[str, Sequence[str]], **options: Unpack[RunOptions]) -> Result:
        """Runs a program and waits for its end: `["ls", "-l"]` directly, `"ls -l | wc"` through a
        shell."""
        with self.stream_command(command, **wait_for_end(options)) as stream:
            return stream.result()

    def stream_code(self, code: str, **options: Unpack[StartOptions]) -> Stream:
        """Runs code and yields its events as they happen. The code starts when the first event is
        read."""
        return Stream(self._http, self.id, StreamProgress(), self._launch({"code": code}, options))

    def stream_command(self, command: Union[str, Sequence[str]], **options: Unpack[StartOptions]) -> Stream:
        """Runs a program and yields its events as they happen. The program starts when the first
        event is read."""
        return Stream(self._http, self.id, StreamProgress(), self._launch({"command": argv_of(command)}, options))

    def start_code(self, code: str, **options: Unpack[StartOptions]) -> Execution:
        """Starts code and returns immediately."""
        return self._start({"code": code}, options)

    def start_command(self, command: Union[str, Sequence[str]], **options: Unpack[StartOptions]) -> Execution:
        """Starts a program and returns immediately."""
        return self._start({"command": argv_of(command)}, options)

    def start_terminal(self, command: Union[str, Sequence[str], None] = None, *, rows: int = 24, cols: int = 80,
                             **options: Unpack[StartOptions]) -> Execution:
        """Starts a program on a terminal and returns immediately; the default is a shell.

        The terminal continues without a viewer until the sandbox ends or `timeout` has passed.
        `stream()` shows its output from any byte on, `write_stdin` types, `resize` changes the
        window size, `signal` sends a signal.
        """
        what = {"tty": True, "rows": rows, "cols": cols, **({} if command is None else {"command": argv_of(command)})}
        started = self._start(what, options)
        return Execution(self._http, self.id, started.id, tty=True)

    def channel(self, *, status_interval: Optional[Duration] = None) -> Channel:
        """One connection for many executions, with input while they run. With `status_interval`,
        the server sends resource figures at that interval in seconds."""
        return Channel(self._http, self.id, status_interval)

    def execution(self, id: str) -> Execution:
        """The handle of an execution, by its id."""
        return Execution(self._http, self.id, id)

    def executions(self, *, state: Optional[str] = None) -> Iterator[ExecutionInfo]:
        """All executions, the newest first; `state` is starting, running, ended or failed."""
        for info in self._http.pages(ExecutionInfo, "executions", Call("GET", self._path("executions"), {"state": state})):
            yield info

    def _launch(self, what: Mapping[str, Any], options: StartOptions) -> Call:
        return Call("POST", self._path("executions"), json={**what, **run_body(options)},
                    headers={"Idempotency-Key": options.get("idempotency_key") or str(uuid.uuid4()), "Accept": NDJSON})

    def _start(self, what: Mapping[str, Any], options: StartOptions) -> Execution:
        call = self._launch({**what, "background": True}, options)
        call.headers["Accept"] = "application/json"
        return Execution(self._http, self.id, (self._http.get(ExecutionInfo, call)).id, fresh=True)
