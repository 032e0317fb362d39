"""The address of the server and the credential: from the arguments, then from the environment, then
from `cove login`, then the server of this machine.
"""
from __future__ import annotations

import base64
import dataclasses
import functools
import os
from typing import TYPE_CHECKING, Dict, Mapping, Optional
from urllib.parse import unquote, urlsplit

from ._login import LoginSession, read_login

if TYPE_CHECKING:
    import ssl

SOCKET = "/run/cove/api.sock"
"""The socket of a server that runs as root; servers of other users have sockets in their own
directories.
"""
URL = "http://127.0.0.1:8700"


@dataclasses.dataclass(frozen=True)
class Retry:
    """How long a request is repeated after a temporary refusal or a broken connection.

    Pauses double from `first` to `longest` seconds, or last as long as the server asks for;
    `window` seconds after the first failure the error is raised. Only idempotent requests are
    repeated: reads, changes to a given state, and requests with an idempotency key.
    `Retry(window=0)` repeats nothing.
    """

    window: float = 90.0
    first: float = 0.1
    longest: float = 5.0
    unknown: float = 2.0
    """The window in seconds until the server has answered once, so that a wrong address is reported
    soon."""


@dataclasses.dataclass(frozen=True)
class Settings:
    url: str
    api_key: Optional[str]
    socket: Optional[str]
    timeout: float
    retry: Retry
    cacert: Optional[str] = None
    login: Optional[LoginSession] = None
    """The renewable token of an identity provider; `api_key` is then its first value."""

    @property
    def bearer(self) -> Optional[str]:
        return self.login.key if self.login is not None else self.api_key

    @functools.cached_property
    def trust(self) -> ssl.SSLContext:
        """The authorities whose signature on the server's certificate is accepted: the given one,
        or those of this machine. Reading them takes as long as many requests, so it is done once,
        and only for a server with TLS."""
        import ssl

        return ssl.create_default_context(cafile=self.cacert)

    def proxy(self) -> Optional[Proxy]:
        """The proxy that the environment names for this server, unless it is on this machine."""
        if self.local or not any(name.lower().endswith("_proxy") for name in os.environ):
            return None
        import urllib.request

        parts = urlsplit(self.url)
        proxies = urllib.request.getproxies()
        found = proxies.get(parts.scheme) or proxies.get("all")
        if not found or urllib.request.proxy_bypass(parts.hostname or ""):
            return None
        named = urlsplit(found if "://" in found else f"http://{found}")
        if named.scheme != "http" or not named.hostname:
            raise ValueError(f"{found!r}: is not a proxy that this package can use; name one with http:// in {parts.scheme}_proxy, or the host in no_proxy")
        headers = {}
        if named.username is not None:
            pair = f"{unquote(named.username)}:{unquote(named.password or '')}"
            headers["Proxy-Authorization"] = "Basic " + base64.b64encode(pair.encode()).decode()
        return Proxy(named.hostname, named.port or 80, headers)

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


@dataclasses.dataclass(frozen=True)
class Proxy:
    host: str
    port: int
    headers: Dict[str, str]


def is_local(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    if host in ("localhost", "127.0.0.1", "::1"):
        return True
    import ipaddress

    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def find_socket(environ: Mapping[str, str]) -> Optional[str]:
    """The socket in the order of `cove serve`: for root the system path, for other users their own
    path before the system path."""
    own = []
    if hasattr(os, "geteuid") and os.geteuid() != 0:
        own = [os.path.join(base, rest) for base, rest in ((environ.get("XDG_RUNTIME_DIR") or "", "cove/api.sock"),
                                                           (environ.get("XDG_STATE_HOME") or "", "cove/run/api.sock"),
                                                           (environ.get("HOME") or "", ".local/state/cove/run/api.sock")) if os.path.isabs(base)]
    return next((place for place in [*own, SOCKET] if os.access(place, os.W_OK)), None)


def resolve(url: Optional[str], api_key: Optional[str], socket: Optional[str], timeout: float, retry: Optional[Retry],
            insecure: bool, environ: Mapping[str, str], cacert: Optional[str] = None) -> Settings:
    if url is not None and socket is not None:
        raise ValueError("url and socket exclude each other: give one of them")
    key = api_key if api_key is not None else environ.get("COVE_API_KEY") or None
    authority = cacert if cacert is not None else environ.get("COVE_CACERT") or None
    session = None
    if socket is None:
        url = (url or environ.get("COVE_URL") or "").rstrip("/") or None
        kept = read_login(environ) if url is None or key is None else None
        url = url or (kept.url if kept else None)
        if kept is not None and url == kept.url:  # a key is sent to its own server only
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
        raise ValueError(f"{url!r} is not a server URL: it must begin with http:// or https:// and name a host")
    if key and not all("!" <= c <= "~" for c in key):
        raise ValueError("the API key contains a character that is not allowed in a key")
    if key and url.startswith("http://") and not is_local(url) and not insecure:
        raise ValueError(f"the API key would be sent unencrypted to {url}; use https://, or pass insecure=True if the network is trusted")
    if authority and not os.access(authority, os.R_OK):
        raise ValueError(f"cannot read the certificate of the authority, {authority!r}")
    return Settings(url, key or None, socket, timeout, retry or Retry(), authority or None, session)
