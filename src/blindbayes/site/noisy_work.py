"""The work of noisy_histograms: this site releases noisy counts of its own columns to the miner, or builds the model."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from blindbayes.primitives.coins import Coins
from blindbayes.protocol.core import Role, Run
from blindbayes.site.difference import Data, data_state
from blindbayes.site.folder import SiteFolder
from blindbayes.site.policy import require_rows
from blindbayes.site.release import write_histograms
from blindbayes.statistics import Statistics
from blindbayes.study.file import StudyFile
from blindbayes.transport.driver import Finished
from blindbayes.transport.events import tell
from blindbayes.transport.identity import Identity


class Releasing:
    """See `work.Work`."""

    kind = "release"

    def __init__(self, home: SiteFolder, identity: Identity, run_id: str, study: StudyFile) -> None:
        self.study = study
        self._home, self._identity, self._run_id = home, identity, run_id
        self._statistics: Statistics | None = None
        self._data: Data | None = None

    @property
    def required(self) -> int:
        """Everybody."""
        return len(self.study.seats)

    def read(self) -> None:
        """Count this site's columns, if it holds any."""
        study, name = self.study, self._identity.name
        if name in study.noisy.names:
            source, columns = self._home.tables.open_columns(study, name)
            with source:
                require_rows(self._home.config.policy, study, columns.rows)
                self._statistics = study.noisy.count(name, columns)
            self._data = data_state(self._identity.storage_key, self._statistics)

    def digest(self, seat: str) -> bytes:
        """Of the statistics."""
        return b"" if self._data is None else bytes.fromhex(self._data.statistics)

    def role(self, seat: str, run: Run, coins: Coins) -> Role[Any]:
        """Noise comes from the run's coins: a replay adds the same."""
        return self.study.noisy.role(run, self._statistics if seat == self._identity.name else None, coins.derive("noise"))

    def look(self, seat: str) -> None:
        """Approval, rate, ledger; once per run."""
        home, study, run_id = self._home, self.study, self._run_id
        if seat != self._identity.name or home.history.has_computed(run_id):
            return
        home.require_leave(study, time.time())
        home.payments.charge_histograms(study, seat, run_id)
        home.audit.append("computing", run=run_id, study=study.sha256, exact=False, partition="columns")
        tell("run_computing", run=run_id, study=study.sha256, contributors=len(study.noisy.names))

    def finish(self, finished: Mapping[str, Finished]) -> Path:
        """The model, at the miner's site; a report elsewhere."""
        return write_histograms(self._home.folder / "releases", self._run_id, self.study, finished, self._identity)

    def close(self) -> None:
        """Nothing is held."""
