"""What a role of this site keeps from one run of a study to the next: sealed, in the folder, and in no backup.

It is overwritten before the new one is written: after a crash in between there is none, and the next run begins as a first one.
"""

from __future__ import annotations

from pathlib import Path

from blindbayes.errors import IntegrityError
from blindbayes.primitives.aead import seal_fresh, unseal_fresh
from blindbayes.storage.files import erase, make_private_folder, read_private, write_whole

FOLDER = "standing"


class KeptInFolder:
    """Fulfils `protocol.core.Kept`. `found` is what stood there when the run began, from its journal."""

    def __init__(self, folder: Path, study: str, seat: str, key: bytes, found: bytes | None = None) -> None:
        self._path, self._key = folder / FOLDER / f"{study[:32]}.{seat}", key
        self._about = f"standing {len(study)} {study} {seat}".encode()
        self._found = self._read() if found is None else found

    def _read(self) -> bytes:
        if not self._path.exists():
            return b""
        try:
            return unseal_fresh(self._key, read_private(self._path), associated=self._about)
        except IntegrityError:
            return b""  # torn, or another site's: nothing stands

    def load(self) -> bytes:
        """As the run found it."""
        return self._found

    def keep(self, state: bytes) -> None:
        """For the next run; not where another one that began later has gone on from here: that would bring back keys of runs
        that have ended."""
        if self._read() != self._found:
            return
        sealed = seal_fresh(self._key, state, associated=self._about)
        make_private_folder(self._path.parent)
        erase(self._path)
        write_whole(self._path, sealed)
