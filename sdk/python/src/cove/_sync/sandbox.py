# Written by tools/unasync.py from _async/sandbox.py: change that.
"""A sandbox: its life, the programs in it, its files."""
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
    """A place of its own for code that nobody has read.

        with Sandbox.create("python") as sandbox:
            result = sandbox.run_code("print(6 * 7)")
            print(result.stdout)

    Leaving the block ends the sandbox, with every process and file in it. Without a block it lives until its lifetime is
    over or somebody calls `delete()`.
    """

    def __init__(self, client: Cove, info: SandboxInfo, *, owns_client: bool = False) -> None:
        self._client = client
        self._http = client._http
        self._owns_client = owns_client
        self.info = info
        """What the server said last; `refresh()` asks again."""
        self.files = Files(client._http, info.id)
        """The files in it."""
        self.terminals = Terminals(client._http, info.id)
        """Programs on terminals, to type to and to watch."""
        self.contexts = Contexts(client._http, info.id)
        """Interpreters that keep their state."""

    @classmethod
    def create(cls, runtime: Optional[str] = None, *, template: Optional[str] = None, level: Optional[str] = None,
                     policy: Optional[Mapping[str, Any]] = None, resources: Optional[Resources] = None, env: Optional[Mapping[str, str]] = None,
                     metadata: Optional[Mapping[str, str]] = None,
                     timeout: Optional[Duration] = None, lifetime: Optional[Duration] = None, idle_timeout: Optional[Duration] = None,
                     idle_action: Optional[str] = None, idempotency_key: Optional[str] = None, client: Optional[Cove] = None) -> Sandbox:
        """Makes a sandbox; it is running when this returns.

        Args:
            runtime: the language of `run_code`; python, unless a template says otherwise. `client.runtimes()` lists them.
            template: what is not said here comes from it.
            level: how strong the walls are; "standard" or "high".
            policy: walls and limits of your own, as docs/policies.md has them; the level is "custom" then.
            resources: processor, memory, storage, processes.
            env: variables for every program in it.
            metadata: pairs for your own use; `list` finds sandboxes by them.
            timeout: seconds that one execution may take, unless it says otherwise.
            lifetime: seconds after which it ends, whatever happens.
            idle_timeout: seconds without an execution or a file request, after which `idle_action` ("end" or "pause") is taken.
            idempotency_key: of your own choosing; without it each call makes a new sandbox, and only a repetition after a
                broken connection finds the first.
            client: the server; without it the one of COVE_URL, or of this machine.
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
        """One that exists. Nothing about it changes by that: no clock is moved."""
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
        """The newest first, ended ones included until their retention is over.

        `metadata` holds one pair that they must have; `state` is creating, running, paused or ended.
        """
        owner = client is None
        client = client or Cove()
        try:
            if metadata is not None and len(metadata) != 1:
                raise ValueError("metadata is one pair to look for")
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
        """Lets go of the connections. The sandbox goes on."""
        if self._owns_client:
            self._client.close()

    def _path(self, *more: str) -> str:
        return path("v1", "sandboxes", self.id, *more)

    # --- its life ---

    def _request_info(self, call: Call) -> SandboxInfo:
        self.info = self._http.get(SandboxInfo, call)
        return self.info

    def refresh(self) -> SandboxInfo:
        """Asks the server how it is. One that has ended tells why."""
        return self._request_info(Call("GET", self._path()))

    def delete(self) -> SandboxInfo:
        """Ends it, with every process and file in it. One that has ended is told as it is."""
        return self._request_info(Call("DELETE", self._path()))

    def pause(self) -> SandboxInfo:
        """Freezes every process. The lifetime runs on, the other clocks stand still."""
        return self._request_info(Call("POST", self._path("pause")))

    def resume(self) -> SandboxInfo:
        """Lets a paused one go on."""
        return self._request_info(Call("POST", self._path("resume")))

    def extend(self, lifetime: Duration) -> SandboxInfo:
        """It ends so many seconds from now, instead of when it would have."""
        return self._request_info(Call("POST", self._path("extend"), json={"lifetimeMs": milliseconds(lifetime)}))

    def create_token(self, operations: Sequence[str] = ("executions", "files"), *, ttl: Optional[Duration] = None,
                           port: Optional[int] = None) -> SandboxToken:
        """A token that reaches this sandbox and nothing else; use it as the `api_key` of another client. It ends after `ttl`
        seconds, with the sandbox, and with the key that made it."""
        body = {"operations": [*operations], **without_none(ttlMs=None if ttl is None else milliseconds(ttl), port=port)}
        return self._http.get(SandboxToken, Call("POST", path("v1", "sandboxes", self.id, "tokens"), json=body, repeatable=False))

    def usage(self) -> Usage:
        """What it uses now, as the kernel counts."""
        return self._http.get(Usage, Call("GET", self._path("usage")))

    def events(self) -> Iterator[SandboxEvent]:
        """What happened to it, the oldest first."""
        for event in self._http.pages(SandboxEvent, "events", Call("GET", self._path("events"))):
            yield event

    # --- programs in it ---

    def run_code(self, code: str, **options: Unpack[RunOptions]) -> Result:
        """Runs code in the sandbox's language and waits for its end.

        Options are those of `RunOptions`: timeout, env, cwd, stdin and so on. A program that fails raises nothing; look at
        `result.success`, or call `result.check()`.
        """
        with self.stream_code(code, **wait_for_end(options)) as stream:
            return stream.result()

    def run_command(self, command: Union[str, Sequence[str]], **options: Unpack[RunOptions]) -> Result:
        """Runs a program and waits for its end: `["ls", "-l"]` as it is, `"ls -l | wc"` through a shell."""
        with self.stream_command(command, **wait_for_end(options)) as stream:
            return stream.result()

    def stream_code(self, code: str, **options: Unpack[StartOptions]) -> Stream:
        """Runs code; its events come as they happen. It starts with the first of them."""
        return Stream(self._http, self.id, StreamProgress(), self._launch({"code": code}, options))

    def stream_command(self, command: Union[str, Sequence[str]], **options: Unpack[StartOptions]) -> Stream:
        """Runs a program; its events come as they happen. It starts with the first of them."""
        return Stream(self._http, self.id, StreamProgress(), self._launch({"command": argv_of(command)}, options))

    def start_code(self, code: str, **options: Unpack[StartOptions]) -> Execution:
        """Starts code and returns at once."""
        return self._start({"code": code}, options)

    def start_command(self, command: Union[str, Sequence[str]], **options: Unpack[StartOptions]) -> Execution:
        """Starts a program and returns at once."""
        return self._start({"command": argv_of(command)}, options)

    def start_terminal(self, command: Union[str, Sequence[str], None] = None, *, rows: int = 24, cols: int = 80,
                             **options: Unpack[StartOptions]) -> Execution:
        """Starts a program on a terminal, a shell if none is named, and returns at once.

        It goes on when nobody follows it, for as long as the sandbox lives unless `timeout` says otherwise. `stream()` shows
        it from any byte on, `write_stdin` types, `resize` and `signal` do what a window and a keyboard would.
        """
        what = {"tty": True, "rows": rows, "cols": cols, **({} if command is None else {"command": argv_of(command)})}
        started = self._start(what, options)
        return Execution(self._http, self.id, started.id, tty=True)

    def channel(self, *, status_interval: Optional[Duration] = None) -> Channel:
        """One connection for many executions, with input while they run. `status_interval` asks for figures so often."""
        return Channel(self._http, self.id, status_interval)

    def execution(self, id: str) -> Execution:
        """The handle of an execution whose id is known."""
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
