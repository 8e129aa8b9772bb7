"""Bodies of multipart forms, good and hostile."""

from __future__ import annotations

FORM = "multipart/form-data; boundary=x"


def nested(levels: int, size: int) -> bytes:
    """A form in a form in a form, then empty lines up to a size: minutes of work for a mail parser."""
    body, edge = b"", b"x"
    for level in range(levels):
        inner = b"b%d" % level
        body += b"--" + edge + b"\r\ncontent-type: multipart/mixed; boundary=" + inner + b"\r\n\r\n"
        edge = inner
    body += b"--" + edge + b"\r\n\r\n"
    return body + b"\n" * max(0, size - len(body))


def form(*parts: tuple[str, bytes]) -> bytes:
    made = [b'--x\r\nContent-Disposition: form-data; name="%s"\r\n\r\n%s\r\n' % (name.encode(), each) for name, each in parts]
    return b"".join(made) + b"--x--\r\n"
