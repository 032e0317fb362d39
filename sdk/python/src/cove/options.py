"""The options of one execution."""
from __future__ import annotations

from typing import Any, Dict, List, Mapping, Sequence, TypedDict, Union

from ._json import Duration, milliseconds


class RunOptions(TypedDict, total=False):
    """The keyword arguments of run_code and run_command."""

    timeout: Duration
    """Seconds of elapsed time. Then the program and every process that it started is killed, and
    `ended_by` is "timeout"."""
    cpu_time: Duration
    """Seconds of CPU time of the program and every process that it starts."""
    env: Mapping[str, str]
    """Variables in addition to those of the sandbox."""
    cwd: str
    """Absolute, or relative to /workspace."""
    stdin: str
    """The text of standard input; without it the input is empty."""
    output_bytes: int
    """Bytes of output that are kept, both streams together; the rest is counted and dropped."""
    changes: bool
    """Whether the receipt lists the changes below /workspace."""
    idempotency_key: str
    """Your own key: a second call with it finds the same execution, even from another process."""


class StartOptions(RunOptions, total=False):
    """The keyword arguments of stream_code, stream_command, start_code and start_command, which can
    write to the program while it runs."""

    stdin_open: bool
    """Instead of `stdin`: `execution.write_stdin` writes while the program runs."""


def run_body(options: StartOptions) -> Dict[str, Any]:
    names: Dict[str, str] = {"env": "env", "cwd": "cwd", "stdin": "stdin", "output_bytes": "outputBytes", "changes": "changes",
                             "stdin_open": "stdinOpen"}
    unknown = set(options) - set(StartOptions.__annotations__)
    if unknown:
        raise TypeError(f"unknown option {sorted(unknown)[0]!r}; the options are {', '.join(StartOptions.__annotations__)}")
    body: Dict[str, Any] = {names[k]: v for k, v in options.items() if k in names and v is not None}
    for name, value in (("timeoutMs", options.get("timeout")), ("cpuTimeMs", options.get("cpu_time"))):
        if value is not None:
            body[name] = milliseconds(value)
    if "env" in body:
        body["env"] = dict(body["env"])
    return body


def wait_for_end(options: RunOptions) -> RunOptions:
    """Checks the options of a call that waits for the end and therefore cannot write to the
    program."""
    if "stdin_open" in options:
        raise TypeError("stdin_open works with stream_* and start_* only: this call waits for the end and cannot write meanwhile")
    return options


def argv_of(command: Union[str, Sequence[str]]) -> List[str]:
    """The argument list of a command: a text runs in a shell, a list runs as it is."""
    return ["sh", "-c", command] if isinstance(command, str) else list(command)
