"""`cove.execute`, and its client: one in each process, made when it is first used."""
from __future__ import annotations

import atexit
import os
import threading
from typing import Any, Mapping, Optional, Sequence, Union

from ._json import Duration, Size
from ._sync.client import Cove
from ._sync.execution import OnResult, OnText
from .models import Resources
from .options import Content
from .result import Result

_lock = threading.Lock()
_client: Optional[Cove] = None


def client() -> Cove:
    """The shared client, which finds its server as `Cove()` does."""
    global _client
    with _lock:
        if _client is None:
            _client = Cove()
        return _client


def _close() -> None:
    global _client
    with _lock:
        closing, _client = _client, None
    if closing is not None:
        closing.close()


def _forget() -> None:
    """In a forked child: the connections and the state of the lock belong to the parent. Closing
    the child's descriptors does not end the connections of the parent."""
    global _lock, _client
    inherited, _lock, _client = _client, threading.Lock(), None
    if inherited is not None:
        inherited.close()


atexit.register(_close)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)


def execute(code: Optional[str] = None, *, command: Union[str, Sequence[str], None] = None, language: Optional[str] = None,
            template: Optional[str] = None, files: Optional[Mapping[str, Content]] = None, outputs: Sequence[str] = (),
            stdin: Optional[str] = None, env: Optional[Mapping[str, str]] = None, cwd: Optional[str] = None,
            timeout: Optional[Duration] = None, output_bytes: Optional[int] = None, level: Optional[str] = None,
            policy: Optional[Mapping[str, Any]] = None, memory: Optional[Size] = None, disk: Optional[Size] = None,
            cpus: Optional[float] = None, pids: Optional[int] = None, resources: Optional[Resources] = None,
            cache: Optional[bool] = None, on_stdout: Optional[OnText] = None, on_stderr: Optional[OnText] = None,
            on_result: Optional[OnResult] = None) -> Result:
    """Runs code, or a command, in a fresh sandbox that is removed afterwards.

        print(cove.execute("6 * 7").text)

    The server is that of COVE_URL and COVE_API_KEY, or of this machine. The arguments are those of
    `Cove.execute`. Threads and forked processes can call this at any time.
    """
    return client().execute(code, command=command, language=language, template=template, files=files, outputs=outputs, stdin=stdin, env=env, cwd=cwd,
                            timeout=timeout, output_bytes=output_bytes, level=level, policy=policy, memory=memory, disk=disk,
                            cpus=cpus, pids=pids, resources=resources, cache=cache, on_stdout=on_stdout, on_stderr=on_stderr, on_result=on_result)
