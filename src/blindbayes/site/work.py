"""What a run computes at one site, apart from how agents carry it out.

An agent reads the site's input (`read`), opens a journal per role under the input's digest, and drives the roles. Once
everybody has come, `look` is the last look before anything depends on this site's rows: what it charges or refuses is on disk
before the first step. `finish` makes what the roles returned durable and writes the release; after a crash it may be called
again with the same and does no more.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from blindbayes.primitives.coins import Coins
from blindbayes.protocol.core import Role, Run
from blindbayes.site.folder import SiteFolder
from blindbayes.study.file import NOISY, StudyFile
from blindbayes.transport.driver import Finished
from blindbayes.transport.identity import Identity


class Work(Protocol):
    """One run's work at this site. `read` and `finish` run in a thread."""

    study: StudyFile
    kind: str  # for people: "sum", "training", "prediction", "release"

    @property
    def required(self) -> int:
        """The fewest roles that must have come before anything is computed."""
        ...

    def read(self) -> None:
        """Read what this site brings. Raises what policy raises."""
        ...

    def digest(self, seat: str) -> bytes:
        """Keyed digest of the input of a role; a run that is taken up again must find the same."""
        ...

    def role(self, seat: str, run: Run, coins: Coins) -> Role[Any]:
        """The role in a seat that this site hosts."""
        ...

    def look(self, seat: str) -> None:
        """Everybody has come. Called again when a run is taken up after a crash."""
        ...

    def finish(self, finished: Mapping[str, Finished]) -> Path:
        """Keep what the roles returned; the release folder."""
        ...

    def close(self) -> None:
        """Let go of sources. Called in any case."""
        ...


def work_of(
    home: SiteFolder, identity: Identity, run_id: str, study: StudyFile, request: Mapping[str, Any] | None = None
) -> Work:
    """The work of a run: a classification if its people asked for one, else what the study says."""
    if study.protocol == NOISY:
        from blindbayes.site.noisy_work import Releasing

        return Releasing(home, identity, run_id, study)
    if study.partition == "columns":
        from blindbayes.site import column_work

        if request is not None:
            return column_work.Classifying(home, identity, run_id, study, column_work.Request.from_dict(request))
        return column_work.Training(home, identity, run_id, study)
    from blindbayes.site.sum_work import Summing

    return Summing(home, identity, run_id, study)
