"""Warm pools: their settings and their state."""
from __future__ import annotations

import dataclasses
import datetime
from typing import Any, Mapping, Optional

from ._json import raw, seconds


@dataclasses.dataclass(frozen=True)
class PoolScaling:
    """How a pool follows the demand. None means the default, or no change in an update."""

    enabled: Optional[bool] = None
    """Whether the size follows recent claims; otherwise it is always `min`."""
    target_hit_rate: Optional[float] = None
    """The share of claims that should find a member ready, from 0.5 to 0.999."""
    scale_down_delay: Optional[float] = seconds("scaleDownDelayMs", None)
    """Seconds for which the pool keeps its size after the last claim that needed it."""


@dataclasses.dataclass(frozen=True)
class PoolZygote:
    """When the zygote, from which interpreters are forked, is replaced; 0 is never."""

    max_age: Optional[float] = seconds("maxAgeMs", None)
    max_members: Optional[int] = None


@dataclasses.dataclass(frozen=True)
class ZygoteStatus:
    state: str
    """none, starting, ready, failed, or unsupported by the driver."""
    started: int
    renewed: int
    """The number of zygotes that replaced an older one."""
    members: int
    """Interpreters forked by the current zygote."""
    joins: int
    joins_failed: int
    message: Optional[str] = None
    """Why the zygote failed."""


@dataclasses.dataclass(frozen=True)
class RecycledStatus:
    """Counts of used sandboxes after their return to the pool."""

    ready: int
    """Sandboxes that were reset and wait for their tenants."""
    claims: int
    """Hits that were served by a recycled sandbox."""
    total: int
    destroyed: Mapping[str, int]
    """Sandboxes that were destroyed instead of recycled, by reason."""


@dataclasses.dataclass(frozen=True)
class PoolStatus:
    """The members that a pool holds now, and the outcomes of claims since the server started.
    Counters of features that are off stay at their defaults."""

    phase: str
    """ready, filling, waiting, off, degraded, refused or templateMissing."""
    message: Optional[str] = None
    generation: Optional[int] = None
    """The version of the settings and the template; members of earlier versions are removed."""
    template_generation: Optional[int] = None
    ready: int = 0
    starting: int = 0
    target: int = 0
    claims: int = 0
    """The sum of hits, partial hits and misses."""
    hits: int = 0
    """Claims served by a member that was ready."""
    partial: int = 0
    """Claims served by a member that was not complete, or had no interpreter yet."""
    misses: int = 0
    """Cold starts."""
    hit_rate: Optional[float] = None
    claims_per_second: float = 0.0
    claim_ms: Optional[float] = None
    """Average microseconds from a claim to a sandbox that is ready."""
    refill_ms: Optional[float] = None
    """Average microseconds to make a member."""
    expired: int = 0
    replaced: int = 0
    failed: int = 0
    lost: int = 0
    recycled: Optional[RecycledStatus] = None
    """Only for a pool with `recycle`."""
    zygote: Optional[ZygoteStatus] = None


@dataclasses.dataclass(frozen=True)
class Pool:
    """Sandboxes of one template that are prepared before they are requested."""

    name: str
    template: str
    min: int
    max: int
    autoscale: PoolScaling
    zygote: PoolZygote
    recycle: bool
    """Whether used sandboxes are reset and kept, each for the tenant that used it."""
    builtin: bool
    """The server maintains this pool by default."""
    status: PoolStatus
    ttl: float = seconds("ttlMs")
    """Seconds after which an unclaimed member beyond `min` is removed; 0 is never."""
    max_age: float = seconds("maxAgeMs")
    """Seconds after which a waiting member is replaced; 0 is never."""
    generation: Optional[int] = None
    created_at: Optional[datetime.datetime] = None
    updated_at: Optional[datetime.datetime] = None
    raw: Mapping[str, Any] = raw()
