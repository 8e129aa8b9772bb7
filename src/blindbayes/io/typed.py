"""Decode to msgspec types, safely between threads.

msgspec describes a struct when a type that contains it is first used, and keeps the description on the class before it is
complete. A thread that uses the class meanwhile reads a null pointer, and the process ends. So descriptions are built here
only, by one thread at a time, before anything is decoded.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias, TypeVar

import msgspec

Json: TypeAlias = "bool | int | float | str | Sequence[Json] | Mapping[str, Json] | None"
"""A fact for people and machines, which JSON can hold."""

_T = TypeVar("_T")
_BUILDING = threading.RLock()


def decoder(kind: Any, dec_hook: Callable[[type, Any], Any] | None = None) -> msgspec.msgpack.Decoder[Any]:
    """Return a decoder of MessagePack to a type or a union of types."""
    with _BUILDING:
        return msgspec.msgpack.Decoder(kind, dec_hook=dec_hook)


def decode(raw: bytes, kind: type[_T]) -> _T:
    value: _T = decoder(kind).decode(raw)
    return value


def convert(value: Any, kind: type[_T], *, strict: bool = True) -> _T:
    decoder(kind)  # describes it
    return msgspec.convert(value, kind, strict=strict)
