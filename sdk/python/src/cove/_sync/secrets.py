# Written by tools/unasync.py from _async/secrets.py: change that.
"""The secrets of a tenant: values that sandboxes use without seeing them."""
from __future__ import annotations

from typing import Iterator, Optional, Sequence

from .._call import Call, path
from .._json import without_none
from ..errors import NotFoundError
from ..models import Secret
from ._http import HTTP


class Secrets:
    """Values that the egress proxy adds to requests of a sandbox. No answer holds a value. Needs
    the scope `secrets`."""

    def __init__(self, http: HTTP) -> None:
        self._http = http

    def set(self, name: str, value: str, *, hosts: Optional[Sequence[str]] = None) -> Secret:
        """Creates a secret, or replaces its value.

        Args:
            name: lower-case letters, digits, "-" and "_"; code in a sandbox calls
                http://NAME.secret.cove/.
            value: printable ASCII, 8 to 1024 characters.
            hosts: the hosts that sandboxes may send it to; () is every host. None keeps those that
                the secret has.
        """
        body = without_none(value=value, hosts=None if hosts is None else list(hosts))
        return self._http.get(Secret, Call("PUT", path("v1", "secrets", name), json=body))

    def get(self, name: str) -> Secret:
        """A secret without its value."""
        return self._http.get(Secret, Call("GET", path("v1", "secrets", name)))

    def list(self) -> Iterator[Secret]:
        """All secrets of the tenant, newest first."""
        for secret in self._http.pages(Secret, Call("GET", path("v1", "secrets"))):
            yield secret

    def delete(self, name: str) -> None:
        """Removes a secret. Sandboxes that are bound to it keep it until their network changes."""
        self._http.send(Call("DELETE", path("v1", "secrets", name), done_if=(NotFoundError,)))
