"""Sites of one process: real links, envelopes and journals over the memory courier."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from blindbayes.crypto.coins import Coins
from blindbayes.crypto.hybrid import curve_of
from blindbayes.net.driver import Finished, RoleDriver
from blindbayes.net.envelope import EnvelopePair
from blindbayes.net.identity import Identity
from blindbayes.net.journal import Begun, Journal
from blindbayes.net.link import Link
from blindbayes.net.router import Router
from blindbayes.net.sessions import Timing
from blindbayes.protocols.core import Role, Run
from support.hub import MemoryHub

STUDY = "ab" * 32
FAST = Timing(step=10.0, join=10.0, run=30.0, beat=0.1, retry=0.1)
MakeRole = Callable[[Run, Coins], Role[Any]]


class Site:
    """One seat at one site, with its journal on disk. `stop` is a crash: nothing is tidied up."""

    def __init__(
        self,
        mesh: Mesh,
        name: str,
        make: MakeRole,
        *,
        seed: bytes | None = None,
        required: int | None = None,
        timing: Timing | None = None,
    ) -> None:
        identity = mesh.identities[name]
        identities = {each: mesh.identities[each].card.identity for each in mesh.names}
        run = Run(STUDY, mesh.run_id, mesh.names, name, identities, identity.signing)
        folder = mesh.folder / name
        own, cards = identity.agreement.curve, {peer: mesh.identities[peer].card for peer in run.others}
        secrets = {peer: own.agree(curve_of(card.agreement)) for peer, card in cards.items()}
        if (folder / "journal").exists():
            self.journal = Journal.open(folder, mesh.run_id, identity.storage_key, secrets=secrets)
        else:
            begun = Begun(STUDY, mesh.run_id, name, seed or Coins.fresh_seed(), b"input", "code")
            self.journal = Journal.create(folder, begun, identity.storage_key, secrets=secrets)
        self.mesh, self.name = mesh, name
        self.board = Router(name, mesh.hub.courier(name))
        self.links: dict[str, Link] = {}
        for peer in run.others:
            pair = EnvelopePair(STUDY, mesh.run_id, name, peer, identities[peer], identity.signing)
            self.links[peer] = Link(pair, self.journal, self.board.route(peer, name), timing or mesh.timing)
            self.board.attach(peer, self.links[peer])
        role = make(run, Coins.seeded(self.journal.begun.seed))
        self.driver = RoleDriver(
            run,
            role,
            self.journal,
            self.links,
            timing or mesh.timing,
            required=len(mesh.names) if required is None else required,
        )

    async def go(self) -> Finished:
        await self.board.courier.start(self.board)
        self.task = asyncio.create_task(self.driver.drive())
        try:
            return await asyncio.shield(self.task)
        finally:
            if not self.task.cancelled():
                await asyncio.sleep(0.05)  # an abort leaves

    async def stop(self) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)
        for link in self.links.values():
            await link.close()
        await self.board.courier.stop()
        self.journal.close()


class Mesh:
    """The sites of one run."""

    def __init__(self, folder: Path, names: tuple[str, ...], *, timing: Timing = FAST, hub: MemoryHub | None = None) -> None:
        self.folder, self.names, self.timing = folder, names, timing
        self.hub = hub or MemoryHub()
        self.run_id = "run-1"
        self.identities = {name: Identity.generate(name) for name in names}

    async def run(self, makes: Mapping[str, MakeRole], **options: Any) -> dict[str, Finished | BaseException]:
        """Everybody at once; results or errors by name."""
        sites = {name: Site(self, name, make, **options) for name, make in makes.items()}
        try:
            results = await asyncio.gather(*(site.go() for site in sites.values()), return_exceptions=True)
        finally:
            for site in sites.values():
                await site.stop()
        return dict(zip(sites, results, strict=True))
