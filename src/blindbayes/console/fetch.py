"""Fetch small documents from an identity provider: TLS verified, no redirect followed, size and total time bounded."""

from __future__ import annotations

import contextlib
import http.client
import socket
import ssl
import threading
from collections.abc import Mapping
from urllib.parse import urlencode, urlsplit

from blindbayes.errors import BlindbayesError

MAX_BYTES = 256 * 1024
SECONDS = 10.0


class FetchError(BlindbayesError):
    """Raised if a provider cannot be reached or its answer breaks a limit. Holds no part of the answer but its status."""

    def __init__(self, message: str, status: int = 0) -> None:
        super().__init__(message)
        self.status = status


def fetch(
    url: str,
    what: str,
    *,
    form: Mapping[str, str] | None = None,
    headers: Mapping[str, str] | None = None,
    tls: ssl.SSLContext | None = None,
) -> bytes:
    """Return the body of a GET, or of a POST with a form. Raises `FetchError` unless the status is 200.

    Blocks for at most `SECONDS` after the name is resolved, however slowly the other side sends.
    """
    parts, seconds = urlsplit(url), SECONDS
    is_tls = parts.scheme == "https"
    host, port = parts.hostname or "", parts.port or (443 if is_tls else 80)
    kind = http.client.HTTPSConnection if is_tls else http.client.HTTPConnection
    connection, late = kind(host, port, timeout=seconds), threading.Event()
    opened: list[socket.socket] = []  # the connection forgets its socket once it has an answer
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    given = {"Accept": "application/json", "Connection": "close", **(headers or {})}
    body = None if form is None else urlencode(form)
    if body is not None:
        given["Content-Type"] = "application/x-www-form-urlencoded"

    def cut() -> None:
        late.set()
        for each in opened:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    watchdog = threading.Timer(seconds, cut)
    watchdog.daemon = True
    try:
        watchdog.start()
        connection.sock = socket.create_connection((host, port), timeout=seconds)
        if is_tls:
            context = ssl.create_default_context() if tls is None else tls
            wrapped = context.wrap_socket(connection.sock, server_hostname=host, do_handshake_on_connect=False)
            connection.sock = wrapped
        opened.append(connection.sock)
        if is_tls:
            wrapped.do_handshake()
        connection.request("GET" if body is None else "POST", path, body, given)
        answer = connection.getresponse()
        content = answer.read(MAX_BYTES + 1)
    except (OSError, http.client.HTTPException) as cause:
        reason = "it took too long" if late.is_set() or isinstance(cause, TimeoutError) else type(cause).__name__
        raise FetchError(f"{what} cannot be fetched ({reason})") from None
    finally:
        watchdog.cancel()
        connection.close()
    if late.is_set():
        raise FetchError(f"{what} cannot be fetched (it took too long)")
    if len(content) > MAX_BYTES:
        raise FetchError(f"{what} is longer than {MAX_BYTES >> 10} kB")
    if answer.status != 200:
        raise FetchError(f"{what} cannot be fetched (status {answer.status})", answer.status)
    return content
