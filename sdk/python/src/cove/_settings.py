"""Where the server is and as whom we speak to it: what the caller says, then the environment, then what
`cove login` kept, then the server of this machine."""
from __future__ import annotations

import dataclasses
import ipaddress
import os
import ssl
from typing import Dict, Mapping, Optional
from urllib.parse import urlsplit

from ._login import LoginSession, read_login

SOCKET = "/run/cove/api.sock"
"""Of root's server; those of others are in places of their own."""
URL = "http://127.0.0.1:8700"


@dataclasses.dataclass(frozen=True)
class Retry:
    """How long a request is repeated that the server refused for the moment, or whose connection broke.

    Pauses double from `first` to `longest` seconds, or are as long as the server asks for; `window` seconds after the first
    failure the error is raised. Only what may be repeated is: what reads, what sets a state, and what carries an
    idempotency key. `Retry(window=0)` repeats nothing.
    """

    window: float = 90.0
    first: float = 0.1
    longest: float = 5.0
    unknown: float = 2.0
    """The window as long as this server has never answered: a wrong address is told soon."""


@dataclasses.dataclass(frozen=True)
class Settings:
    url: str
    api_key: Optional[str]
    socket: Optional[str]
    timeout: float
    retry: Retry
    cacert: Optional[str] = None
    login: Optional[LoginSession] = None
    """Of a token that an issuer gave, which is renewed; `api_key` is the token of the beginning then."""

    @property
    def bearer(self) -> Optional[str]:
        return self.login.key if self.login is not None else self.api_key

    def trust(self) -> ssl.SSLContext:
        """Whose signature under the server's certificate counts: the authority that was named, or those of this machine."""
        return ssl.create_default_context(cafile=self.cacert)

    @property
    def where(self) -> str:
        return self.socket or self.url

    @property
    def local(self) -> bool:
        return self.socket is not None or is_local(self.url)

    def headers(self) -> Dict[str, str]:
        from . import __version__

        found = {"User-Agent": f"cove-python/{__version__}", "Accept-Encoding": "identity"}
        if self.bearer:
            found["Authorization"] = f"Bearer {self.bearer}"
        return found


def is_local(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def find_socket(environ: Mapping[str, str]) -> Optional[str]:
    """As `cove serve` chooses it: root's own place, and for others theirs before root's."""
    own = []
    if hasattr(os, "geteuid") and os.geteuid() != 0:
        own = [os.path.join(base, rest) for base, rest in ((environ.get("XDG_RUNTIME_DIR") or "", "cove/api.sock"),
                                                           (environ.get("XDG_STATE_HOME") or "", "cove/run/api.sock"),
                                                           (environ.get("HOME") or "", ".local/state/cove/run/api.sock")) if os.path.isabs(base)]
    return next((place for place in [*own, SOCKET] if os.access(place, os.W_OK)), None)


def resolve(url: Optional[str], api_key: Optional[str], socket: Optional[str], timeout: float, retry: Optional[Retry],
            insecure: bool, environ: Mapping[str, str], cacert: Optional[str] = None) -> Settings:
    if url is not None and socket is not None:
        raise ValueError("url and socket do not go together: give one of them")
    key = api_key if api_key is not None else environ.get("COVE_API_KEY") or None
    authority = cacert if cacert is not None else environ.get("COVE_CACERT") or None
    session = None
    if socket is None:
        url = (url or environ.get("COVE_URL") or "").rstrip("/") or None
        kept = read_login(environ) if url is None or key is None else None
        url = url or (kept.url if kept else None)
        if kept is not None and url == kept.url:  # a key goes to no other server than its own
            if key is None:
                kept.check()
                key = kept.key
                session = LoginSession(kept, environ) if kept.is_renewable else None
            authority = authority if authority is not None else kept.cacert
        socket = find_socket(environ) if url is None else None
    if socket is not None:
        url = "http://localhost"
    url = (url or URL).rstrip("/")
    if urlsplit(url).scheme not in ("http", "https") or not urlsplit(url).hostname:
        raise ValueError(f"{url!r} is no URL of a server: it begins with http:// or https:// and names a host")
    if key and not all("!" <= c <= "~" for c in key):
        raise ValueError("the API key holds a character that no key has")
    if key and url.startswith("http://") and not is_local(url) and not insecure:
        raise ValueError(f"the API key would cross the network in the clear to {url}; use https://, or say insecure=True if the way there is safe")
    if authority and not os.access(authority, os.R_OK):
        raise ValueError(f"the authority's certificate {authority!r} cannot be read")
    return Settings(url, key or None, socket, timeout, retry or Retry(), authority or None, session)
