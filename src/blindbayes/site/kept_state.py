"""What a role of this site keeps from one run of a study to the next: sealed, in the folder, and in no backup.

It is in one place at a time: in the folder, or in the journal of the one open run that took it from there. What follows from it
comes to the folder when that run has ended well, and its journal is gone: whoever reads a folder while a run is held open
learns nothing of other runs. A run that begins meanwhile, or after one that failed, finds nothing, and begins as a first one.
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
        self._next = b""

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

    def take(self) -> None:
        """It stands in the run's journal now, and for no other run."""
        if self._found and self._read() == self._found:
            erase(self._path)

    def keep(self, state: bytes) -> None:
        """For the next run, once this one has ended."""
        self._next = state

    def settle(self) -> None:
        """The run has ended well, and its journal is gone. What a run that began later left stays."""
        if self._next and not self._read():
            make_private_folder(self._path.parent)
            write_whole(self._path, seal_fresh(self._key, self._next, associated=self._about))
