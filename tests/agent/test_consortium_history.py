"""Three years of a consortium: sites come and go, tables grow and shrink, agents crash; every total is the recount.

Noise is subtracted for the comparison: each contribution's is written down as it is drawn. The short form runs the same jobs in
one process, the long one agents with journals, ledgers and approvals, the last one real processes.
"""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from blindbayes.crypto.coins import Coins
from blindbayes.data import count_table
from blindbayes.net.identity import Identity
from blindbayes.study.file import Deadlines, Limits, Privacy
from blindbayes.study.roster import Change, Party
from blindbayes.study.tasks.sum_plan import Sum
from blindbayes.testing.loopback import make_study_file
from blindbayes_papers.huai2015.oblivious_sum.membership import Groups, max_rekeyed
from support.consortium import BOOK, Consortium, done, edit, office
from support.sites import bounded

POOL = tuple(f"site{at:02}" for at in range(16))
LIVING = {"protocol": "oblivious_sum", "privacy": Privacy(epsilon=1.0), "limits": Limits(min_parties=2)}


@pytest.fixture
def noise(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """By site, the noise of its latest contribution. A run that is taken up after a crash draws the same again."""
    found: dict[str, Any] = {}
    real = Sum.contribution

    def contribution(self: Sum, statistics: Any, coins: Coins, removed: Any = None, name: Any = None) -> Any:
        vector = real(self, statistics, coins, removed, name)
        if self.plan is not None:
            changed = statistics if removed is None else statistics - removed
            found[name] = vector.view(np.int64) - self.plan.vector(changed)
        return vector

    monkeypatch.setattr(Sum, "contribution", contribution)
    return found


def rows(chance: random.Random, count: int) -> list[tuple[str, str]]:
    return [(chance.choice(BOOK.classes), chance.choice(("red", "blue", "green"))) for _ in range(count)]


def table(found: list[tuple[str, str]]) -> pa.Table:
    text = pa.string()
    return pa.table({"class": pa.array([a for a, _ in found], text), "colour": pa.array([b for _, b in found], text)})


def test_three_years_in_one_process_are_the_recount(noise: dict[str, Any]) -> None:
    chance = random.Random(3)
    sites = {name: Identity.generate(name) for name in POOL}

    def party(name: str) -> Party:
        return Party(name, sites[name].card.identity.hex(), key=sites[name].card.key)

    sparse = {"width": 2}  # four segments and more
    options = {"scheme": "ristretto", "keys": "standing", "views": True, **sparse}
    founders = POOL[:10]
    parties = tuple(map(party, founders))
    study = make_study_file(
        title="living", parties=parties, codebook=BOOK, hosts={"miner": "site00"}, options=options, **LIVING
    )
    held = {name: rows(chance, 30) for name in founders}
    result = study.simulate({name: table(held[name]) for name in founders}, coins=Coins.seeded(bytes(32)))
    total = sum(noise.values())
    for step in range(30):
        before, added, taken = study, {}, {}
        members = study.contributors
        leaver = chance.choice(members[1:]) if len(members) > 8 and (step % 2 or len(members) == len(POOL)) else None
        for name in members:
            added[name], taken[name] = (
                rows(chance, chance.randrange(4)),
                chance.sample(held[name], min(len(held[name]), chance.randrange(3))),
            )
        if leaver is not None:  # in its last run it takes everything back
            added[leaver], taken[leaver] = [], list(held[leaver])
        noise.clear()
        result = study.simulate(
            {name: table(added[name]) for name in members}, removed={name: table(taken[name]) for name in members}, base=result
        )
        total = total + sum(noise.values())
        for name in members:
            for each in taken[name]:
                held[name].remove(each)
            held[name] += added[name]
        public = study.agreement.task
        counted = sum(public.plan.vector(count_table(table(each), public.counting, lenient=True)) for each in held.values())
        assert (result.total == counted + total).all()
        copies = sum(1 / public.sum.honest_of(name) for name in members) * public.plan.noise.honest
        assert len(members) <= copies <= 2 * len(members) + 2  # Huai's Theorem 2, with whole numbers of honest sites
        if leaver is None:
            name = chance.choice([name for name in POOL if name not in members])
            study, held[name] = study.change(Change(study.roster.sha256, (party(name),))), []
        else:
            study, _ = study.change(Change(study.roster.sha256, remove=(leaver,))), held.pop(leaver)
        old, new = (Groups.after(each.setting.founders, each.setting.steps, 2) for each in (before, study))
        again = {name for name in set(old.parties) & set(new.parties) if set(old.neighbours(name)) != set(new.neighbours(name))}
        assert len(again) <= max_rekeyed(2)
    assert result.runs == 31
    assert result.spent == (2.0, 0.0)  # a record comes once and goes once


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_three_years_of_ten_agents_with_crashes_are_the_recount(tmp_path: Path, noise: dict[str, Any]) -> None:
    async def test() -> None:
        chance = random.Random(5)
        async with office(tmp_path, POOL) as here:
            patient = Deadlines(step=120, join=120, run=300)
            club = Consortium(here, POOL[:10], deadlines=patient)
            last = done(await club.run())
            total, crashes = sum(noise.values()), 0
            for step in range(30):
                members = club.study.contributors
                leaver = chance.choice(members[1:]) if len(members) > 8 and step % 2 else None
                for name in chance.sample(members, 3):
                    edit(tmp_path, name, step, add=chance.randrange(5), remove=chance.randrange(3))
                if leaver is not None:
                    club.home(leaver).audit.append("withdrew", study=club.study.sha256)
                noise.clear()
                run = here.agents["site00"].begin(club.study.sha256, last)
                if step % 3 == 0:  # a site crashes within the run, and comes back
                    victim = chance.choice(members[1:])
                    while not club.home(victim).runs.has_begun(run.run_id) and not run.done.is_set():
                        await asyncio.sleep(0.001)
                    await asyncio.sleep(chance.random() * 0.2)
                    if not here.agents[victim].runs[run.run_id].done.is_set():
                        crashes += 1
                    await here.stop(victim)
                    await here.start(victim)
                await run.done.wait()
                last = done(await here.ended(run.run_id))
                total = total + sum(noise.values())
                present = [name for name in members if name != leaver]
                assert (club.total(last).total == club.recount(*present) + total).all()
                if leaver is None:
                    name = chance.choice([name for name in POOL if name not in members])
                    club.change(add=(name,))
                else:
                    club.change(remove=(leaver,))
                    club.home(leaver).approvals.revoke(club.study.sha256)
                    club.home(leaver).audit.append("returned", study=club.study.sha256)  # should it come again
            assert crashes >= 5
            spent = {name: club.spent(name) for name in POOL if club.spent(name)}
            assert spent["site00"] == 2  # 31 runs, and two that a record can move

    bounded(test, 900, wall=True)  # crashes come while they compute
