"""Tenants, their users and roles, and the keys."""
from __future__ import annotations

import datetime
from typing import Any, AsyncIterator, Dict, Optional, Sequence

from .._call import Call, path
from .._json import camel, encode, time_text, without_none
from ..errors import NotFoundError
from ..models import ApiKey, ApiKeySecret
from ..tenants import Budget, BudgetBounds, Quota, Role, Tenant, User
from ._http import AsyncHTTP


class AsyncKeys:
    """The API keys of a server."""

    def __init__(self, http: AsyncHTTP) -> None:
        self._http = http

    async def create(self, name: str, scopes: Optional[Sequence[str]] = None, *, expires_at: Optional[datetime.datetime] = None,
                     user: Optional[str] = None, tenant: Optional[str] = None) -> ApiKeySecret:
        """Creates a key. Only this answer contains the secret.

        Args:
            scopes: the permissions of the key. For the key of a user they may be omitted: the key
                then has all permissions of the role.
            user: the id of the user of the key; default: the user that creates it.
            tenant: another tenant; for the operator.
        """
        body: Dict[str, Any] = {"name": name, **without_none(user=user, tenant=tenant)}
        if scopes is not None:
            body["scopes"] = [*scopes]
        if expires_at is not None:
            body["expiresAt"] = time_text(expires_at)
        return await self._http.get(ApiKeySecret, Call("POST", path("v1", "keys"), json=body, repeatable=False))

    async def list(self) -> AsyncIterator[ApiKey]:
        async for key in self._http.pages(ApiKey, Call("GET", path("v1", "keys"))):
            yield key

    async def get(self, id: str) -> ApiKey:
        return await self._http.get(ApiKey, Call("GET", path("v1", "keys", id)))

    async def revoke(self, id: str) -> None:
        """Revokes the key immediately."""
        await self._http.send(Call("DELETE", path("v1", "keys", id), done_if=(NotFoundError,)))

    async def rotate(self, id: str) -> ApiKeySecret:
        """Replaces the secret of the key; the old secret is revoked."""
        return await self._http.get(ApiKeySecret, Call("POST", path("v1", "keys", id, "rotate"), repeatable=False))


class AsyncTenants:
    """The tenants of a server, for its operator. Needs the scope `admin`."""

    def __init__(self, http: AsyncHTTP) -> None:
        self._http = http

    async def create(self, name: str, *, quota: Optional[Quota] = None) -> Tenant:
        """Creates a tenant. The name of a removed tenant cannot be used again."""
        body = {"name": name, **without_none(quota=None if quota is None else encode(quota))}
        return await self._http.get(Tenant, Call("POST", path("v1", "tenants"), json=body, repeatable=False))

    async def list(self) -> AsyncIterator[Tenant]:
        """All tenants by name, including removed ones."""
        async for tenant in self._http.pages(Tenant, Call("GET", path("v1", "tenants"))):
            yield tenant

    async def get(self, name: str) -> Tenant:
        return await self._http.get(Tenant, Call("GET", path("v1", "tenants", name)))

    async def update(self, name: str, *, suspended: Optional[bool] = None, quota: Optional[Quota] = None, unbound: Sequence[str] = ()) -> Tenant:
        """Changes the given fields only.

        Args:
            suspended: True ends everything that runs in the tenant and refuses every request; False
                allows requests again.
            quota: new limits; limits of None do not change.
            unbound: names of limits to remove, such as "memory_bytes".
        """
        bounds: Dict[str, Any] = {**({} if quota is None else encode(quota)), **{camel(bound): None for bound in unbound}}
        body = without_none(suspended=suspended, quota=bounds or None)
        return await self._http.get(Tenant, Call("PATCH", path("v1", "tenants", name), json=body))

    async def remove(self, name: str) -> None:
        """Ends everything that runs in the tenant, revokes its keys, and deletes its users and
        roles. Its records stay until their retention is over."""
        await self._http.send(Call("DELETE", path("v1", "tenants", name), done_if=(NotFoundError,)))

    async def budget(self, name: str) -> Budget:
        """The limits of the tenant per day and month, and its usage. A tenant can read its own
        budget with the scope `usage`."""
        return await self._http.get(Budget, Call("GET", path("v1", "tenants", name, "budget")))

    async def set_budget(self, name: str, *, day: Optional[BudgetBounds] = None, month: Optional[BudgetBounds] = None) -> Budget:
        """Replaces the whole budget: a limit that is omitted is removed."""
        body = without_none(day=None if day is None else encode(day), month=None if month is None else encode(month))
        return await self._http.get(Budget, Call("PUT", path("v1", "tenants", name, "budget"), json=body))


class AsyncUsers:
    """The users of a tenant; `tenant` names another tenant and is for the operator. Needs the scope
    `tenant`."""

    def __init__(self, http: AsyncHTTP) -> None:
        self._http = http

    async def create(self, name: str, role: str, *, tenant: Optional[str] = None) -> User:
        """Adds a user. The role may allow no more than the caller's own permissions."""
        body = {"name": name, "role": role, **without_none(tenant=tenant)}
        return await self._http.get(User, Call("POST", path("v1", "users"), json=body, repeatable=False))

    async def list(self, *, tenant: Optional[str] = None) -> AsyncIterator[User]:
        """All users, the newest first."""
        async for user in self._http.pages(User, Call("GET", path("v1", "users"), {"tenant": tenant})):
            yield user

    async def get(self, id: str) -> User:
        return await self._http.get(User, Call("GET", path("v1", "users", id)))

    async def update(self, id: str, *, name: Optional[str] = None, role: Optional[str] = None, disabled: Optional[bool] = None) -> User:
        """Changes the given fields, with effect from the next request on."""
        return await self._http.get(User, Call("PATCH", path("v1", "users", id), json=without_none(name=name, role=role, disabled=disabled)))

    async def remove(self, id: str) -> None:
        """Removes a user and revokes the user's keys; objects that the user made stay with the
        tenant."""
        await self._http.send(Call("DELETE", path("v1", "users", id), done_if=(NotFoundError,)))


class AsyncRoles:
    """Roles are lists of permissions for users; `tenant` is as in users. Needs the scope
    `tenant`."""

    def __init__(self, http: AsyncHTTP) -> None:
        self._http = http

    async def create(self, name: str, permissions: Sequence[str], *, tenant: Optional[str] = None) -> Role:
        """Creates a role. A role cannot be changed afterwards."""
        body = {"name": name, "permissions": [*permissions], **without_none(tenant=tenant)}
        return await self._http.get(Role, Call("POST", path("v1", "roles"), json=body, repeatable=False))

    async def list(self, *, tenant: Optional[str] = None) -> AsyncIterator[Role]:
        """All roles, the built-in ones first."""
        async for role in self._http.pages(Role, Call("GET", path("v1", "roles"), {"tenant": tenant})):
            yield role

    async def get(self, name: str, *, tenant: Optional[str] = None) -> Role:
        return await self._http.get(Role, Call("GET", path("v1", "roles", name), {"tenant": tenant}))

    async def remove(self, name: str, *, tenant: Optional[str] = None) -> None:
        """Removes a role. A role that a user has cannot be removed."""
        await self._http.send(Call("DELETE", path("v1", "roles", name), {"tenant": tenant}, done_if=(NotFoundError,)))
