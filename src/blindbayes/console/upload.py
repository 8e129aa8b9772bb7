"""The fields of a form; of one with a file the file's text, in place of a field that was left empty."""

from __future__ import annotations

from email.message import Message
from email.parser import BytesParser
from email.policy import HTTP
from urllib.parse import parse_qsl

from blindbayes.errors import ConfigError


def fields_of(kind: str, body: bytes) -> dict[str, str]:
    """By the content type of the request."""
    if not kind.startswith("multipart/form-data"):  # Starlette's own reader wants one more package
        if body.count(b"&") > 256:
            raise ConfigError("the form has too many fields")
        return dict(parse_qsl(body.decode("utf-8", "replace"), keep_blank_values=True))
    try:
        parsed: Message = BytesParser(policy=HTTP).parsebytes(b"Content-Type: " + kind.encode("latin-1") + b"\r\n\r\n" + body)
        parts = parsed.get_payload()
        found: dict[str, str] = {}
        for part in parts if isinstance(parts, list) else []:
            name = part.get_param("name", header="content-disposition") if isinstance(part, Message) else None
            payload = part.get_payload(decode=True) if isinstance(part, Message) else None
            if isinstance(name, str) and isinstance(payload, bytes):
                found[name] = payload.decode() or found.get(name, "")
    except (UnicodeError, ValueError, AttributeError):
        raise ConfigError("the form cannot be read: is the file plain text?") from None
    return found
