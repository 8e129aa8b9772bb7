"""Parse untrusted JSON and TOML, and escape untrusted text for terminals and pages.

The sender of a file chooses its size, depth, numbers and characters. Size, depth, digits and entries are therefore limited
before anything is built, duplicate names are refused (two parsers could read two different files), numbers are finite, and
every failure is an error of `blindbayes.errors`.
"""

from __future__ import annotations

import contextlib
import difflib
import json
import math
import os
import re
import tomllib
import unicodedata
from collections.abc import Callable, Iterator
from html import escape
from typing import Any, TypeVar

import msgspec

from blindbayes.errors import BlindbayesError, ConfigError, DataError

MAX_MODEL_BYTES = 256 << 20
MAX_BYTES = 16 << 20  # of a study, a codebook, a record
MAX_DEPTH = 48  # tables and lists within one another
MAX_DIGITS = 1300  # of one number: an integer of 4,096 bits has 1,234
MAX_ENTRIES = 16_000_000  # commas and brackets: an empty list of three bytes takes 64 in memory
_JOINERS = frozenset("\u200c\u200d")  # needed to write Persian and Indic languages
_UNSEEN = frozenset(("Cc", "Cf", "Cs", "Zl", "Zp"))  # controls, formats (bidirectional ones too), half characters, line breaks
NAME = re.compile(r"[a-z][a-z0-9-]{0,39}")  # of a site: a file name and a metric label everywhere
_STRINGS = re.compile(rb'"[^"]*"')
_HALF = re.compile(rb"\\u[dD][89a-fA-F]")
_OPEN, _CLOSE = frozenset(b"[{"), frozenset(b"]}")
_NOT_MARKS = bytes(set(range(256)) - set(b'[]{}"'))
# Dotted keys, a.b.c: tomllib takes time and memory quadratic in their number.
_DOTTED = re.compile(r"""(?<![\w-])(?:(?:[\w-]+|"[^"\n]*"|'[^'\n]*')[ \t]*\.[ \t]*)""" + f"{{{MAX_DEPTH}}}")


_Record = TypeVar("_Record")
_PLACE = re.compile(r" - at `\$([^`]*)`$")
_STRANGE = re.compile(r"unknown field `([^`]*)`")


class _Unreadable(Exception):
    """The reason, without any value of the file."""


# -- parsers -------------------------------------------------------------------------------------------------------------


def read_limited(path: str | os.PathLike[str], max_bytes: int = MAX_BYTES) -> bytes:
    """Read at most `max_bytes` + 1 bytes of a file, so that the parsers refuse a longer one without loading it."""
    with open(path, "rb") as file:
        return file.read(max_bytes + 1)


def read_json(
    text: str | bytes, what: str, *, max_bytes: int = MAX_BYTES, error: type[BlindbayesError] = ConfigError, hint: str = ""
) -> Any:
    """Parse JSON. Raises `error`, which names `what` and ends with `hint`."""
    try:
        raw = _bounded(text, max_bytes)
        _require_shallow(raw)
        value = _DECODER.decode(raw.decode())
        if _HALF.search(raw):
            _require_whole(value)
        return value
    except _Unreadable as problem:
        raise error(_sentence(f"{what} {problem}", hint)) from None
    except UnicodeDecodeError:
        raise error(_sentence(f"{what} is not UTF-8 text", hint)) from None
    except (ValueError, RecursionError):
        raise error(_sentence(f"{what} is not valid JSON", hint)) from None


def read_json_table(
    text: str | bytes, what: str, *, max_bytes: int = MAX_BYTES, error: type[BlindbayesError] = ConfigError, hint: str = ""
) -> dict[str, Any]:
    """Parse JSON that must be an object."""
    value = read_json(text, what, max_bytes=max_bytes, error=error, hint=hint)
    if not isinstance(value, dict):
        raise error(_sentence(f"{what} is not a table", hint))
    return value


def read_toml(
    text: str | bytes,
    what: str,
    *,
    max_bytes: int = MAX_BYTES,
    error: type[BlindbayesError] = ConfigError,
    hint: str = "",
    wide: bool = False,
) -> dict[str, Any]:
    """Parse TOML. Raises `error`, which names `what` and ends with `hint`.

    Integers are limited to 64 bits, as TOML specifies; with `wide` the caller checks them. Callers check for inf and nan.
    """
    try:
        plain = _bounded(text, max_bytes).decode()
        if _DOTTED.search(plain):
            raise _Unreadable("has tables within tables beyond any use")
        table = tomllib.loads(plain, parse_float=_toml_float)
        _require_ordinary(table, wide)
    except _Unreadable as problem:
        raise error(_sentence(f"{what} {problem}", hint)) from None
    except UnicodeDecodeError:
        raise error(_sentence(f"{what} is not UTF-8 text", hint)) from None
    except tomllib.TOMLDecodeError as problem:
        raise error(_sentence(f"{what} is not valid TOML: {shown(str(problem))}", hint)) from None
    except (ValueError, RecursionError, OverflowError):  # ValueError: a number of thousands of digits, a year 0
        raise error(_sentence(f"{what} is not valid TOML", hint)) from None
    return table


def convert(fields: Any, kind: type[_Record], what: str, plain: Callable[[str], str] = str, *, strict: bool = True) -> _Record:
    """Convert builtins to a record. Raises `ConfigError` with the nearest valid names; `plain` rewords the error's location."""
    try:
        return msgspec.convert(fields, kind, strict=strict)
    except msgspec.ValidationError as cause:
        if isinstance(cause.__cause__, BlindbayesError):
            raise cause.__cause__ from None
        raise ConfigError(f"{what}: {plain(str(cause))}{_what_fits(str(cause), kind)}") from None


def _what_fits(problem: str, kind: type) -> str:
    """Return the names or values that are valid at the place of an error."""
    place = _PLACE.search(problem)
    path = re.findall(r"\.(\w+)|(\[)", place[1]) if place else []
    if strange := _STRANGE.search(problem):
        known = sorted({each.encode_name for one in _at(kind, path) for each in getattr(one, "fields", ())})
        near = difflib.get_close_matches(strange[1], known, 1)
        return f"; did you mean `{near[0]}`?" if near else f"; known: {', '.join(known)}" if known else ""
    if problem.startswith("Invalid"):
        own = [value for one in _at(kind, path) for value in getattr(one, "values", ())]
        tags = [one.tag for one in _at(kind, path[:-1]) if path and getattr(one, "tag_field", None) == path[-1][0]]
        known = sorted({str(value) for value in own or tags})
        return f"; it is one of {', '.join(known)}" if known else ""
    return ""


def _at(kind: type, path: list[tuple[str, str]]) -> list[Any]:
    """Return the types that are valid at a place of a record."""
    types = _choices(msgspec.inspect.type_info(kind))
    for name, _ in path:
        inner = [
            getattr(one, "item_type", None) or getattr(one, "value_type", None)
            if not name or not hasattr(one, "fields")
            else next((each.type for each in one.fields if each.encode_name == name), None)
            for one in types
        ]
        types = [choice for one in inner if one is not None for choice in _choices(one)]
    return types


def _choices(kind: Any) -> list[Any]:
    return [*kind.types] if isinstance(kind, msgspec.inspect.UnionType) else [kind]


def require_port(place: str, what: str) -> None:
    """Raise unless `place` is a host and a port: gRPC takes a port modulo 65,536, and 443 if it is missing."""
    host, colon, port = place.rpartition(":")
    bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    if not (colon and bare and (":" not in bare or bare != host) and port.isdecimal() and int(port) < 1 << 16):
        raise ConfigError(f"{what} must be a host and a port from 0 to 65535, such as 127.0.0.1:7440")


@contextlib.contextmanager
def well_formed(what: str, *, error: type[BlindbayesError] = DataError) -> Iterator[None]:
    """Turn missing fields and fields of the wrong type, while a parsed record is used, into `error`."""
    try:
        yield
    except BlindbayesError:
        raise
    except (KeyError, IndexError, TypeError, ValueError, AttributeError, ArithmeticError):
        raise error(f"{what} has missing or invalid fields; it is damaged, or of another version") from None


def _sentence(problem: str, hint: str) -> str:
    return f"{problem}; {hint}" if hint else problem


def _bounded(text: str | bytes, max_bytes: int) -> bytes:
    if len(text) > max_bytes:
        raise _Unreadable(f"is over the size limit of {max_bytes:,} bytes")
    try:
        raw = text.encode() if isinstance(text, str) else text
    except UnicodeError:  # half a character
        raise _Unreadable("is not UTF-8 text") from None
    if len(raw) > max_bytes:
        raise _Unreadable(f"is over the size limit of {max_bytes:,} bytes")
    return raw


def _require_shallow(raw: bytes) -> None:
    """Check depth and number of entries of JSON before it is parsed, in linear time."""
    if len(raw) <= MAX_DEPTH:
        return
    marks = raw.replace(b"\\\\", b"").replace(b'\\"', b"").translate(None, _NOT_MARKS)
    brackets = _STRINGS.sub(b"", marks)
    if raw.count(b",") + len(brackets) > MAX_ENTRIES:
        raise _Unreadable(f"has more than {MAX_ENTRIES:,} entries")
    depth = 0
    for mark in brackets:
        if mark in _OPEN:
            depth += 1
            if depth > MAX_DEPTH:
                raise _Unreadable("has tables within tables beyond any use")
        elif mark in _CLOSE:
            depth -= 1


def _require_whole(value: Any) -> None:
    """Refuse unpaired surrogates, which JSON can escape but UTF-8 cannot encode."""
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise _Unreadable("holds half a character") from None


def _require_ordinary(value: Any, wide: bool) -> None:
    """Check the depth of a table, and the size of its integers unless `wide`."""
    level = [value]
    for _ in range(MAX_DEPTH):
        if not wide and any(type(each) is int and not -(2**63) <= each < 2**63 for each in level):
            raise _Unreadable("holds an integer of more than 64 bits")
        level = [
            item
            for each in level
            if isinstance(each, dict | list)
            for item in (each.values() if isinstance(each, dict) else each)
        ]
        if not level:
            return
    raise _Unreadable("has tables within tables beyond any use")


def _table(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) != len(pairs):
        raise _Unreadable("has a name twice in one table")
    return table


def _no_constant(name: str) -> float:
    raise _Unreadable("holds a number that JSON does not have")


def _int(digits: str) -> int:
    if len(digits) > MAX_DIGITS:
        raise _Unreadable(f"holds a number of more than {MAX_DIGITS} digits")
    return int(digits)


def _float(digits: str) -> float:
    number = float(digits) if len(digits) <= MAX_DIGITS else math.inf
    if not math.isfinite(number):
        raise _Unreadable("holds a number that is not finite")
    return number


def _toml_float(digits: str) -> float:
    if len(digits) > MAX_DIGITS:
        raise _Unreadable(f"holds a number of more than {MAX_DIGITS} digits")
    return float(digits)


_DECODER = json.JSONDecoder(object_pairs_hook=_table, parse_constant=_no_constant, parse_float=_float, parse_int=_int)


# -- text for people -----------------------------------------------------------------------------------------------------


def is_seen(text: str) -> bool:
    """Return True if the text has no control, format or bidirectional character, so that a screen shows all of it in order."""
    return (text.isascii() and text.isprintable()) or not any(
        unicodedata.category(char) in _UNSEEN and char not in _JOINERS for char in text
    )


def require_seen(text: str, what: str) -> str:
    """Refuse a name with invisible characters: people approve what their screen shows."""
    if not is_seen(text):
        raise ConfigError(f"{what} must not hold control characters or characters that change the direction of writing")
    return text


def shown(text: object, *, lines: bool = False) -> str:
    """Escape control, colour and direction characters for a terminal. `lines` keeps line breaks and tabs."""
    plain = str(text)
    if is_seen(plain):
        return plain
    return "".join(
        char if (lines and char in "\n\t") or char in _JOINERS or unicodedata.category(char) not in _UNSEEN else _escaped(char)
        for char in plain
    )


def _escaped(char: str) -> str:
    # as JSON does, so that JSON on a screen remains valid
    return json.dumps(char)[1:-1] if ord(char) > 0x7F else f"\\u{ord(char):04x}"


_MARKDOWN = re.compile(r"[\\`\[\]|]|(?<=[A-Za-z]):(?=//)|(?<=www)\.", re.IGNORECASE)


def markdown(text: object) -> str:
    """Escape text for a line of Markdown: it cannot start links, code, tables, HTML or line breaks."""
    return escape(_MARKDOWN.sub(r"\\\g<0>", shown(text)), quote=False)
