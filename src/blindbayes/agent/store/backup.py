"""Backups: a site's folder as one sealed file, and back. A restored site runs nothing until staff have acknowledged it.

**Consistent.** Audit log and ledger are read while both are locked, so that no charge is missing that the log mentions.
Journals and keys of open runs stay out: a run that went on since must not be replayed with the same coins.

**Without rows.** The folder of tables, the table that `[rows]` names and every file with the ending of a table stay out.

**Sealed.** A tar in pieces of one MiB, each encrypted with AES-GCM under a key that scrypt derives from the passphrase. The
number and the end of the pieces are authenticated, so that none can be changed, dropped or moved.

**Behind.** `restore` writes `restored` into the log and revokes all approvals, because the number of runs left is unknown.
Both happen before the folder becomes a site, so a kill at any time leaves no site that does not know.
The agent refuses every run until `acknowledge` books the worst case: what may have been spent since the backup, and what exact
sums and classifications may have revealed. Peers that saw newer heads refuse on their own, until their staff forget them.
"""

from __future__ import annotations

import contextlib
import errno
import io
import math
import os
import shutil
import tarfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import IO, Any, cast
from urllib.parse import unquote

from cryptography.hazmat.primitives.kdf.scrypt import Scrypt

from blindbayes.agent.store.data_folder import TABLE_FILES
from blindbayes.agent.store.folder import SiteFolder
from blindbayes.crypto.aead import TAG_BYTES, seal, unseal
from blindbayes.crypto.coins import Coins
from blindbayes.errors import ConfigError, IntegrityError
from blindbayes.io.files import make_private_folder, sync

_MAGIC = b"blindbayes backup 1\n"
_PIECE = 1 << 20
_MIN_PASSPHRASE = 12
_MAX_FILES, _MAX_BYTES = 1 << 20, 1 << 36
_DRAFT = ".restoring"
_BAD_NAMES = (errno.EEXIST, errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG)
_LEFT_OUT = {"operator.token", "agent.lock", "carrier.sock", "audit.log"}


def _key(passphrase: str, salt: bytes) -> bytes:
    if len(passphrase) < _MIN_PASSPHRASE:
        raise ConfigError(f"a passphrase for a backup has at least {_MIN_PASSPHRASE} characters: it holds the site's keys")
    return Scrypt(salt=salt, length=32, n=1 << 15, r=8, p=1).derive(passphrase.encode())


class _Sealing(io.RawIOBase):
    """A stream that encrypts what is written to it, piece by piece."""

    def __init__(self, out: IO[bytes], key: bytes) -> None:
        self._out, self._key, self._buffer, self._number = out, key, bytearray(), 0

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self._buffer += data
        while len(self._buffer) > _PIECE:
            self._piece(bytes(self._buffer[:_PIECE]), b"more")
            del self._buffer[:_PIECE]
        return len(data)

    def finish(self) -> None:
        self._piece(bytes(self._buffer), b"last")

    def _piece(self, body: bytes, mark: bytes) -> None:
        self._out.write(seal(self._key, body, associated=_MAGIC + mark, nonce=self._number))
        self._number += 1


def _opened(file: IO[bytes], key: bytes) -> Iterator[bytes]:
    """Yield the decrypted pieces. Raises `IntegrityError` for anything changed or missing."""
    number, piece = 0, file.read(_PIECE + TAG_BYTES)
    while True:
        following = file.read(_PIECE + TAG_BYTES)
        yield unseal(key, piece, associated=_MAGIC + (b"more" if following else b"last"), nonce=number)
        if not following:
            return
        number, piece = number + 1, following


def _row_sources(home: SiteFolder) -> list[Path]:
    """Return the files and folders within the site's folder that hold rows."""
    places = [home.folder / home.config.console.data]
    if home.config.rows is not None:
        source = home.config.rows.source.partition("#")[0]
        scheme, separator, path = source.partition("://")
        places += [home.folder / (unquote(path) if separator and scheme == "duckdb" else source)]
    root = home.folder.resolve()
    return [place for place in (each.resolve() for each in places) if root in place.parents]


def _belongs(path: Path, home: SiteFolder, row_sources: list[Path]) -> bool:
    inner = path.relative_to(home.folder)
    if path.is_symlink() or not path.is_file() or inner.name.startswith(".") or str(inner) in _LEFT_OUT:
        return False
    if any(place in (real := path.resolve(), *real.parents) for place in row_sources):
        return False
    ending = inner.name.lower().removesuffix(".wal").endswith(TABLE_FILES)  # DuckDB writes ahead to a file beside the table
    if ending and inner.parts[0] not in ("releases", "secrets"):
        return False
    return inner.parts[0] != "runs" or inner.name == "outcome.json"


def backup(home: SiteFolder, out: Path, passphrase: str, *, who: str | None = None) -> int:
    """Write the folder to a new file `out`, whole or not at all. Return the number of files in it.

    A service account needs no person: it can read all that the backup holds, and the backup is sealed. The log names it.
    """
    by = home.people.name_of() if who is None else home.people.require("manage", who)
    salt = Coins.system().bytes(16)
    key = _key(passphrase, salt)
    if out.exists():
        raise ConfigError(f"{out.name} exists already; nothing was overwritten")
    draft = out.with_name(f".{out.name}.draft")  # one that was left by a kill is replaced
    try:
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600), "wb") as file:
            file.write(_MAGIC + salt)
            sealing = _Sealing(file, key)
            with tarfile.open(fileobj=cast(IO[bytes], sealing), mode="w|", format=tarfile.PAX_FORMAT) as tar:
                count = _pack(tar, home)
            sealing.finish()
            file.flush()
            os.fsync(file.fileno())
        draft.rename(out)
        sync(out.resolve().parent)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
    home.audit.append("backed up", who=by)
    return count


def _pack(tar: tarfile.TarFile, home: SiteFolder) -> int:
    ledger, row_sources = home.ledger.path.resolve(), _row_sources(home)
    with home.audit.locked() as log, home.ledger.locked() as spent:
        count = _add(tar, "audit.log", log) + _add(tar, home.config.ledger, spent)
    for path in sorted(home.folder.rglob("*")):
        if _belongs(path, home, row_sources) and path.resolve() != ledger:
            with contextlib.suppress(FileNotFoundError):  # a run that ended in the meantime
                count += _add(tar, path.relative_to(home.folder).as_posix(), path.read_bytes())
                _require_limits(count, tar.offset)
    return count


def _require_limits(files: int, size: int) -> None:
    if files > _MAX_FILES or size > _MAX_BYTES:
        raise ConfigError(f"a backup holds at most {_MAX_FILES} files and {_MAX_BYTES >> 30} GiB; take old releases out")


def _add(tar: tarfile.TarFile, name: str, content: bytes) -> int:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(content), 0o600
    tar.addfile(entry, io.BytesIO(content))
    return 1


def restore(file: Path, folder: Path, passphrase: str) -> SiteFolder:
    """Restore a backup into a new folder. Nothing runs there before `acknowledge`.

    It is unpacked, checked and marked in a hidden folder within it; site.toml, which makes a folder a site, moves out last.
    """
    draft = make_private_folder(folder) / _DRAFT
    if any(folder.iterdir()) and (not draft.exists() or (folder / "site.toml").exists()):
        raise ConfigError(f"{folder.name} is not empty: a backup is brought back into a new folder, never over an old one")
    try:
        draft.mkdir(mode=0o700)
    except FileExistsError:
        raise ConfigError(f"{folder.name} is no site: a restore did not end there, or runs still; empty it first") from None
    try:
        with file.open("rb") as source:
            if source.read(len(_MAGIC)) != _MAGIC:
                raise ConfigError(f"{file.name} is no backup of a site")
            key = _key(passphrase, source.read(16))
            _unpack(_opened(source, key), draft)
        home = SiteFolder.open(draft)
        home.audit.verify()
        home.ledger.verify()
        last = home.audit.entries()[-1]
        home.audit.append("restored", of=last["time"], at=last["number"])
        for study in home.approvals.all():
            home.decisions.withdraw(study, "the site came back from a backup")
        for path in (*draft.rglob("*"), draft):
            sync(path)
        for path in sorted(draft.iterdir(), key=lambda path: path.name == "site.toml"):
            sync(folder)  # what came before is there before what follows
            path.rename(folder / path.name)
        draft.rmdir()
        sync(folder)
        sync(folder.resolve().parent)
    except IntegrityError:
        raise ConfigError("the passphrase does not open the backup, or it was changed; nothing can be used of it") from None
    except (tarfile.TarError, ValueError, IndexError):
        raise ConfigError(f"{file.name} holds no folder of a site") from None
    except OSError as error:
        if error.errno not in _BAD_NAMES:
            raise
        raise ConfigError(f"{file.name} holds no folder of a site") from None
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return SiteFolder.open(folder)


def _unpack(pieces: Iterator[bytes], folder: Path) -> None:
    class Reader(io.RawIOBase):
        rest = b""

        def readable(self) -> bool:
            return True

        def readinto(self, buffer: Any) -> int:
            if not self.rest:
                self.rest = next(pieces, b"")
            part = self.rest[: len(buffer)]
            self.rest = self.rest[len(part) :]
            buffer[: len(part)] = part
            return len(part)

    with tarfile.open(fileobj=io.BufferedReader(Reader()), mode="r|") as tar:
        size = 0
        for number, entry in enumerate(tar, 1):
            parts = PurePosixPath(entry.name).parts
            content = tar.extractfile(entry)
            size += entry.size
            _require_limits(number, size)
            if not entry.isreg() or entry.issparse() or content is None or not parts or {"..", "/"} & set(parts):
                raise ConfigError("the backup holds something that is no file of a site")
            target = make_private_folder(folder.joinpath(*parts[:-1])) / parts[-1]
            handle = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(handle, "wb") as out:
                while piece := content.read(_PIECE):
                    out.write(piece)
                out.flush()
                os.fsync(out.fileno())
    for _ in pieces:  # the last piece proves that none is missing
        pass


def acknowledge(
    home: SiteFolder,
    why: str,
    *,
    nothing_ran: bool = False,
    epsilon: float | None = None,
    delta: float | None = None,
    who: str | None = None,
) -> dict[str, Any]:
    """Record what is known about the time since the backup, and book the worst case of the rest.

    `nothing_ran`: no run of any kind began or went on since, by the logs of the other sites. `epsilon` and `delta`: the cost of
    all runs since together, by the studies that the other sites ran with this one; where one is None, all that is left of it
    counts as spent. Nothing is derived from this folder's own policy, which is as old as the backup. Unless nothing ran, exact
    sums are refused for tables that the log does not bind, and shares of models are destroyed.
    """
    from blindbayes.agent.approvals.people import require_reason

    by, reason = home.people.require("approve", who), require_reason(why)
    if (restored := home.history.behind()) is None:
        raise ConfigError("this site did not come back from a backup, or was acknowledged before")
    if nothing_ran and (runs := home.history.unended(at=restored["number"])):
        raise ConfigError(
            f"run {runs[0][:16]} was under way at the backup, and what it opened afterwards is not in this log: leave "
            "nothing_ran out, and give epsilon and delta where they are known"
        )
    if nothing_ran and (epsilon or delta):
        raise ConfigError("if nothing ran since the backup, nothing was spent: leave epsilon and delta out")
    if not all(0 <= (each or 0.0) < math.inf for each in (epsilon, delta)):
        raise ConfigError("epsilon and delta are what was spent: 0 or more")
    balance = home.ledger.balance()
    left = (float(balance.epsilon) - balance.spent_epsilon, float(balance.delta) - balance.spent_delta)
    spent = (0.0, 0.0) if nothing_ran else (epsilon, delta)
    booked = [max(rest if each is None else min(rest, each), 0.0) for rest, each in zip(left, spent, strict=True)]
    if not booked[0]:
        booked = [0.0, 0.0]  # no release has a delta alone, and without an epsilon left none can follow
    else:
        home.ledger.book(*booked, purpose="lost with a disk: the worst case")
    if not nothing_ran:
        for share in home.shares.all():
            home.shares.destroy(share["run"], who=by)
    home.audit.append("acknowledged", why=reason, who=by, epsilon=booked[0], delta=booked[1], exact_sums=nothing_ran)
    return {"epsilon": booked[0], "delta": booked[1], "left": home.ledger.balance().left}
