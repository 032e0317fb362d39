"""What can be said about one execution."""
from __future__ import annotations

from typing import Any, Dict, List, Mapping, Sequence, TypedDict, Union

from ._json import Duration, milliseconds


class RunOptions(TypedDict, total=False):
    """The keyword arguments of run_code and run_command."""

    timeout: Duration
    """Seconds on the wall. Then it and everything it started is killed, and `ended_by` is "wall"."""
    cpu_time: Duration
    """Seconds of processor time, of it and all that it starts."""
    env: Mapping[str, str]
    """Variables beside those of the sandbox."""
    cwd: str
    """Absolute, or relative to /workspace."""
    stdin: str
    """What it reads from standard input; without it there is nothing to read."""
    output_bytes: int
    """How much output is kept, both streams together; the rest is counted and dropped."""
    changes: bool
    """Let the receipt tell what it changed below /workspace."""
    idempotency_key: str
    """Of your own choosing: the same execution is found again with it, even from another process."""


class StartOptions(RunOptions, total=False):
    """Those of stream_code, stream_command, start_code and start_command, which can write to it while it runs."""

    stdin_open: bool
    """Instead of `stdin`: `execution.write_stdin` writes it while the program runs."""


def run_body(options: StartOptions) -> Dict[str, Any]:
    names: Dict[str, str] = {"env": "env", "cwd": "cwd", "stdin": "stdin", "output_bytes": "outputBytes", "changes": "changes",
                             "stdin_open": "stdinOpen"}
    unknown = set(options) - set(StartOptions.__annotations__)
    if unknown:
        raise TypeError(f"there is no option {sorted(unknown)[0]!r}; there are {', '.join(StartOptions.__annotations__)}")
    body: Dict[str, Any] = {names[k]: v for k, v in options.items() if k in names and v is not None}
    for name, value in (("timeoutMs", options.get("timeout")), ("cpuTimeMs", options.get("cpu_time"))):
        if value is not None:
            body[name] = milliseconds(value)
    if "env" in body:
        body["env"] = dict(body["env"])
    return body


def wait_for_end(options: RunOptions) -> RunOptions:
    """The options of a call that waits for the end, and could not write meanwhile."""
    if "stdin_open" in options:
        raise TypeError("stdin_open goes with stream_* and start_*: nobody could write while this call waits")
    return options


def argv_of(command: Union[str, Sequence[str]]) -> List[str]:
    """A text is for a shell, words are for the program as they are."""
    return ["sh", "-c", command] if isinstance(command, str) else list(command)
