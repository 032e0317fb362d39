"""`cove.execute`, `cove.calculate`, and their client: one per process, made at its first use."""
from __future__ import annotations

import atexit
import functools
import inspect
import os
import threading
from typing import TYPE_CHECKING, Callable, Optional, TypeVar

from ._sync.client import Cove

if TYPE_CHECKING:
    from typing_extensions import Concatenate, ParamSpec

    P = ParamSpec("P")
R = TypeVar("R")

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


def _shared(method: Callable[Concatenate[Cove, P], R]) -> Callable[P, R]:
    """A method of the shared client as a function with the other arguments of the method."""
    @functools.wraps(method)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        return method(client(), *args, **kwargs)

    whole = inspect.signature(method)
    setattr(call, "__signature__", whole.replace(parameters=[*whole.parameters.values()][1:]))
    call.__module__, call.__qualname__ = "cove", method.__name__
    return call


execute = _shared(Cove.execute)
execute.__doc__ = """Runs code, or a command, in a fresh sandbox that is removed afterwards.

        print(cove.execute("6 * 7").text)

    The server is that of COVE_URL and COVE_API_KEY, or of this machine. The arguments are those of
    `Cove.execute`. Threads and forked processes can call this at any time.
    """

calculate = _shared(Cove.calculate)
calculate.__doc__ = """Computes a formula, or a short problem in English words, exactly and without a sandbox.

        print(cove.calculate("1/3 + 1/6").fraction)

    The server is that of `cove.execute`. The arguments are those of `Cove.calculate`.
    """
