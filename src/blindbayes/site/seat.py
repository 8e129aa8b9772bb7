"""One role of a run at this site: its journal, its links, its driver."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from blindbayes.errors import BlindbayesError, LocalProtocolError, ProtocolError
from blindbayes.primitives.coins import Coins
from blindbayes.protocol.core import Run
from blindbayes.site.folder import SiteFolder
from blindbayes.site.work import Work
from blindbayes.storage.files import make_private_folder, write_whole
from blindbayes.transport.driver import Finished, RoleDriver
from blindbayes.transport.envelope import Pair
from blindbayes.transport.identity import Identity
from blindbayes.transport.journal import Begun, Journal, code_version
from blindbayes.transport.link import Link, Timing
from blindbayes.transport.switchboard import Switchboard

Witness = Callable[[str, str, bytes, bytes, bytes], None]


class Seat:
    """A role that this site runs in one run, fresh or taken up from its journal."""

    def __init__(
        self,
        name: str,
        run_id: str,
        work: Work,
        home: SiteFolder,
        identity: Identity,
        board: Switchboard,
        *,
        timing: Timing | None,
        witness: Witness,
        heads: Callable[[], bytes],
    ) -> None:
        study = work.study
        self.name, self.study = name, study
        self._board = board
        base = timing or Timing()
        beat = min(base.beat, study.deadlines.step / 4)
        self._timing = replace(base, step=study.deadlines.step, join=study.deadlines.join, run=study.deadlines.run, beat=beat)
        self.journal = self._open_journal(run_id, home, identity, work.digest(name))
        coins = Coins.seeded(self.journal.begun.seed)
        wake = asyncio.Event()
        self.links: dict[str, Link] = {}
        identities = {seat: study.identity(seat) for seat in study.seats}
        run = Run(study.sha256, run_id, study.seats, name, identities, identity.signing)
        for peer in run.others:
            site = study.host(peer)
            self.links[peer] = Link(
                Pair(study.sha256, run_id, name, peer, identities[peer], identity.signing),
                self.journal,
                board.way(site),
                self._timing,
                wake=wake.set,
                listen=board.listen(site, name),
                commit=self._commit,
                heads=heads,
                witness=lambda shown, exchange, proof, site=site: witness(site, run_id, shown, exchange, proof),  # type: ignore[misc]
            )
            board.attach(site, self.links[peer])
        self.driver = RoleDriver(
            run,
            work.role(name, run, coins),
            self.journal,
            self.links,
            self._timing,
            wake=wake,
            required=work.required,
            before_first_step=lambda: work.look(name),
        )

    def _open_journal(self, run_id: str, home: SiteFolder, identity: Identity, data: bytes) -> Journal:
        """The journal of this role. A run whose input or code has changed since it began is burned."""
        folder = make_private_folder(home.runs.folder(run_id))
        quota = home.config.journal_quota_mb * 1024**2
        journal = Journal.find(folder / self.name, run_id, identity.storage_key, quota=quota)
        if journal is not None:
            begun = journal.begun
            if (begun.study, begun.run_id, begun.me) != (self.study.sha256, run_id, self.name):
                raise LocalProtocolError("a journal belongs to another run", party=self.name)
            if begun.input_digest != data:
                raise LocalProtocolError("the rows changed during the run: it is burned", party=self.name)
            if begun.code != code_version():
                raise LocalProtocolError("the software changed during the run: it is burned", party=self.name)
            return journal
        if home.history.has_computed(run_id):  # with other coins what it opened would be opened twice, and paid for once
            raise LocalProtocolError("the run was computed here before and its journal is gone: it is burned", party=self.name)
        write_whole(folder / "study", self.study.sha256.encode())
        begun = Begun(self.study.sha256, run_id, self.name, Coins.fresh_seed(), data, code_version())
        return Journal.create(folder / self.name, begun, identity.storage_key, quota=quota)

    async def _commit(self) -> None:
        if self.journal.dirty:
            await asyncio.to_thread(self.journal.commit)

    async def drive(self) -> Finished:
        """Run the role to its end."""
        return await self.driver.drive()

    def abort(self, error: BlindbayesError) -> None:
        """Tell the others that this site gave up."""
        named = error.party if isinstance(error, ProtocolError) else None
        seats = self.study.seats
        for link in self.links.values():
            link.abort(error.code, seats.index(named) if named in seats else -1)

    @property
    def abort_sent(self) -> bool:
        """The others know."""
        return all(link.abort_sent for link in self.links.values())

    def retire(self) -> None:
        """The run has ended well: destroy the journal, but keep answering those who ask how far we came."""
        for link in self.links.values():
            link.passive = True
        self.journal.erase()

    async def close(self) -> None:
        """Stop all links, keep the journal."""
        for link in self.links.values():
            await link.close()
        self.journal.close()

    def show(self) -> dict[str, Any]:
        """Counts and names for people."""
        progress = self.driver.progress
        return {
            "state": progress.state,
            "waiting_for": list(progress.waiting_for),
            "messages_in": progress.messages_in,
            "messages_out": progress.messages_out,
            "bytes_in": progress.bytes_in,
            "bytes_out": progress.bytes_out,
            "cpu_seconds": round(progress.cpu_seconds, 3),
            "resumed": sum(link.resumed for link in self.links.values()),
        }
