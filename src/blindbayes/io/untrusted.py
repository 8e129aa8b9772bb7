"""Parse untrusted JSON, TOML, XML and CSV, and escape untrusted text for terminals and pages.

The sender of a file chooses its size, depth, numbers and characters. Size, depth, digits and entries are therefore limited
before anything is built, duplicate names are refused (two parsers could read two different files), numbers are finite, and
every failure is an error of `blindbayes.errors`.
"""

from __future__ import annotations

import contextlib
import csv
import difflib
import io
import json
import math
import os
import re
import tomllib
import unicodedata
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from html import escape
from typing import Any, TypeVar
from xml.parsers import expat

import msgspec

from blindbayes.errors import BlindbayesError, ConfigError, DataError
from blindbayes.io.typed import convert as convert_value

MAX_MODEL_BYTES = 256 << 20
MAX_BYTES = 16 << 20  # of a study, a codebook, a record
MAX_DEPTH = 48  # tables and lists within one another
MAX_DIGITS = 1300  # of one number: an integer of 4,096 bits has 1,234
MAX_ENTRIES = 16_000_000  # commas and brackets: an empty list of three bytes takes 64 in memory
MAX_ELEMENTS = 1_000_000  # elements and attributes of an XML file
MAX_CELLS = 2_000_000  # of a CSV file
_JOINERS = frozenset("\u200c\u200d")  # needed to write Persian and Indic languages
_UNSEEN = frozenset(("Cc", "Cf", "Cs", "Zl", "Zp"))  # controls, formats (bidirectional ones too), half characters, line breaks
NAME = re.compile(r"[a-z][a-z0-9-]{0,39}")  # of a site: a file name and a metric label everywhere
_STRINGS = re.compile(rb'"[^"]*"')
_OUTSIDE = re.compile(rb'"(?:[^"\\]++|\\.)*+"?|[{}\n]')  # strings whole, also one without its end, and marks outside of them
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


class Located(dict[str, Any]):
    """A JSON object that knows the line on which it begins, for errors."""

    line = 0


def read_json(
    text: str | bytes,
    what: str,
    *,
    max_bytes: int = MAX_BYTES,
    error: type[BlindbayesError] = ConfigError,
    hint: str = "",
    located: bool = False,
) -> Any:
    """Parse JSON. Raises `error`, which names `what` and ends with `hint`. With `located`, objects are `Located`."""
    try:
        raw = _bounded(text, max_bytes)
        _require_shallow(raw)
        value = (_locating_decoder(raw) if located else _DECODER).decode(raw.decode())
        if _HALF.search(raw):
            _require_whole(value)
        return value
    except _Unreadable as problem:
        raise error(_sentence(f"{what} {problem}", hint)) from None
    except UnicodeDecodeError:
        raise error(_sentence(f"{what} is not UTF-8 text", hint)) from None
    except json.JSONDecodeError as problem:
        raise error(_sentence(f"{what} is not valid JSON (line {problem.lineno})", hint)) from None
    except (ValueError, RecursionError):
        raise error(_sentence(f"{what} is not valid JSON", hint)) from None


def read_json_table(
    text: str | bytes,
    what: str,
    *,
    max_bytes: int = MAX_BYTES,
    error: type[BlindbayesError] = ConfigError,
    hint: str = "",
    located: bool = False,
) -> dict[str, Any]:
    """Parse JSON that must be an object."""
    value = read_json(text, what, max_bytes=max_bytes, error=error, hint=hint, located=located)
    if not isinstance(value, dict):
        raise error(_sentence(f"{what} is not a table", hint))
    return value


def read_toml(
    text: str | bytes,
    what: str,
    *,
    error: type[BlindbayesError] = ConfigError,
    hint: str = "",
    wide: bool = False,
) -> dict[str, Any]:
    """Parse TOML. Raises `error`, which names `what` and ends with `hint`.

    Integers are limited to 64 bits, as TOML specifies; with `wide` the caller checks them. Callers check for inf and nan.
    """
    try:
        plain = _bounded(text, MAX_BYTES).decode()
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


@dataclass(slots=True)
class Element:
    """An XML element: name and attributes without namespace or prefix, its own text, and its line in the file."""

    name: str
    attributes: dict[str, str]
    line: int
    text: str = ""
    children: list[Element] = field(default_factory=list)

    def all(self, *path: str) -> list[Element]:
        """Return the descendants that a path of element names leads to."""
        level = [self]
        for name in path:
            level = [child for element in level for child in element.children if child.name == name]
        return level

    def first(self, *path: str) -> Element | None:
        return next(iter(self.all(*path)), None)

    def named(self, name: str) -> list[Element]:
        """Return all elements of a name below this one, in order."""
        matches, stack = [], [self]
        while stack:
            element = stack.pop()
            matches += [element] if element.name == name else []
            stack += reversed(element.children)
        return matches


def read_xml(text: bytes, what: str, *, max_bytes: int = MAX_BYTES) -> Element:
    """Parse XML. Raises `ConfigError`, which names `what` and the line.

    Entity declarations, references to them and processing of external files are refused: they read files or grow without bound.
    """
    parser = expat.ParserCreate(namespace_separator=" ")
    builder = _Builder(parser)
    try:
        parser.Parse(_bounded(text, max_bytes), True)
    except _Unreadable as problem:
        raise ConfigError(f"{what} {problem} (line {parser.CurrentLineNumber})") from None
    except expat.ExpatError as problem:
        raise ConfigError(f"{what} is not valid XML: {expat.ErrorString(problem.code)} (line {problem.lineno})") from None
    except (ValueError, LookupError):  # an encoding that Python does not know
        raise ConfigError(f"{what} is not valid XML: its encoding is unknown") from None
    return builder.root


class _Builder:
    def __init__(self, parser: expat.XMLParserType) -> None:
        self._parser = parser
        self._open: list[Element] = []
        self._texts: list[list[str]] = []
        self._entries = 0
        self.root = Element("", {}, 0)
        parser.buffer_text = True
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end
        parser.CharacterDataHandler = self._text
        parser.EntityDeclHandler = self._refuse
        parser.AttlistDeclHandler = self._refuse  # a default is repeated in every element
        parser.SkippedEntityHandler = self._refuse
        parser.ExternalEntityRefHandler = self._refuse

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        self._entries += 1 + len(attributes)
        if self._entries > MAX_ELEMENTS:
            raise _Unreadable(f"has more than {MAX_ELEMENTS:,} elements and attributes")
        if len(self._open) >= MAX_DEPTH:
            raise _Unreadable("has elements within elements beyond any use")
        plain = {key.rpartition(" ")[2]: value for key, value in attributes.items()}
        element = Element(name.rpartition(" ")[2], plain, self._parser.CurrentLineNumber)
        if self._open:
            self._open[-1].children.append(element)
        else:
            self.root = element
        self._open.append(element)
        self._texts.append([])

    def _end(self, _: str) -> None:
        self._open.pop().text = "".join(self._texts.pop()).strip()

    def _text(self, text: str) -> None:
        if self._texts:
            self._texts[-1].append(text)

    def _refuse(self, *_: object) -> int:
        raise _Unreadable("declares or uses entities or defaults, which may read files or grow without bound; remove them")


def read_csv(text: bytes, what: str) -> list[tuple[int, dict[str, str]]]:
    """Parse CSV with a header row, in UTF-8: the first line and the cells by heading of each row that is not empty.

    The separator is the comma, semicolon or tab that splits the header row into most headings.
    """
    try:
        plain = _bounded(text, MAX_BYTES).decode("utf-8-sig")
    except _Unreadable as problem:
        raise ConfigError(f"{what} {problem}") from None
    except UnicodeDecodeError as problem:
        line = text.count(b"\n", 0, problem.start) + 1
        raise ConfigError(f"{what} is not UTF-8 text (line {line}); save it as CSV in UTF-8") from None
    header_row = plain[: re.search(r"[\r\n]|$", plain).start()]  # type: ignore[union-attr]
    outside = "".join(header_row.split('"')[::2])
    reader = csv.reader(io.StringIO(plain, newline=""), strict=True, delimiter=max(",;\t", key=outside.count))
    rows: list[tuple[int, dict[str, str]]] = []
    try:
        header = [name.strip() for name in next(reader, [])]
        if not any(header) or len(set(header)) < len(header):
            raise ConfigError(f"{what} needs a header row, with each heading once (line 1)")
        entries, end = 0, reader.line_num
        for row in reader:
            line, end = end + 1, reader.line_num  # a cell in quotes may have several lines
            entries += len(header)
            if len(row) > len(header) and any(cell.strip() for cell in row[len(header) :]):
                raise ConfigError(f"{what} has more cells than headings (line {line}); put quotes around cells with commas")
            if entries > MAX_CELLS:
                raise ConfigError(f"{what} has more than {MAX_CELLS:,} cells")
            if any(cell.strip() for cell in row):
                rows.append((line, dict(zip(header, (cell.strip() for cell in row), strict=False))))
    except csv.Error:
        longest = f"a quote is missing, or a cell has more than {csv.field_size_limit():,} characters"
        raise ConfigError(f"{what} is not valid CSV (line {reader.line_num}): {longest}") from None
    return rows


def convert(fields: Any, kind: type[_Record], what: str, plain: Callable[[str], str] = str, *, strict: bool = True) -> _Record:
    """Convert builtins to a record. Raises `ConfigError` with the nearest valid names; `plain` rewords the error's location."""
    try:
        return convert_value(fields, kind, strict=strict)
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


_NUMBERS: dict[str, Any] = {"parse_constant": _no_constant, "parse_float": _float, "parse_int": _int}
_DECODER = json.JSONDecoder(object_pairs_hook=_table, **_NUMBERS)


def _locating_decoder(raw: bytes) -> json.JSONDecoder:
    """Return a decoder that gives each object its line: objects are made in the order in which they end."""
    lines = _beginnings(raw)

    def located(pairs: list[tuple[str, Any]]) -> Located:
        table = Located(_table(pairs))
        table.line = next(lines, 0)
        return table

    return json.JSONDecoder(object_pairs_hook=located, **_NUMBERS)


def _beginnings(raw: bytes) -> Iterator[int]:
    """Yield the line on which each JSON object begins, in the order of their ends."""
    line, begun = 1, list[int]()
    for mark in _OUTSIDE.findall(raw):
        if mark == b"\n":
            line += 1
        elif mark == b"{":
            begun.append(line)
        elif mark == b"}" and begun:
            yield begun.pop()


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
