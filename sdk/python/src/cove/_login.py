"""The login that `cove login` keeps: one server, its credential and the authority to trust, in a
file of the user.

The file holds a secret, so it is read only if the user owns it and no other user can read it. It is
never written here: `cove` renews an expired token, because it has the data that the identity
provider requires.
"""
from __future__ import annotations

import dataclasses
import json
import os
import stat
import time
from typing import Any, Mapping, Optional

FILE_MAX = 64 << 10


@dataclasses.dataclass(frozen=True)
class Login:
    url: str
    key: str = dataclasses.field(repr=False)
    cacert: Optional[str] = None
    ends_at: float = 0.0
    """Seconds since 1970; 0: never, or not known."""

    def check(self) -> None:
        if self.ends_at and self.ends_at <= time.time():
            raise ValueError(f"the login at {self.url} has expired; run `cove whoami` to renew it, or `cove login` to log in again")


def login_path(environ: Mapping[str, str]) -> Optional[str]:
    config, home = environ.get("XDG_CONFIG_HOME") or "", environ.get("HOME") or ""
    if os.path.isabs(config):
        return os.path.join(config, "cove/login.json")
    return os.path.join(home, ".config/cove/login.json") if os.path.isabs(home) else None


def read_login(environ: Mapping[str, str]) -> Optional[Login]:
    """The kept login; None: the user is not logged in."""
    path = login_path(environ)
    if path is None:
        return None
    try:
        fd = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error}") from error
    with open(fd, "rb") as f:
        about = os.fstat(fd)
        if hasattr(os, "geteuid") and (about.st_uid != os.geteuid() or about.st_mode & 0o077 or not stat.S_ISREG(about.st_mode)):
            raise ValueError(f"{path} holds a key and other users can read it; run chmod 600 on it, or log in again")
        return parse_login(f.read(FILE_MAX), path)


def parse_login(text: bytes, path: str) -> Login:
    def of(name: str, kind: Any) -> Any:
        value = told.get(name)
        return value if isinstance(value, kind) else None

    try:
        told = json.loads(text)
    except ValueError:
        told = None
    if not isinstance(told, dict) or not of("url", str) or not of("key", str):
        raise ValueError(f"{path} was not written by cove login; log in again")
    return Login(told["url"].rstrip("/"), told["key"], of("cacert", str), (of("expiresMs", int) or 0) / 1000)
