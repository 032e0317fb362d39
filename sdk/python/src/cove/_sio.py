"""What the sync half of the package waits with. `_aio.py` has the same names for the other half."""
from __future__ import annotations

import contextlib
import time
from typing import Any, Callable, ContextManager, Generator, Iterator, TypeVar

import httpx

from ._local import body_of as body_of

T = TypeVar("T")
ByteStream = Generator[bytes, None, None]
HTTPClient = httpx.Client
HTTPTransport = httpx.HTTPTransport
sleep = time.sleep


def shielded() -> ContextManager[None]:
    return contextlib.nullcontext()


def blocking(function: Callable[..., T], *args: Any) -> T:
    return function(*args)


def pieces(source: Any) -> Iterator[bytes]:
    return iter(source)
