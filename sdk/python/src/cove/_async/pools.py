"""The warm pools of a server."""
from __future__ import annotations

from typing import Any, Dict, Optional, Sequence

from .._call import Call, path
from .._json import Duration, decode, encode, milliseconds, without_none
from ..errors import NotFoundError
from ..pools import Pool, PoolScaling, PoolStatus, PoolZygote
from ._http import AsyncHTTP


def settings(template: Optional[str], min: Optional[int], max: Optional[int], ttl: Optional[Duration], max_age: Optional[Duration],
             autoscale: Optional[PoolScaling], zygote: Optional[PoolZygote], recycle: Optional[bool]) -> Dict[str, Any]:
    return without_none(template=template, min=min, max=max, recycle=recycle, ttlMs=None if ttl is None else milliseconds(ttl),
                        maxAgeMs=None if max_age is None else milliseconds(max_age),
                        autoscale=None if autoscale is None else encode(autoscale), zygote=None if zygote is None else encode(zygote))


class AsyncPools:
    """Sandboxes that are prepared before they are requested. Changing pools needs the scope
    `pools:write`."""

    def __init__(self, http: AsyncHTTP) -> None:
        self._http = http

    async def create(self, name: str, template: str, *, min: Optional[int] = None, max: Optional[int] = None, ttl: Optional[Duration] = None,
                     max_age: Optional[Duration] = None, autoscale: Optional[PoolScaling] = None, zygote: Optional[PoolZygote] = None,
                     recycle: Optional[bool] = None) -> Pool:
        """Creates a pool of a template. Returns before the pool has members.

        Args:
            min: the least number of members.
            max: the greatest number of members.
            ttl: seconds after which an unclaimed member beyond `min` is removed; 0 is never.
            max_age: seconds after which a member is replaced; 0 is never.
            recycle: whether a sandbox that `client.execute` has used is reset and kept for the same
                tenant.
        """
        body = {"name": name, **settings(template, min, max, ttl, max_age, autoscale, zygote, recycle)}
        return await self._http.get(Pool, Call("POST", path("v1", "pools"), json=body))

    async def put(self, name: str, template: str, *, min: Optional[int] = None, max: Optional[int] = None, ttl: Optional[Duration] = None,
                  max_age: Optional[Duration] = None, autoscale: Optional[PoolScaling] = None, zygote: Optional[PoolZygote] = None,
                  recycle: Optional[bool] = None) -> Pool:
        """Creates a pool, or replaces all of its settings: an argument of None sets the default."""
        body = settings(template, min, max, ttl, max_age, autoscale, zygote, recycle)
        return await self._http.get(Pool, Call("PUT", path("v1", "pools", name), json=body))

    async def update(self, name: str, *, template: Optional[str] = None, min: Optional[int] = None, max: Optional[int] = None,
                     ttl: Optional[Duration] = None, max_age: Optional[Duration] = None, autoscale: Optional[PoolScaling] = None,
                     zygote: Optional[PoolZygote] = None, recycle: Optional[bool] = None) -> Pool:
        """Changes the given settings only."""
        body = settings(template, min, max, ttl, max_age, autoscale, zygote, recycle)
        return await self._http.get(Pool, Call("PATCH", path("v1", "pools", name), json=body))

    async def list(self) -> Sequence[Pool]:
        """All pools, sorted by name."""
        return [decode(Pool, item) for item in (await self._http.json(Call("GET", path("v1", "pools"))))["items"]]

    async def get(self, name: str) -> Pool:
        return await self._http.get(Pool, Call("GET", path("v1", "pools", name)))

    async def status(self, name: str) -> PoolStatus:
        """The members that the pool holds now, and the outcomes of claims since the server
        started."""
        return await self._http.get(PoolStatus, Call("GET", path("v1", "pools", name, "status")))

    async def delete(self, name: str) -> None:
        """Deletes the pool. Sandboxes that were claimed from it continue."""
        await self._http.send(Call("DELETE", path("v1", "pools", name), done_if=(NotFoundError,)))
