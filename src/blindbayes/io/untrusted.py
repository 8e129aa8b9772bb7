"""Text from strangers: the one reader of JSON and TOML, and the one way of their words onto a screen or a page.

Whoever sends a file chooses its size, its depth, its numbers and its characters. So size, depth, digits and entries are bounded
before anything is built, a name that stands twice in a table is refused (two readers would see two files), numbers are finite,
and what cannot be read ends in an error of `blindbayes.errors`. A leaf: imports the errors only.
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
_JOINERS = frozenset("\u200c\u200d")  # Persian and Indic words need them
_UNSEEN = frozenset(("Cc", "Cf", "Cs", "Zl", "Zp"))  # controls, formats (bidirectional ones too), half characters, line breaks
NAME = re.compile(r"[a-z][a-z0-9-]{0,39}")  # of a site: a file name and a metric label everywhere
_STRINGS = re.compile(rb'"[^"]*"')
_HALF = re.compile(rb"\\u[dD][89a-fA-F]")
_OPEN, _CLOSE = frozenset(b"[{"), frozenset(b"]}")
_NOT_MARKS = bytes(set(range(256)) - set(b'[]{}"'))
# Keys within keys, a.b.c: the standard library's reader takes time and memory by the square of their number.
_DOTTED = re.compile(r"""(?<![\w-])(?:(?:[\w-]+|"[^"\n]*"|'[^'\n]*')[ \t]*\.[ \t]*)""" + f"{{{MAX_DEPTH}}}")


_Record = TypeVar("_Record")
_PLACE = re.compile(r" - at `\$([^`]*)`$")
_STRANGE = re.compile(r"unknown field `([^`]*)`")


class _Unreadable(Exception):
    """What is wrong, in words without a value of the file."""


# -- readers -------------------------------------------------------------------------------------------------------------


def bytes_of(path: str | os.PathLike[str], max_bytes: int = MAX_BYTES) -> bytes:
    """What a file holds; of one that is too long a byte too many, for which the readers refuse it: a terabyte of nothing takes
    no room on a disk."""
    with open(path, "rb") as file:
        return file.read(max_bytes + 1)


def read_json(
    text: str | bytes, what: str, *, max_bytes: int = MAX_BYTES, error: type[BlindbayesError] = ConfigError, hint: str = ""
) -> Any:
    """The value of a JSON text. Raises `error`, naming `what` and closing with `hint`."""
    try:
        raw = _bounded(text, max_bytes)
        _require_shallow(raw)
        found = _DECODER.decode(raw.decode())
        if _HALF.search(raw):
            _require_whole(found)
        return found
    except _Unreadable as problem:
        raise error(_sentence(f"{what} {problem}", hint)) from None
    except UnicodeDecodeError:
        raise error(_sentence(f"{what} is not UTF-8 text", hint)) from None
    except (ValueError, RecursionError):
        raise error(_sentence(f"{what} is not valid JSON", hint)) from None


def read_json_table(
    text: str | bytes, what: str, *, max_bytes: int = MAX_BYTES, error: type[BlindbayesError] = ConfigError, hint: str = ""
) -> dict[str, Any]:
    """Like `read_json`, for a text that must hold a table."""
    found = read_json(text, what, max_bytes=max_bytes, error=error, hint=hint)
    if not isinstance(found, dict):
        raise error(_sentence(f"{what} is not a table", hint))
    return found


def read_toml(
    text: str | bytes,
    what: str,
    *,
    max_bytes: int = MAX_BYTES,
    error: type[BlindbayesError] = ConfigError,
    hint: str = "",
    wide: bool = False,
) -> dict[str, Any]:
    """The table of a TOML text. Raises `error`, naming `what` and closing with `hint`.

    Integers have 64 bits, as TOML promises, unless whoever asks is `wide` and checks them. TOML has inf and nan: whoever asks
    checks those.
    """
    try:
        plain = _bounded(text, max_bytes).decode()
        if _DOTTED.search(plain):
            raise _Unreadable("has tables within tables beyond any use")
        found = tomllib.loads(plain, parse_float=_toml_float)
        _require_ordinary(found, wide)
    except _Unreadable as problem:
        raise error(_sentence(f"{what} {problem}", hint)) from None
    except UnicodeDecodeError:
        raise error(_sentence(f"{what} is not UTF-8 text", hint)) from None
    except tomllib.TOMLDecodeError as problem:
        raise error(_sentence(f"{what} is not valid TOML: {shown(str(problem))}", hint)) from None
    except (ValueError, RecursionError, OverflowError):  # ValueError: a number of thousands of digits, a year 0
        raise error(_sentence(f"{what} is not valid TOML", hint)) from None
    return found


def convert(fields: Any, kind: type[_Record], what: str, plain: Callable[[str], str] = str, *, strict: bool = True) -> _Record:
    """The record that builtins stand for. Raises `ConfigError`, naming `what` and what would fit; `plain` rewords the place."""
    try:
        return msgspec.convert(fields, kind, strict=strict)
    except msgspec.ValidationError as cause:
        if isinstance(cause.__cause__, BlindbayesError):
            raise cause.__cause__ from None
        raise ConfigError(f"{what}: {plain(str(cause))}{_what_fits(str(cause), kind)}") from None


def _what_fits(problem: str, kind: type) -> str:
    """After a name or a value that a record does not know: the nearest ones that it does."""
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
    """The types that may stand at a place of a record."""
    found = _choices(msgspec.inspect.type_info(kind))
    for name, _ in path:
        inner = [
            getattr(one, "item_type", None) or getattr(one, "value_type", None)
            if not name or not hasattr(one, "fields")
            else next((each.type for each in one.fields if each.encode_name == name), None)
            for one in found
        ]
        found = [choice for one in inner if one is not None for choice in _choices(one)]
    return found


def _choices(kind: Any) -> list[Any]:
    return [*kind.types] if isinstance(kind, msgspec.inspect.UnionType) else [kind]


def require_port(place: str, what: str) -> None:
    """A host and a port, such as 127.0.0.1:7440 or [::1]:0. gRPC takes a port modulo 65,536, and 443 where there is none."""
    host, colon, port = place.rpartition(":")
    bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    if not (colon and bare and (":" not in bare or bare != host) and port.isdecimal() and int(port) < 1 << 16):
        raise ConfigError(f"{what} is a host and a port from 0 to 65535, such as 127.0.0.1:7440")


@contextlib.contextmanager
def well_formed(what: str, *, error: type[BlindbayesError] = DataError) -> Iterator[None]:
    """What is taken from a record that was read: a field that is missing or of another kind is the record's fault."""
    try:
        yield
    except BlindbayesError:
        raise
    except (KeyError, IndexError, TypeError, ValueError, AttributeError, ArithmeticError):
        raise error(f"{what} does not hold what it should; it is damaged, or of another version") from None


def _sentence(problem: str, hint: str) -> str:
    return f"{problem}; {hint}" if hint else problem


def _bounded(text: str | bytes, most: int) -> bytes:
    if len(text) > most:
        raise _Unreadable(f"is over the size limit of {most:,} bytes")
    try:
        raw = text.encode() if isinstance(text, str) else text
    except UnicodeError:  # half a character
        raise _Unreadable("is not UTF-8 text") from None
    if len(raw) > most:
        raise _Unreadable(f"is over the size limit of {most:,} bytes")
    return raw


def _require_shallow(raw: bytes) -> None:
    """Depth and number of entries of a JSON text, before it is read. Linear, at the speed of the C library."""
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
    """JSON can write half a character, which no other text can hold."""
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise _Unreadable("holds half a character") from None


def _require_ordinary(value: Any, wide: bool) -> None:
    """Depth of a table, and integers of 64 bits, which is what TOML promises."""
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
    found = dict(pairs)
    if len(found) != len(pairs):
        raise _Unreadable("has a name that stands twice in one table")
    return found


def _no_constant(name: str) -> float:
    raise _Unreadable("holds a number that JSON does not have")


def _int(digits: str) -> int:
    if len(digits) > MAX_DIGITS:
        raise _Unreadable(f"holds a number of more than {MAX_DIGITS} digits")
    return int(digits)


def _float(digits: str) -> float:
    found = float(digits) if len(digits) <= MAX_DIGITS else math.inf
    if not math.isfinite(found):
        raise _Unreadable("holds a number that is not finite")
    return found


def _toml_float(digits: str) -> float:
    if len(digits) > MAX_DIGITS:
        raise _Unreadable(f"holds a number of more than {MAX_DIGITS} digits")
    return float(digits)


_DECODER = json.JSONDecoder(object_pairs_hook=_table, parse_constant=_no_constant, parse_float=_float, parse_int=_int)


# -- words ---------------------------------------------------------------------------------------------------------------


def is_seen(text: str) -> bool:
    """Whether a screen shows all of the text, in its order: no control, format or bidirectional character."""
    return (text.isascii() and text.isprintable()) or not any(
        unicodedata.category(char) in _UNSEEN and char not in _JOINERS for char in text
    )


def require_seen(text: str, what: str) -> str:
    """Refuse a name that people could not read as it stands: they approve what their screen shows them."""
    if not is_seen(text):
        raise ConfigError(f"{what} must not hold control characters, nor such as turn the direction of writing")
    return text


def shown(text: object, *, lines: bool = False) -> str:
    """Text for a terminal: whatever would move the cursor, colour, or turn the direction stands as an escape.

    With `lines`, line breaks and tabs are kept.
    """
    plain = str(text)
    if is_seen(plain):
        return plain
    return "".join(
        char if (lines and char in "\n\t") or char in _JOINERS or unicodedata.category(char) not in _UNSEEN else _escaped(char)
        for char in plain
    )


def _escaped(char: str) -> str:
    """As JSON writes it, so that a JSON text on a screen stays one."""
    return json.dumps(char)[1:-1] if ord(char) > 0x7F else f"\\u{ord(char):04x}"


_MARKDOWN = re.compile(r"[\\`\[\]|]|(?<=[A-Za-z]):(?=//)|(?<=www)\.", re.IGNORECASE)


def markdown(text: object) -> str:
    """Text within a line of Markdown: no link, code, table, HTML or line break of its own."""
    return escape(_MARKDOWN.sub(r"\\\g<0>", shown(text)), quote=False)
