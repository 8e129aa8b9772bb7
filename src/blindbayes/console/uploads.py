"""Receive a table that a signed-in person uploads: piece by piece to the data folder, never parsed, never whole in memory.

The form's own token stands before the file and is checked before a byte is stored. What is refused is read to its end, up to a
limit, so that the browser shows the refusal and not a broken connection.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator

from starlette.requests import ClientDisconnect, Request

from blindbayes.agent.agent import Agent
from blindbayes.agent.approvals.people import MAY, account
from blindbayes.agent.store.data_folder import NoSpace, TooLarge, Upload
from blindbayes.console.auth import STALE, STREAMED, User, has_form_token
from blindbayes.console.forms import delimiter_of
from blindbayes.errors import BlindbayesError, ConfigError

(UPLOAD,) = STREAMED
_PIECE = 1 << 20
_MAX_HEADER = 2048
_MAX_FIELD = 4096
_IDLE_SECONDS = 20.0
_DRAIN_BYTES, _DRAIN_SECONDS = 1 << 28, 10.0
_DISPOSITION = re.compile(
    rb'content-disposition: *form-data; *name="([A-Za-z0-9_-]{1,64})"(?:; *filename="([^"\r\n]{0,400})")?[^\r\n]*',
    re.IGNORECASE,
)
_uploading: set[str] = set()  # sites of this process that receive a file; a second one waits for the first


class UploadParts:
    """Split a form with files while it arrives."""

    def __init__(self, pieces: AsyncIterator[bytes], delimiter: bytes) -> None:
        self._pieces, self._delimiter, self._buffer = pieces, delimiter, bytearray(b"\r\n")
        self._ended = False

    async def _more(self) -> bool:
        if self._ended:
            return False
        try:
            async with asyncio.timeout(_IDLE_SECONDS):
                self._buffer += await anext(self._pieces)
        except StopAsyncIteration:
            self._ended = True
            return False
        return True

    async def next(self) -> tuple[str, str | None] | None:
        """Return name and file name of the next part, or None after the last. The previous part must have been read."""
        while len(self._buffer) < len(self._delimiter) + 2 and await self._more():
            pass
        if not self._buffer.startswith(self._delimiter):
            raise ConfigError("the form has text around its parts")
        if self._buffer[len(self._delimiter) :].startswith(b"--"):
            return None
        while (end := self._buffer.find(b"\r\n\r\n")) < 0 and len(self._buffer) < _MAX_HEADER and await self._more():
            pass
        if not 0 <= end < _MAX_HEADER:
            raise ConfigError("a part of the form has no name")
        lines = bytes(self._buffer[len(self._delimiter) : end]).split(b"\r\n")
        named = next(filter(None, map(_DISPOSITION.fullmatch, lines)), None)
        if named is None:
            raise ConfigError("a part of the form has no name")
        del self._buffer[: end + 4]
        try:
            return named[1].decode(), None if named[2] is None else named[2].decode()
        except UnicodeDecodeError:
            raise ConfigError("the file's name is not text in UTF-8: rename the file") from None

    async def content(self) -> AsyncIterator[bytes]:
        """Yield the content of the part, in pieces."""
        while True:
            at = self._buffer.find(self._delimiter)
            if at >= 0:
                if at:
                    yield bytes(self._buffer[:at])
                del self._buffer[:at]
                return
            safe = len(self._buffer) - len(self._delimiter) + 1
            if safe >= _PIECE:
                yield bytes(self._buffer[:safe])
                del self._buffer[:safe]
            if not await self._more():
                raise ConfigError("the upload ended before the file did; nothing was stored")

    async def text(self) -> str:
        """Return the content of a small field."""
        whole = bytearray()
        async for piece in self.content():
            whole += piece
            if len(whole) > _MAX_FIELD:
                raise ConfigError("a field of the form is too long")
        return whole.decode("utf-8", "replace")


async def receive_table(agent: Agent, request: Request) -> tuple[int, str, str]:
    """Store an uploaded table. Return the status, why it was refused (empty if it was not), and the file's name."""
    user: User = request.scope["user"]
    pieces = request.stream()
    if not user.roles & set(MAY["manage"]):
        await _drain(pieces)
        return 403, f"this needs one of the roles: {', '.join(MAY['manage'])}", ""
    if agent.name in _uploading:
        await _drain(pieces)
        return 409, "another upload is under way: wait for its end", ""
    _uploading.add(agent.name)
    try:
        name = await _store(agent, request, pieces, user)
    except _Stale:
        await _drain(pieces)
        return 403, STALE, ""
    except ClientDisconnect:
        return 400, "the browser closed the connection; nothing was stored", ""
    except TimeoutError:
        return 408, "the upload stood still for too long; nothing was stored", ""
    except BlindbayesError as error:
        await _drain(pieces)
        return 413 if isinstance(error, TooLarge) else 507 if isinstance(error, NoSpace) else 400, str(error), ""
    finally:
        _uploading.discard(agent.name)
    return 200, "", name


class _Stale(Exception):
    """The form's token is missing or wrong."""


async def _store(agent: Agent, request: Request, pieces: AsyncIterator[bytes], user: User) -> str:
    data = agent.home.data
    length = request.headers.get("content-length", "")
    if length.isdecimal() and int(length) > data.max_bytes + (1 << 16):
        raise TooLarge(
            f"the file is larger than {data.max_bytes >> 20:,} MB, the limit of this site (max_upload_mb under [console] in "
            "site.toml); nothing was stored. Ask the operator to copy it into the data folder"
        )
    parts = UploadParts(pieces, delimiter_of(request.headers.get("content-type", "")))
    is_genuine, replace = has_form_token(user, request.headers.get("x-csrf-token", "")), False
    while (part := await parts.next()) is not None:
        name, file = part
        if name == "csrf":
            is_genuine = is_genuine or has_form_token(user, await parts.text())
        elif not is_genuine:
            raise _Stale
        elif name == "replace":
            replace = bool(await parts.text())
        elif name == "file" and file is not None:
            if not file:
                raise ConfigError("choose a file first")
            upload = await asyncio.to_thread(data.begin, file, replace=replace)
            try:
                await _write(upload, parts.content())
            except BaseException:
                await asyncio.shield(asyncio.to_thread(upload.abandon))
                raise
            who = user.name or account()
            agent.home.audit.append("table uploaded", file=file, bytes=upload.size, replaced=replace, who=who)
            return file
        else:
            raise ConfigError("the form has an unknown field")
    raise ConfigError("choose a file first") if is_genuine else _Stale


async def _write(upload: Upload, pieces: AsyncIterator[bytes]) -> None:
    async for piece in pieces:
        await asyncio.to_thread(upload.write, piece)
    await asyncio.to_thread(upload.finish)


async def _drain(pieces: AsyncIterator[bytes]) -> None:
    """Read and discard the rest of the body, up to a limit, so that the browser reads the answer."""
    left = _DRAIN_BYTES
    with contextlib.suppress(TimeoutError, ClientDisconnect, RuntimeError, StopAsyncIteration):
        async with asyncio.timeout(_DRAIN_SECONDS):
            async for piece in pieces:
                left -= len(piece)
                if left < 0:
                    return
