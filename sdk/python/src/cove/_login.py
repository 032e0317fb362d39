"""The login that `cove login` keeps: one server, its credential and the authority to trust, in a
file of the user.

The file holds a secret, so it is read only if the user owns it and no other user can read it; it is
written under another name first. The token of an identity provider is renewed here as `cove` renews
it (src/client/oauth.c), and the file keeps its format. There is no lock: the file is read again
before a renewal, so a token that another program has renewed meanwhile is used.
"""
from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import stat
import threading
import time
from typing import Any, Dict, Mapping, Optional, Tuple
from urllib.parse import urlencode, urlsplit

from ._error import CoveError
from .errors import ConnectionLostError, ProtocolError, ServerUnreachableError, UnauthorizedError

FILE_MAX = 64 << 10
PROVIDER_ANSWER_MAX = 256 << 10
EARLY = 30.0
"""Seconds before its expiry at which a token is renewed."""
PATIENCE = 30.0
SAFE_HOSTS = ("localhost", "127.0.0.1", "::1")


@dataclasses.dataclass(frozen=True)
class Login:
    url: str
    key: str = dataclasses.field(repr=False)
    cacert: Optional[str] = None
    ends_at: float = 0.0
    """Seconds since 1970; 0: never, or not known."""
    fields: Mapping[str, Any] = dataclasses.field(default_factory=dict, repr=False)
    """The contents of the file."""

    @property
    def is_renewable(self) -> bool:
        return bool(self.ends_at) and all(isinstance(self.fields.get(name), str) for name in ("issuer", "clientId", "tokenUrl", "refresh"))

    def check(self) -> None:
        if self.ends_at and self.ends_at <= time.time() and not self.is_renewable:
            raise ValueError(ended(self.url))


def ended(url: str) -> str:
    return f"the login at {url} has expired; log in again with `cove login`"


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
        value = fields.get(name)
        return value if isinstance(value, kind) else None

    try:
        fields = json.loads(text)
    except ValueError:
        fields = None
    if not isinstance(fields, dict) or not of("url", str) or not of("key", str):
        raise ValueError(f"{path} was not written by cove login; log in again")
    return Login(fields["url"].rstrip("/"), fields["key"], of("cacert", str), (of("expiresMs", int) or 0) / 1000, fields)


def write_login(fields: Mapping[str, Any], environ: Mapping[str, str]) -> None:
    """Replaces the file atomically. Raises OSError if it cannot be written."""
    path = login_path(environ)
    assert path is not None
    fresh = f"{path}.{os.getpid()}"
    with contextlib.suppress(FileNotFoundError):
        os.unlink(fresh)
    fd = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0), 0o600)
    try:
        with open(fd, "w", encoding="utf-8") as f:
            json.dump(fields, f, indent=2)
        os.replace(fresh, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(fresh)
        raise


def is_safe(url: str) -> bool:
    """Whether a refresh token may be sent to this URL: https, or this machine."""
    parts = urlsplit(url)
    return parts.scheme == "https" or parts.scheme == "http" and parts.hostname in SAFE_HOSTS and "@" not in parts.netloc


def ask_provider(url: str, form: Dict[str, str]) -> Dict[str, Any]:
    """The answer of the identity provider to a refresh token. Raises UnauthorizedError if the
    provider refuses it."""
    if not is_safe(url):
        raise ProtocolError(f"{url} is not safe for renewing a login: it must begin with https://")
    status, content = post_form(url, form)
    if status != 200:
        raise UnauthorizedError(f"{url} answered with status {status}")
    try:
        fields = json.loads(content)
    except ValueError:
        fields = None
    if not isinstance(fields, dict) or not isinstance(fields.get("access_token"), str) or not fields["access_token"] or \
            str(fields.get("token_type")).lower() != "bearer":
        raise ProtocolError(f"{url} answered without a bearer token")
    return fields


def post_form(url: str, form: Dict[str, str]) -> Tuple[int, bytes]:
    from ._settings import Retry, Settings
    from ._sync._connection import Connections

    parts = urlsplit(url)
    connections = Connections(Settings(f"{parts.scheme}://{parts.netloc}", None, None, PATIENCE, Retry()))
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    headers = {"Accept": "application/json", "Accept-Encoding": "identity", "Connection": "close", "Content-Type": "application/x-www-form-urlencoded"}
    content = b""
    try:
        response = connections.request("POST", target, headers, urlencode(form).encode(), PATIENCE)
        try:
            for piece in iter(response.piece, None):
                content += piece
                if len(content) > PROVIDER_ANSWER_MAX:
                    raise ProtocolError(f"the answer of {url} is too large")
        finally:
            response.close()
    except (ConnectionLostError, ServerUnreachableError) as error:
        raise ServerUnreachableError(error.message) from error
    return response.status, content


class LoginSession:
    """The token of a login, for a client that outlives the token. Its methods are thread-safe."""

    def __init__(self, login: Login, environ: Mapping[str, str]) -> None:
        self._login, self._environ = login, dict(environ)
        self._lock = threading.Lock()
        self._is_kept = True  # the file still has this login: it was neither replaced nor removed

    @property
    def key(self) -> str:
        return self._login.key

    def is_due(self) -> bool:
        return self._login.ends_at - EARLY <= time.time()

    def renew(self) -> None:
        """Replaces a token that is about to expire, here and in the file. Blocks. Raises
        UnauthorizedError if the user must log in again."""
        with self._lock:
            self._take_from_file()
            if not self.is_due():
                return
            try:
                self._ask()
            except UnauthorizedError:
                raise UnauthorizedError(ended(self._login.url)) from None
            except CoveError:
                if self._login.ends_at <= time.time():  # otherwise the next request tries again
                    raise

    def _take_from_file(self) -> None:
        self._is_kept = False
        with contextlib.suppress(ValueError):
            found = read_login(self._environ)
            if found is None or found.url != self._login.url or not found.is_renewable:
                return
            if found.ends_at > self._login.ends_at:
                self._login = found
            self._is_kept = found.fields["refresh"] == self._login.fields["refresh"]

    def _ask(self) -> None:
        fields = dict(self._login.fields)
        answer = ask_provider(fields["tokenUrl"], {"grant_type": "refresh_token", "refresh_token": fields["refresh"], "client_id": fields["clientId"]})
        fields["key"] = answer["access_token"]
        if isinstance(answer.get("refresh_token"), str) and answer["refresh_token"]:
            fields["refresh"] = answer["refresh_token"]
        lasts = answer.get("expires_in")
        seconds = min(lasts, 365 * 86400) if isinstance(lasts, int) and lasts > 0 else 300
        fields["expiresMs"] = int((time.time() + seconds) * 1000)
        if not all("!" <= c <= "~" for c in fields["key"]):
            raise ProtocolError(f"{fields['tokenUrl']} returned a token with a character that is not allowed in a token")
        self._login = dataclasses.replace(self._login, key=fields["key"], ends_at=fields["expiresMs"] / 1000, fields=fields)
        if self._is_kept:
            with contextlib.suppress(OSError):  # the token is still valid for this process
                write_login(fields, self._environ)
