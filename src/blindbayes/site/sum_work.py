"""The work of a study over rows: this site's vector goes into a sum."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping
from pathlib import Path

from blindbayes.primitives.coins import Coins
from blindbayes.protocol import registry
from blindbayes.protocol.core import Role, Run
from blindbayes.protocol.registry import Total
from blindbayes.site.difference import Data, data_state, require_independent
from blindbayes.site.folder import SiteFolder
from blindbayes.site.moments import needs_every_word
from blindbayes.site.policy import require_rows
from blindbayes.site.release import write_release
from blindbayes.statistics import Statistics
from blindbayes.study.file import StudyFile
from blindbayes.transport.driver import Finished
from blindbayes.transport.events import tell
from blindbayes.transport.identity import Identity


class Summing:
    """See `work.Work`."""

    kind = "sum"

    def __init__(self, home: SiteFolder, identity: Identity, run_id: str, study: StudyFile) -> None:
        self.study = study
        self._home, self._identity, self._run_id = home, identity, run_id
        self._statistics: Statistics | None = None
        self._data: Data | None = None

    @property
    def required(self) -> int:
        """The quorum of contributors, and every other role."""
        study = self.study
        return study.setting.fewest + len(study.seats) - len(study.contributors)

    def read(self) -> None:
        """Count this site's rows, if it brings any."""
        study = self.study
        if self._identity.name in study.contributors:
            # Drawn by the site's key and the run: a run that is taken up again counts the same rows.
            seed = hashlib.blake2b(
                self._run_id.encode(), key=self._identity.storage_key[:64], digest_size=32, person=b"bb persons"
            )
            self._statistics = self._home.tables.count(study, Coins.seeded(seed.digest()))
            require_rows(self._home.config.policy, study, int(self._statistics.class_counts.sum()))
            self._data = data_state(self._identity.storage_key, self._statistics)

    def digest(self, seat: str) -> bytes:
        """Of the statistics."""
        return b"" if self._data is None else bytes.fromhex(self._data.statistics)

    def role(self, seat: str, run: Run, coins: Coins) -> Role[Total | None]:
        """A contributor's role, or one that the site hosts."""
        study, vector = self.study, None
        if seat == self._identity.name and self._statistics is not None:
            vector = study.study.contribution(self._statistics, study.setting, coins.derive("contribution"))
        return registry.load(study.protocol).role(run, study.setting, vector, coins.derive("role"))

    def look(self, seat: str) -> None:
        """Approval, rate, difference rule, ledger; once per run."""
        data, study, home, run_id = self._data, self.study, self._home, self._run_id
        if seat != self._identity.name or data is None or home.history.has_computed(run_id):
            return
        home.require_leave(study, time.time())
        names = {card.identity.hex(): name for name, card in home.peers().items()}
        me, past = self._identity.card.identity.hex(), home.history.past_sums()
        require_independent(home.config.policy, study, me, data, past, names=names)
        home.payments.charge(study, run_id)
        home.audit.append(
            "computing",
            run=run_id,
            study=study.sha256,
            exact=study.privacy.epsilon is None,
            codebook=data.codebook,
            columns=sorted(data.columns),
            data=data.statistics,
            class_data=data.class_counts,
            tables=[f"{digest} {column}" for column, digest in sorted(data.tables.items())],
            fewest=study.setting.fewest,
            moments=True,
            needs_every_word=needs_every_word(study),
            contributors=[study.party(name).identity for name in study.contributors],
        )
        tell("run_computing", run=run_id, study=study.sha256, contributors=len(study.contributors))

    def finish(self, finished: Mapping[str, Finished]) -> Path:
        """Write down whose vectors were opened together, then the release."""
        study, run_id = self.study, self._run_id
        totals = [each.value for each in finished.values() if each.value is not None]
        if totals:
            included = [study.party(name).identity for name in totals[0].included]
            self._home.audit.append("opened", run=run_id, study=study.sha256, included=included)
            tell("run_opened", run=run_id, study=study.sha256, sites=len(included))
        return write_release(self._home.folder / "releases", run_id, study, finished, self._identity)

    def close(self) -> None:
        """Nothing is held."""
