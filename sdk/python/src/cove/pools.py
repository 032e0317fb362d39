"""Warm pools: what they are told to hold, and how they are doing."""
from __future__ import annotations

import dataclasses
import datetime
from typing import Any, Mapping, Optional

from ._json import raw, seconds


@dataclasses.dataclass(frozen=True)
class PoolScaling:
    """How a pool follows what is asked for. What is None gets its default, or stays as it is."""

    enabled: Optional[bool] = None
    """Whether it holds as many as the claims of late ask for; otherwise always `min`."""
    target_hit_rate: Optional[float] = None
    """The share of claims that should find a member ready, from 0.5 to 0.999."""
    scale_down_delay: Optional[float] = seconds("scaleDownDelayMs", None)
    """How long it stays large after the last claim that needed it."""


@dataclasses.dataclass(frozen=True)
class PoolZygote:
    """When the process that interpreters are forked from is replaced; 0 is never."""

    max_age: Optional[float] = seconds("maxAgeMs", None)
    max_members: Optional[int] = None


@dataclasses.dataclass(frozen=True)
class ZygoteStatus:
    state: str
    """none, starting, ready or failed."""
    started: int
    renewed: int
    """Of these, in the place of an older one."""
    members: int
    """Forked by the present one."""
    joins: int
    joins_failed: int
    message: Optional[str] = None
    """Why it failed."""


@dataclasses.dataclass(frozen=True)
class RecycledStatus:
    """What became of used sandboxes that were given back."""

    ready: int
    """They were reset and wait for their tenants."""
    claims: int
    """Hits that one of them served."""
    total: int
    destroyed: Mapping[str, int]
    """Those that did not come back, by the reason."""


@dataclasses.dataclass(frozen=True)
class PoolStatus:
    """What a pool holds now, and what became of claims since the server started. What is not kept has no numbers."""

    phase: str
    """ready, filling, waiting, off, degraded, refused or templateMissing."""
    message: Optional[str] = None
    generation: Optional[int] = None
    """How often its settings or its template were put; members of earlier ones are let go."""
    template_generation: Optional[int] = None
    ready: int = 0
    starting: int = 0
    target: int = 0
    claims: int = 0
    """Hits, partial ones and misses together."""
    hits: int = 0
    """Served by a member that was ready."""
    partial: int = 0
    """Served by a member that was still in the making, or lacked its interpreter."""
    misses: int = 0
    """Cold starts."""
    hit_rate: Optional[float] = None
    claims_per_second: float = 0.0
    claim_us: Optional[int] = None
    """From a claim to a sandbox that is ready, on average."""
    refill_us: Optional[int] = None
    """How long making a member takes, on average."""
    expired: int = 0
    replaced: int = 0
    failed: int = 0
    lost: int = 0
    recycled: Optional[RecycledStatus] = None
    """Only of a pool that recycles."""
    zygote: Optional[ZygoteStatus] = None


@dataclasses.dataclass(frozen=True)
class Pool:
    """Sandboxes of one template that are ready before they are asked for."""

    name: str
    template: str
    min: int
    max: int
    autoscale: PoolScaling
    zygote: PoolZygote
    recycle: bool
    """Used sandboxes come back after a reset, each for the tenant that had it."""
    builtin: bool
    """The server keeps it without being told."""
    status: PoolStatus
    ttl: float = seconds("ttlMs")
    """A member beyond `min` that nobody takes goes after this time; 0 is never."""
    max_age: float = seconds("maxAgeMs")
    """A member that waited for this time is replaced; 0 is never."""
    generation: Optional[int] = None
    created_at: Optional[datetime.datetime] = None
    updated_at: Optional[datetime.datetime] = None
    raw: Mapping[str, Any] = raw()
