"""Conversion between the JSON of the server and dataclasses. Fields are in snake_case here and in
camelCase there.

A field that a newer server adds is ignored here and is available in `raw`; a missing required field
is an error. A field made by `seconds("timeoutMs")` holds seconds and is sent as milliseconds.
"""
from __future__ import annotations

import dataclasses
import datetime
import functools
import json
import re
import typing
from typing import Any, Dict, Mapping, Optional, Type, TypeVar, Union

from .errors import ProtocolError

T = TypeVar("T")
Duration = Union[int, float, str, datetime.timedelta]
"""Seconds, a text with a unit such as "500ms", "5s", "2m", "1.5h" or "1d", or a timedelta."""
UNITS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400}
Size = Union[int, str]
"""Bytes, or a text with a unit such as "64K", "512M" or "2G"; a K is 1024 bytes."""
SIZES = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


def seconds(name: str, default: Any = dataclasses.MISSING) -> Any:
    return dataclasses.field(default=default, metadata={"json": name, "ms": True})


def raw() -> Any:
    return dataclasses.field(default_factory=dict, metadata={"raw": True}, repr=False, compare=False)


def seconds_of(text: str) -> float:
    found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h|d)", text)
    if found is None:
        raise ValueError(f"{text!r}: is not a time; write a number of seconds, or a text such as '500ms', '5s', '2m', '1h' or '1d'")
    return float(found[1]) * UNITS[found[2]]


def milliseconds(value: Duration) -> int:
    if isinstance(value, str):
        value = seconds_of(value)
    elif isinstance(value, datetime.timedelta):
        value = value.total_seconds()
    return max(round(value * 1000), 1 if value > 0 else 0)


def bytes_of(value: Size) -> int:
    if not isinstance(value, str):
        return value
    found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)([KMGT]?)(?:I?B)?", value.upper())
    if found is None:
        raise ValueError(f"{value!r}: is not a size; write a number of bytes, or a text such as '64K', '512M' or '2G'")
    return round(float(found[1]) * SIZES[found[2]])


def time_text(value: datetime.datetime) -> str:
    """A time without a zone is in the local zone of this machine, as in Python."""
    return value.astimezone(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.") + f"{value.microsecond // 1000:03d}Z"


def camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def text_of(field: dataclasses.Field[Any]) -> str:
    return str(field.metadata.get("json") or camel(field.name))


@functools.lru_cache(maxsize=None)
def hints(cls: Any) -> Dict[str, Any]:
    return typing.get_type_hints(cls)


def convert(hint: Any, value: Any) -> Any:
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if value is None or hint is Any:
        return value
    if origin is Union:
        return convert(next(a for a in args if a is not type(None)), value)
    if origin is list:
        return [convert(args[0], v) for v in value]
    if dataclasses.is_dataclass(hint):
        return decode(typing.cast("type[Any]", hint), value)
    if hint is datetime.datetime:
        return datetime.datetime.fromisoformat(value.replace("Z", "+00:00"))
    if origin is dict and args[1] is not Any:
        return {k: convert(args[1], v) for k, v in value.items()}
    if isinstance(hint, type) and not (isinstance(value, hint) or (hint is float and isinstance(value, int))):
        raise TypeError(f"{value!r} is not a {hint.__name__}")
    return value


def decode(cls: Type[T], data: Any) -> T:
    """The dataclass that this JSON object describes."""
    values: Dict[str, Any] = {}
    known = hints(typing.cast(Any, cls))
    try:
        for field in dataclasses.fields(cls):  # type: ignore[arg-type]
            if field.metadata.get("raw"):
                values[field.name] = data
                continue
            if field.metadata.get("local"):
                continue
            name = text_of(field)
            if name in data:
                value = data[name]
                if "convert" in field.metadata and value is not None:
                    values[field.name] = field.metadata["convert"](value)
                    continue
                values[field.name] = value / 1000 if field.metadata.get("ms") and value is not None else convert(known[field.name], value)
        return cls(**values)
    except (TypeError, KeyError, ValueError, AttributeError) as error:
        raise ProtocolError(f"the server's answer is not a {cls.__name__}: {error}") from error


def encode(value: Any) -> Dict[str, Any]:
    """The JSON object of a dataclass; fields that are None are omitted."""
    found: Dict[str, Any] = {}
    for field in dataclasses.fields(value):
        item = getattr(value, field.name)
        if item is None or field.metadata.get("raw"):
            continue
        if "encode" in field.metadata:
            item = field.metadata["encode"](item)
        elif field.metadata.get("ms"):
            item = milliseconds(item)
        elif dataclasses.is_dataclass(item) and not isinstance(item, type):
            item = encode(item)
        elif isinstance(item, datetime.datetime):
            item = time_text(item)
        elif isinstance(item, Mapping):
            item = dict(item)
        found[text_of(field)] = item
    return found


def loads(data: Union[str, bytes]) -> Any:
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        raise ProtocolError(f"the server sent invalid JSON: {error}") from error


def loads_object(data: Union[str, bytes]) -> Dict[str, Any]:
    found = loads(data)
    if not isinstance(found, dict):
        raise ProtocolError("the server sent JSON that is not an object")
    return found


def without_none(**values: Optional[Any]) -> Dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}
