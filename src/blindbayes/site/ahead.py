"""The folder `ahead/`: packs of material for classifications, each sealed, each for one run.

A pack is a folder `<run that made it>.<other site>` with `key` (name, facts, record key; sealed under the storage key) and
`records`, sealed under the record key. A run that takes one has a line in the audit log first, on disk; then the pack moves
into the run's own folder, where a replay of that run finds it and nothing else looks. It goes when the run ends, however it
ends. A pack that the log says was taken is never offered again; a folder that was set back with its log does not know (SPEC,
"Before the data comes"). Backups leave packs out.
"""

from __future__ import annotations

import hashlib
import os
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec

from blindbayes.errors import BlindbayesError, ConfigError, IntegrityError, LocalProtocolError
from blindbayes.primitives.aead import seal, seal_fresh, unseal, unseal_fresh
from blindbayes.primitives.coins import Coins
from blindbayes.protocol.shared_argmax.ahead import MOST_OFFERED
from blindbayes.scheme.ahead import Spent, ahead_of
from blindbayes.site.audit_log import AuditLog
from blindbayes.site.runs import RunFolders, erase_pack
from blindbayes.storage.files import make_private_folder, read_private, sync, sync_folder, write_whole
from blindbayes.transport.journal import code_version

USED = "material used"
_HEAD = b"blindbayes ahead "
_NAME = 32


class _Head(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """What is known of a pack."""

    name: bytes
    facts: bytes
    key: bytes
    code: str
    ends: tuple[int, ...]  # of the sealed records

    def __repr__(self) -> str:
        return "_Head(<redacted>)"


class AheadFolder:
    """See the module's docstring."""

    def __init__(self, folder: Path, runs: RunFolders, audit: AuditLog) -> None:
        self.folder, self.runs, self.audit, self.lock = folder, runs, audit, threading.Lock()
        self.held: dict[str, str] = {}  # packs that were promised to runs under way
        self.drafts: dict[str, int] = {}  # bytes that were promised to packs that are being made

    def packs(self) -> list[Path]:
        """Those that may be used."""
        used = self.used()
        return [path for path in sorted(self.folder.glob("[0-9a-f]*.*")) if path.name not in used and (path / "key").exists()]

    def used(self) -> dict[str, str]:
        """Packs that were taken, and by which run."""
        return {entry["pack"]: entry["run"] for entry in self.audit.of("event", USED)}

    def size(self) -> int:
        """Bytes on disk; what is being made counts as large as it may become."""
        return sum(path.stat().st_size for path in self.folder.glob("[0-9a-f]*/*")) + sum(self.drafts.values())

    def ready(self) -> dict[str, Counter[int]]:
        """How many packs of which size there are, by model; of a pair's packs each counts."""
        found: dict[str, Counter[int]] = {}
        for path in self.packs():
            model, size = ahead_of(path.name.partition(".")[0]) or ("", 0)
            found.setdefault(model, Counter())[size] += 1
        return found

    def show(self, most_mb: int) -> dict[str, Any]:
        """For people: sizes and how many packs of each, by model."""
        ready = {model: {str(size): count for size, count in sorted(packs.items())} for model, packs in self.ready().items()}
        return {"ready": ready, "bytes": self.size(), "most_bytes": most_mb * 1024**2}

    def burn(self, model: str = "") -> int:
        """Erase all packs, or those of one model; how many."""
        gone = [path for path in self.folder.glob(f"*{model}*") if path.is_dir()]
        for path in gone:
            erase_pack(path)
        return len(gone)

    def tidy(self, key: bytes) -> None:
        """When the agent starts: drafts, and packs that were used, cannot be read or are of other software, are gone."""
        heads = {path: _head(path, key) for path in self.packs()}
        left = {path for path, head in heads.items() if head is not None and head.code == code_version()}
        for path in self.folder.glob("*"):
            if path not in left:
                erase_pack(path)

    def shelf(self, key: bytes, most_mb: int) -> FolderShelf | None:
        """For jobs; None where nothing is made ahead."""
        return FolderShelf(self, key, most_mb * 1024**2) if most_mb else None

    def release(self, run_id: str) -> None:
        """A run has ended: what it was promised and did not take is free again; what it did not finish is gone."""
        for pack in [pack for pack, holder in self.held.items() if holder == run_id]:
            del self.held[pack]
        for pack in [pack for pack in self.drafts if pack.startswith(run_id)]:
            del self.drafts[pack]
            erase_pack(self.folder / f".{pack}")


class FolderShelf:
    """See `scheme.ahead.Shelf`."""

    def __init__(self, home: AheadFolder, key: bytes, most: int) -> None:
        self._home, self._key, self._most = home, key, most

    def draft(self, run_id: str, other: str, facts: bytes, most_bytes: int) -> FolderDraft:
        """A new pack, within the bound on all of them."""
        used = self._home.size()
        if used + most_bytes > self._most:
            raise ConfigError(
                f"material for that many instances takes {most_bytes / 1e6:.0f} MB; of {self._most // 1024**2} MB (ahead_mb) "
                f"{used / 1e6:.0f} are taken: ask for fewer, burn some (`blindbayes site burn MODEL`), or raise ahead_mb"
            )
        self._home.drafts[f"{run_id}.{other}"] = most_bytes
        return FolderDraft(self._home, f"{run_id}.{other}", facts, self._key, most_bytes)

    def note(self, run_id: str, spent: Spent) -> None:
        for path in self._home.folder.glob(f"{run_id}.*"):
            write_whole(path / "spent", msgspec.msgpack.encode(spent))

    def offered(self, run_id: str, other: str, facts: bytes, count: int) -> list[bytes]:
        """What a run was promised is noted, since a replay must say the same."""
        home = self._home
        note = make_private_folder(home.runs.folder(run_id)) / f"offered.{other}"
        if note.exists():
            told = read_private(note)
            return [told[at : at + _NAME] for at in range(0, len(told), _NAME)]
        found = []
        with home.lock:
            for path in home.packs():
                made, _, peer = path.name.partition(".")
                size = (ahead_of(made) or ("", 0))[1]
                if peer == other and size >= count and path.name not in home.held:
                    head = _head(path, self._key)
                    if head is not None and head.facts == facts:
                        order = hashlib.sha256(run_id.encode() + head.name).digest()  # runs at one time take different ones
                        found.append((size, order, head.name, path.name))
            best = sorted(found)[:MOST_OFFERED]
            home.held |= {pack: run_id for *_, pack in best}
        draft = note.with_name(f".{note.name}")  # not synced: a power cut that takes it ends the run, and nothing else
        with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            file.write(b"".join(name for _, _, name, _ in best))
        draft.rename(note)
        return [name for _, _, name, _ in best]

    def take(self, run_id: str, other: str, name: bytes) -> tuple[str, FolderRecords, Spent]:
        """The log first: then it is this run's, whatever a crash undoes."""
        home, target = self._home, self._home.runs.folder(run_id) / f"ahead.{other}"
        with home.lock:
            used = home.used()
            for path in () if target.exists() else sorted(home.folder.glob("[0-9a-f]*.*")):
                head = _head(path, self._key) if path.name.partition(".")[2] == other else None
                if head is not None and head.name == name and used.get(path.name, run_id) == run_id:
                    if path.name not in used:
                        home.audit.append(USED, run=run_id, pack=path.name)
                    path.rename(target)
                    break
            home.held = {pack: run for pack, run in home.held.items() if run != run_id or pack.partition(".")[2] != other}
        if not target.exists():
            raise LocalProtocolError("the material that the run was promised is gone: it is burned")
        pack = next((each for each, run in home.used().items() if run == run_id and each.partition(".")[2] == other), "")
        head = _head(target, self._key, pack)
        if head is None or head.name != name:
            raise IntegrityError()
        return pack.partition(".")[0], FolderRecords(target / "records", head), _spent(target)


class FolderDraft:
    """See `scheme.ahead.Draft`: without a key until it is whole, so that a crash leaves nothing that can be used."""

    def __init__(self, home: AheadFolder, pack: str, facts: bytes, storage_key: bytes, most: int) -> None:
        self._home, self._pack, self._facts, self._storage_key, self._most = home, pack, facts, storage_key, most
        self._key, self._ends, self._folder = Coins.system().bytes(32), list[int](), home.folder / f".{pack}"
        erase_pack(self._folder)
        make_private_folder(self._folder)

    def write(self, record: bytes) -> None:
        """Sealed, at the end."""
        body = seal(self._key, record, associated=_place(len(self._ends)), nonce=len(self._ends))
        self._ends.append((self._ends[-1] if self._ends else 0) + len(body))
        if self._ends[-1] > self._most:
            raise LocalProtocolError("material is larger than its shape allows")
        with open(os.open(self._folder / "records", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "ab") as file:
            file.write(body)

    def keep(self, name: bytes) -> None:
        """The key last."""
        head = msgspec.msgpack.encode(_Head(name, self._facts, self._key, code_version(), tuple(self._ends)))
        sealed = seal_fresh(self._storage_key, head, associated=_HEAD + self._pack.encode())
        sync(self._folder / "records")
        write_whole(self._folder / "key", sealed)
        self._folder.rename(self._home.folder / self._pack)
        sync_folder(self._home.folder)
        self._home.drafts.pop(self._pack, None)


class FolderRecords:
    """See `protocol.shared_argmax.ready.Records`."""

    def __init__(self, path: Path, head: _Head) -> None:
        self._path, self._head = path, head

    def read(self, index: int) -> bytes:
        if not 0 <= index < len(self._head.ends):
            raise IntegrityError()
        first, last = self._head.ends[index - 1] if index else 0, self._head.ends[index]
        with self._path.open("rb") as file:
            file.seek(first)
            body = file.read(last - first)
        return unseal(self._head.key, body, associated=_place(index), nonce=index)


def _place(index: int) -> bytes:
    return b"blindbayes ahead record %d" % index


def _head(path: Path, key: bytes, pack: str = "") -> _Head | None:
    """What a pack is; None: it cannot be read, and is not used. `pack`: the name that it had before it was taken."""
    try:
        named = _HEAD + (pack or path.name).encode()
        found = unseal_fresh(key, read_private(path / "key"), associated=named)
        return msgspec.msgpack.decode(found, type=_Head)
    except (BlindbayesError, msgspec.MsgspecError, OSError):
        return None


def _spent(path: Path) -> Spent:
    try:
        return msgspec.msgpack.decode((path / "spent").read_bytes(), type=Spent)
    except (OSError, msgspec.MsgspecError):
        return Spent()
