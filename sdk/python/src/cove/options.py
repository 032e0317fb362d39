"""The options of an execution, as the server reads them."""
from __future__ import annotations

import base64
from typing import Any, Dict, List, Mapping, Optional, Sequence, Union

from ._json import Duration, encode, milliseconds, without_none
from .models import Resources

Content = Union[str, bytes]


def run_body(timeout: Optional[Duration], cpu_time: Optional[Duration], env: Optional[Mapping[str, str]], cwd: Optional[str], stdin: Optional[str],
             stdin_open: Optional[bool], output_bytes: Optional[int], changes: Optional[bool]) -> Dict[str, Any]:
    return without_none(timeoutMs=None if timeout is None else milliseconds(timeout), cpuTimeMs=None if cpu_time is None else milliseconds(cpu_time),
                        env=None if env is None else dict(env), cwd=cwd, stdin=stdin, stdinOpen=stdin_open, outputBytes=output_bytes, changes=changes)


def code_of(code: str, language: Optional[str], isolated: Optional[bool]) -> Dict[str, Any]:
    return {"code": code, **without_none(language=language, isolated=isolated)}


def argv_of(command: Union[str, Sequence[str]]) -> List[str]:
    """The argument list of a command: a text runs in a shell, a list runs as it is."""
    return ["sh", "-c", command] if isinstance(command, str) else list(command)


def terminal_of(command: Union[str, Sequence[str], None], rows: int, cols: int) -> Dict[str, Any]:
    return {"tty": True, "rows": rows, "cols": cols, **({} if command is None else {"command": argv_of(command)})}


def file_of(name: str, content: Content) -> Dict[str, str]:
    if isinstance(content, str):
        return {"path": name, "content": content}
    return {"path": name, "contentBase64": base64.b64encode(content).decode()}


def execute_body(code: Optional[str], command: Union[str, Sequence[str], None], files: Optional[Mapping[str, Content]], outputs: Sequence[str],
                 env: Optional[Mapping[str, str]], timeout: Optional[Duration], resources: Optional[Resources], **more: Any) -> Dict[str, Any]:
    """The server requires exactly one of `code` and `command`, and refuses other combinations."""
    return without_none(code=code, command=command if command is None or isinstance(command, str) else [*command],
                        files=[file_of(name, content) for name, content in files.items()] if files else None, outputs=[*outputs] or None,
                        env=None if env is None else dict(env), timeoutMs=None if timeout is None else milliseconds(timeout),
                        resources=None if resources is None else encode(resources), **more)
