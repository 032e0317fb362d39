# Written by tools/unasync.py from _async/contexts.py: change that.
"""Contexts: language kernels in a sandbox that keep their state between executions."""
from __future__ import annotations

from typing import Any, Dict, List, Mapping, Optional

from .._call import NDJSON, Call, fresh_key, path
from .._json import Duration, decode, milliseconds, without_none
from ..events import InputRequestEvent, StreamProgress
from ..models import Completions, ContextInfo, ExecutionInfo, Inspection
from ..result import Result
from ._http import HTTP, delete_on_exit
from .execution import Answer, Execution, Stream, OnResult, OnText


def no_answer(question: InputRequestEvent) -> Optional[str]:
    """The default answer to `input()`: the end of the input, so that the code does not wait for
    ever."""
    return None


class Contexts:
    """The contexts of a sandbox.

        with sandbox.contexts.create() as context:
            context.run("x = 6")
            print((context.run("x * 7")).text)
    """

    def __init__(self, http: HTTP, sandbox_id: str) -> None:
        self._http = http
        self._sandbox_id = sandbox_id

    def _path(self, *more: str) -> str:
        return path("v1", "sandboxes", self._sandbox_id, "contexts", *more)

    def create(self, language: Optional[str] = None, *, cwd: Optional[str] = None, env: Optional[Mapping[str, str]] = None,
                     idempotency_key: Optional[str] = None) -> Context:
        """Starts a language kernel (python, node or bash; default: python). The context is ready
        when this returns."""
        call = Call("POST", self._path(), json=without_none(language=language, cwd=cwd, env=None if env is None else dict(env)),
                    headers={"Idempotency-Key": idempotency_key or fresh_key()})
        return Context(self._http, self._http.get(ContextInfo, call))

    def connect(self, id: str) -> Context:
        """A handle of an existing context."""
        return Context(self._http, self._http.get(ContextInfo, Call("GET", self._path(id))))

    def list(self) -> List[ContextInfo]:
        """The contexts of the sandbox, the oldest first."""
        return [decode(ContextInfo, item) for item in (self._http.json(Call("GET", self._path())))["items"]]


class Context:
    """One language kernel. Its executions run one after another, in the order in which they were
    sent.

    Leaving the block ends the context and discards its state; the sandbox continues.
    """

    def __init__(self, http: HTTP, info: ContextInfo) -> None:
        self._http = http
        self.info = info
        """The latest answer of the server; `refresh()` updates it."""

    @property
    def id(self) -> str:
        return self.info.id

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id} {self.info.language} {self.info.state}>"

    def __enter__(self) -> Context:
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        delete_on_exit(self.delete, error)

    def _path(self, *more: str) -> str:
        return path("v1", "sandboxes", self.info.sandbox_id, "contexts", self.id, *more)

    def _request_info(self, call: Call) -> ContextInfo:
        self.info = self._http.get(ContextInfo, call)
        return self.info

    # --- code ---

    def run(self, code: str, *, timeout: Optional[Duration] = None, output_bytes: Optional[int] = None, answer: Optional[Answer] = None,
                  idempotency_key: Optional[str] = None, on_stdout: Optional[OnText] = None, on_stderr: Optional[OnText] = None,
                  on_result: Optional[OnResult] = None) -> Result:
        """Runs code and waits for its end. An exception in the code raises nothing here: look at
        `result.exception`, or call `result.check()`.

        Args:
            timeout: seconds from the moment at which the code leaves the queue. Then the code is
                interrupted; if that does not stop it, the language kernel is restarted.
            answer: called when the code asks for a line with `input()`; returns the line. Without
                it, the code reads the end of its input.
            on_stdout, on_stderr: called with each piece of text as it is written.
            on_result: called with each displayed value.
        """
        with self.stream(code, timeout=timeout, output_bytes=output_bytes, idempotency_key=idempotency_key) as stream:
            return stream.result(answer or no_answer, on_stdout=on_stdout, on_stderr=on_stderr, on_result=on_result)

    def stream(self, code: str, *, timeout: Optional[Duration] = None, output_bytes: Optional[int] = None,
               idempotency_key: Optional[str] = None) -> Stream:
        """Runs code and yields its events as they happen: output, displayed values, exceptions,
        input requests. The code starts when the first event is read."""
        return Stream(self._http, self.info.sandbox_id, StreamProgress(), self._execute(code, timeout, output_bytes, idempotency_key, {}, NDJSON))

    def start(self, code: str, *, timeout: Optional[Duration] = None, output_bytes: Optional[int] = None,
                    idempotency_key: Optional[str] = None) -> Execution:
        """Queues code and returns immediately."""
        call = self._execute(code, timeout, output_bytes, idempotency_key, {"background": True}, "application/json")
        return Execution(self._http, self.info.sandbox_id, (self._http.get(ExecutionInfo, call)).id, fresh=True)

    def _execute(self, code: str, timeout: Optional[Duration], output_bytes: Optional[int], key: Optional[str], more: Dict[str, Any],
                 accept: str) -> Call:
        body = {"code": code, **without_none(timeoutMs=None if timeout is None else milliseconds(timeout), outputBytes=output_bytes), **more}
        return Call("POST", self._path("execute"), json=body, headers={"Idempotency-Key": key or fresh_key(), "Accept": accept})

    def complete(self, code: str, cursor: Optional[int] = None) -> Completions:
        """Completions at the cursor. The cursor counts characters; default: the end of the code.
        The context must be idle."""
        return self._http.get(Completions, self._question("complete", code, cursor))

    def inspect(self, code: str, cursor: Optional[int] = None) -> Inspection:
        """Documentation of the object at the cursor. The context must be idle."""
        return self._http.get(Inspection, self._question("inspect", code, cursor))

    def _question(self, what: str, code: str, cursor: Optional[int]) -> Call:
        return Call("POST", self._path(what), json={"code": code, "cursor": len(code) if cursor is None else cursor})

    # --- lifecycle ---

    def refresh(self) -> ContextInfo:
        """Asks the server for the current state. `info` of a dead context says why it died."""
        return self._request_info(Call("GET", self._path()))

    def interrupt(self) -> ContextInfo:
        """Interrupts the running code, as Ctrl-C would. `outcome` says whether the state was kept
        or the language kernel had to be killed."""
        return self._request_info(Call("POST", self._path("interrupt")))

    def restart(self) -> ContextInfo:
        """Starts a fresh language kernel. Code that runs or waits in the context is discarded."""
        return self._request_info(Call("POST", self._path("restart"), repeatable=False))

    def fork(self, *, idempotency_key: Optional[str] = None) -> Context:
        """Creates another context with a copy of the live state: variables, modules, open files.
        Afterwards the two are independent.

        Works only for an idle Python context whose interpreter runs no threads of its own;
        ForkUnsupportedError names the threads.
        """
        call = Call("POST", self._path("fork"), headers={"Idempotency-Key": idempotency_key or fresh_key()})
        return Context(self._http, self._http.get(ContextInfo, call))

    def delete(self) -> ContextInfo:
        """Ends the context and discards its state."""
        return self._request_info(Call("DELETE", self._path()))
