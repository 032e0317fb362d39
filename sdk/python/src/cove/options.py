"""The options of one execution, as the server reads them."""
from __future__ import annotations

from typing import Any, Dict, List, Mapping, Optional, Sequence, Union

from ._json import Duration, milliseconds, without_none


def run_body(timeout: Optional[Duration], cpu_time: Optional[Duration], env: Optional[Mapping[str, str]], cwd: Optional[str], stdin: Optional[str],
             stdin_open: Optional[bool], output_bytes: Optional[int], changes: Optional[bool]) -> Dict[str, Any]:
    return without_none(timeoutMs=None if timeout is None else milliseconds(timeout), cpuTimeMs=None if cpu_time is None else milliseconds(cpu_time),
                        env=None if env is None else dict(env), cwd=cwd, stdin=stdin, stdinOpen=stdin_open, outputBytes=output_bytes, changes=changes)


def argv_of(command: Union[str, Sequence[str]]) -> List[str]:
    """The argument list of a command: a text runs in a shell, a list runs as it is."""
    return ["sh", "-c", command] if isinstance(command, str) else list(command)


def terminal_of(command: Union[str, Sequence[str], None], rows: int, cols: int) -> Dict[str, Any]:
    return {"tty": True, "rows": rows, "cols": cols, **({} if command is None else {"command": argv_of(command)})}
