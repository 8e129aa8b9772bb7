"""Parse the fields of a form. The body is untrusted: every form here is flat, bounded and read in one pass."""

from __future__ import annotations

import re
from urllib.parse import parse_qsl

from blindbayes.errors import ConfigError

_MAX_FIELDS = 256
_MAX_OWN_FIELDS = 16384  # of somebody who signed in: the page Table has some for each column
_MAX_PARTS = 128  # a data dictionary asks 30 questions at a time, of up to three parts
_MAX_HEADER = 1024
_BOUNDARY = re.compile(r"""multipart/form-data;\s*boundary=(?:"([\w'()+,./:=?-]{1,70})"|([\w'+.-]{1,70}))""", re.ASCII)
_NAME = re.compile(rb"""content-disposition: *form-data; *name="([A-Za-z0-9_-]{1,64})"(?:;[^\r\n]*)?""", re.IGNORECASE)


def urlencoded(body: bytes, max_fields: int = _MAX_FIELDS) -> dict[str, str]:
    """Return the fields of an urlencoded form: the only kind that is read before anybody has signed in."""
    if body.count(b"&") >= max_fields:
        raise ConfigError("the form has too many fields")
    return dict(parse_qsl(body.decode("utf-8", "replace"), keep_blank_values=True))


def fields_of(content_type: str, body: bytes) -> dict[str, str]:
    """Return the fields of a form by its content type. A file's text replaces an empty field of the same name."""
    if not content_type.startswith("multipart/form-data"):  # Starlette's own reader needs one more package
        return urlencoded(body, _MAX_OWN_FIELDS)
    delimiter = delimiter_of(content_type)
    parts = (b"\r\n" + body).split(delimiter, _MAX_PARTS + 1)
    if parts[0] or parts[-1] not in (b"--", b"--\r\n"):
        raise ConfigError(f"the form has text around its parts, or more than {_MAX_PARTS} of them")
    fields: dict[str, str] = {}
    for part in parts[1:-1]:
        name, content = _field(part)
        fields[name] = content or fields.get(name, "")
    return fields


def delimiter_of(content_type: str) -> bytes:
    """Return the bytes between the parts of a form with files."""
    boundary = _BOUNDARY.fullmatch(content_type)
    if boundary is None:
        raise ConfigError("the form names no boundary between its parts")
    return b"\r\n--" + (boundary[1] or boundary[2]).encode()


def _field(part: bytes) -> tuple[str, str]:
    """Return the name and the text of one part. A part is never looked into: what nests stays text."""
    head = part[: _MAX_HEADER + 4]
    header, blank, _ = head.partition(b"\r\n\r\n")
    name = next(filter(None, map(_NAME.fullmatch, header.split(b"\r\n"))), None)
    if not blank or not header.startswith(b"\r\n") or name is None:
        raise ConfigError("a part of the form has no name")
    try:
        return name[1].decode(), part[len(header) + len(blank) :].decode()
    except UnicodeDecodeError:
        raise ConfigError("a file of the form is not plain text in UTF-8") from None
