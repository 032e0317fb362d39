"""The secrets of a tenant: values that sandboxes use without seeing them."""
from __future__ import annotations

from typing import AsyncIterator

from .._call import Call, path
from ..errors import NotFoundError
from ..models import Secret
from ._http import AsyncHTTP


class AsyncSecrets:
    """Values that the egress proxy adds to requests of a sandbox. No answer holds a value. Needs
    the scope `secrets`."""

    def __init__(self, http: AsyncHTTP) -> None:
        self._http = http

    async def set(self, name: str, value: str) -> Secret:
        """Creates a secret, or replaces its value.

        Args:
            name: lower-case letters, digits, "-" and "_"; code in a sandbox calls
                http://NAME.secret.cove/.
            value: printable ASCII, 8 to 1024 characters.
        """
        return await self._http.get(Secret, Call("PUT", path("v1", "secrets", name), json={"value": value}))

    async def get(self, name: str) -> Secret:
        """A secret without its value."""
        return await self._http.get(Secret, Call("GET", path("v1", "secrets", name)))

    async def list(self) -> AsyncIterator[Secret]:
        """All secrets of the tenant, newest first."""
        async for secret in self._http.pages(Secret, Call("GET", path("v1", "secrets"))):
            yield secret

    async def delete(self, name: str) -> None:
        """Removes a secret. Sandboxes that are bound to it keep it until their network changes."""
        await self._http.send(Call("DELETE", path("v1", "secrets", name), done_if=(NotFoundError,)))
