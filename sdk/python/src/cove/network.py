"""The network of a sandbox: its rules, its connections, and the part of a receipt about it."""
from __future__ import annotations

import dataclasses
from typing import Any, Dict, List, Mapping, Optional, Sequence, Union

from ._json import decode, encode, raw, seconds


@dataclasses.dataclass(frozen=True)
class NetworkSecret:
    """A secret that the egress proxy adds to requests to one host. The sandbox calls
    `http://NAME.secret.cove/` and never sees the value."""

    name: str
    host: str
    header: Optional[str] = None
    format: Optional[str] = None
    """The value of the header; "{}" stands for the secret."""
    methods: Optional[List[str]] = None
    path: Optional[str] = None


@dataclasses.dataclass(frozen=True)
class Network:
    """The rules of a sandbox."""

    mode: str
    """none or egress; it never changes."""
    egress: List[str] = dataclasses.field(default_factory=list)
    """Rules in their order, such as "allow pypi.org". The first rule that matches decides; without
    a match the answer is no."""
    secrets: List[NetworkSecret] = dataclasses.field(default_factory=list)
    raw: Mapping[str, Any] = raw()


@dataclasses.dataclass(frozen=True)
class NetworkConnection:
    """An open connection of a sandbox."""

    host: str
    """The name or address that the program asked for."""
    port: int
    way: str
    """proxy, tunnel, transparent or secret"""
    age: float = seconds("ageMs")
    received_bytes: int = 0
    sent_bytes: int = 0
    raw: Mapping[str, Any] = raw()


@dataclasses.dataclass(frozen=True)
class NetworkDestination:
    """A host and port that an execution asked for."""

    host: str
    port: int
    connections: int = 0
    refused: int = 0
    """Connections and requests that no rule allows, or whose address is closed."""
    failed: int = 0
    """Connections that are allowed, but the host did not answer."""
    received_bytes: int = 0
    sent_bytes: int = 0
    reason: Optional[str] = None
    """Of the last refusal or failure."""
    raw: Mapping[str, Any] = raw()


@dataclasses.dataclass(frozen=True)
class NetworkUse:
    """The part of a receipt about the network."""

    mode: str
    carrier: Optional[str] = None
    """tproxy: also programs that ignore proxy variables reach the network; proxy: they do not."""
    rules: List[str] = dataclasses.field(default_factory=list)
    connections: Optional[int] = None
    refused: Optional[int] = None
    failed: Optional[int] = None
    received_bytes: Optional[int] = None
    sent_bytes: Optional[int] = None
    destinations: List[NetworkDestination] = dataclasses.field(default_factory=list)
    """In the order of their first use."""
    other_destinations: int = 0
    """Destinations that did not fit into the list."""
    absent_why: Optional[str] = None
    """Why the figures are not known."""
    raw: Mapping[str, Any] = raw()


@dataclasses.dataclass(frozen=True)
class NetworkDecision:
    """Whether the rules of a sandbox allow a URL, and why."""

    url: str
    host: str
    port: int
    allowed: bool
    method: Optional[str] = None
    rule: Optional[str] = None
    """The rule that decides; None: no rule matches."""
    closed_range: Optional[str] = None
    """The closed range of the address, such as "private" or "metadata"."""
    reason: Optional[str] = None
    fix: Optional[str] = None
    """The smallest rule that allows the URL."""
    raw: Mapping[str, Any] = raw()


NetworkLike = Union[str, Network, Mapping[str, Any]]
"""The argument `network`: "none", an object as docs/network.md describes, or the network of another
sandbox."""


def network_of(network: Optional[NetworkLike], allow: Optional[Sequence[str]]) -> Any:
    """The field `network` of a request; None if neither is given."""
    if isinstance(allow, str):
        raise TypeError(f"allow: must be a list of targets; write [{allow!r}]")
    if allow is not None and network is not None:
        raise ValueError("allow: is the short form of network={'allow': [...]}; give one of the two")
    if allow is not None:
        return {"allow": [*allow]}
    if isinstance(network, Network):
        found: Dict[str, Any] = {"mode": network.mode, "egress": [*network.egress], "secrets": [encode(secret) for secret in network.secrets]}
        return found if network.mode != "none" else "none"
    return dict(network) if isinstance(network, Mapping) else network


def _network(value: Any) -> Network:
    return Network(value) if isinstance(value, str) else decode(Network, value)


def _network_use(value: Any) -> NetworkUse:
    return NetworkUse(value) if isinstance(value, str) else decode(NetworkUse, value)


def network_field() -> Any:
    return dataclasses.field(default=None, metadata={"convert": _network})


def network_use_field() -> Any:
    return dataclasses.field(default=None, metadata={"convert": _network_use})


def network_value_field() -> Any:
    """A value in the form of a request, which is also the form of a stored template."""
    return dataclasses.field(default=None, metadata={"convert": lambda value: value, "encode": lambda value: network_of(value, None)})
