"""A site's shares of models over columns: `shares/<training run>.share`; never part of a release."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from blindbayes.agent.runs.folders import require_run_id
from blindbayes.disclosure.audit_log import AuditLog
from blindbayes.disclosure.history import History
from blindbayes.errors import ConfigError, DataError
from blindbayes.io.files import erase, make_private_folder
from blindbayes.naive_bayes.shares import KeptShare, ModelShare, ShareHead


@dataclass(frozen=True, slots=True)
class ShareFolder:
    """Shares of models, stored in the folder `shares/`."""

    folder: Path
    audit: AuditLog
    history: History

    def _share_path(self, run_id: str) -> Path:
        return self.folder / f"{require_run_id(run_id)}.share"

    def keep(self, run_id: str, share: KeptShare) -> None:
        """Store the share of a training run. A resumed run may find it stored already, or destroyed."""
        if self.history.was_destroyed(run_id):
            share.wipe()
            raise ConfigError("this site's share of that model was destroyed; a run that goes on does not bring it back")
        path = make_private_folder(self.folder) / self._share_path(run_id).name
        if not path.exists():
            share.save(path)

    def load(self, run_id: str, kind: type[Any] = ModelShare) -> Any:
        """Return this site's share of the model of a training run."""
        path = self._share_path(run_id)
        if not path.exists():
            raise ConfigError(
                "this site holds no share of that model: it was destroyed, or the training run is another one; "
                "`blindbayes site shares` lists what there is"
            )
        share = kind.load(path)
        if share.public.get("run") != run_id:
            raise ConfigError("the share file belongs to another training run; was it renamed?")
        if self.history.was_destroyed(run_id):
            raise ConfigError(
                "this site's share of that model was destroyed, and the file is a copy: `blindbayes site destroy` it too"
            )
        return share

    def all(self) -> list[dict[str, Any]]:
        """Return the study, training run and queries of every share."""
        shares = []
        for path in sorted(self.folder.glob("*.share")):
            if self.history.was_destroyed(path.stem):  # a copy that came back, from a backup for example
                continue
            share = self.load(path.stem, ShareHead)
            spent = max(share.spent, self.history.classified(share.study))
            shares.append({"run": path.stem, "study": share.study, "queries": share.queries, "spent": spent})
        return shares

    def destroy(self, run_id: str, *, who: str | None = None) -> None:
        """Erase this site's share. Without it nobody can classify with that model."""
        path = self._share_path(run_id)
        if not self.history.was_destroyed(run_id):
            try:
                study = self.load(run_id, ShareHead).study
            except DataError:  # a damaged share is erased, too
                study = ""
            # Logged first: a copy that a crash leaves behind, or a backup brings back, is never used.
            self.audit.append("destroyed", run=run_id, study=study, **({} if who is None else {"who": who}))
        elif not path.exists():
            raise ConfigError("this site holds no share of that model: it was destroyed before")
        for each in (path, path.with_name(path.name + ".spent")):
            erase(each)
