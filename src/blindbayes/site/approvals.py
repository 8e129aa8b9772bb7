"""Studies that a site's people said yes to: `approved/<hash>.toml`, each for a number of runs."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

from blindbayes.errors import BlindbayesError, ConfigError
from blindbayes.site.audit_log import AuditLog
from blindbayes.storage.files import make_private_folder, write_whole
from blindbayes.study.file import StudyFile


@dataclass(slots=True)
class Approvals:
    """The folder `approved/`."""

    folder: Path
    audit: AuditLog
    _read: dict[str, tuple[int, StudyFile]] = field(default_factory=dict, repr=False)  # by hash, with mtime

    def approve(self, study: StudyFile, *, runs: int = 1) -> None:
        """Say yes to a study, by its hash, for a number of runs from now on."""
        folder = make_private_folder(self.folder)
        write_whole(folder / f"{study.sha256}.toml", study.to_toml().encode())
        used = sum(entry["event"] == "computing" and entry["study"] == study.sha256 for entry in self.audit.entries())
        write_whole(folder / f"{study.sha256}.runs", str(used + runs).encode())
        self.audit.append("approved", study=study.sha256, runs=runs)

    def revoke(self, sha256: str) -> None:
        """Take an approval back."""
        path = self.folder / f"{sha256}.toml"
        if not path.exists():
            raise ConfigError("no study of that hash is approved here")
        path.unlink()
        (self.folder / f"{sha256}.runs").unlink(missing_ok=True)
        self.audit.append("revoked", study=sha256)

    def find(self, sha256: str) -> tuple[StudyFile, int] | None:
        """The approved study of that hash and for how many runs in all, or None. Unknown and unapproved are one."""
        if len(sha256) != 64 or not set(sha256) <= set("0123456789abcdef"):
            return None
        path = self.folder / f"{sha256}.toml"
        try:
            if path.name not in os.listdir(path.parent):  # a name that was there once may be cached: ask for none
                return None
            changed = path.stat().st_mtime_ns
            if self._read.get(sha256, (None,))[0] != changed:
                self._read[sha256] = (changed, StudyFile.from_toml(path))
            study = self._read[sha256][1]
            runs = int(path.with_suffix(".runs").read_text())
        except (BlindbayesError, OSError, ValueError):
            return None
        return (study, runs) if study.sha256 == sha256 else None

    def all(self) -> list[StudyFile]:
        """All approved studies."""
        found = (self.find(path.stem) for path in sorted(self.folder.glob("*.toml")))
        return [each[0] for each in found if each is not None]
