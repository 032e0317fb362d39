"""The state of a socket, for both halves of the package."""
from __future__ import annotations

import select
from typing import Any


def is_readable(sock: Any, timeout: float = 0.0) -> bool:
    """Whether a socket has bytes or has ended, after at most `timeout` seconds."""
    if not hasattr(select, "poll"):
        return bool(select.select([sock], [], [], timeout)[0])
    poll = select.poll()
    poll.register(sock, select.POLLIN)
    return bool(poll.poll(timeout * 1000))
