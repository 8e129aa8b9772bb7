"""A consortium whose sites come and go, with agents: standing keys, noise by views, sums of changes, rows taken back."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from blindbayes.agent.store.tables import Tables
from blindbayes.disclosure.charges import max_moved
from blindbayes.dp.distributed.noise_shares import DistributedNoise
from blindbayes.errors import ConfigError, PrivacyError
from blindbayes.study.file import Deadlines, Limits, Privacy
from support.consortium import EVERYBODY, Consortium, done, edit, office
from support.sites import bounded


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Every share of noise that is drawn, so that a noisy total can be compared with the recount."""
    found: list[Any] = []
    real: Callable[..., Any] = DistributedNoise.share

    def share(self: DistributedNoise, *given: Any, **more: Any) -> Any:
        noise = real(self, *given, **more)
        found.append(noise)
        return noise

    monkeypatch.setattr(DistributedNoise, "share", share)
    return found


def test_sites_come_and_go_and_every_total_is_the_recount_and_the_noise(tmp_path: Path, drawn: list[Any]) -> None:
    async def test() -> None:
        async with office(tmp_path) as here:
            club = Consortium(here, EVERYBODY[:3])
            first = done(await club.run())
            assert (club.total(first).total == club.recount() + sum(drawn)).all()
            club.change(add=("east",))
            edit(tmp_path, "south", 11, add=5, remove=2)
            runs = await club.run(base=first)
            assert set(runs) == set(EVERYBODY[:4])
            second = done(runs)
            assert (club.total(second).total == club.recount() + sum(drawn)).all()
            assert club.total(second).runs == 2
            # west takes its rows back and leaves; centre comes
            club.home("west").audit.append("withdrew", study=club.study.sha256)
            edit(tmp_path, "east", 12, add=7)
            third = done(await club.run(base=second))
            assert (club.total(third).total == club.recount("north", "south", "east") + sum(drawn)).all()
            club.change(add=("centre",), remove=("west",))
            fourth = done(await club.run(base=third))
            assert (club.total(fourth).total == club.recount("north", "south", "east", "centre") + sum(drawn)).all()
            # A record pays when it comes and when it goes: two releases, however many there are.
            assert {name: club.spent(name) for name in EVERYBODY} == {
                "north": 2,
                "south": 2,
                "west": 2,
                "east": 2,
                "centre": 1,
            }
            shown = (here.agents["north"].home.folder / "releases" / fourth / "statement.md").read_text()
            assert "epsilon = 2" in shown

    bounded(test, 90)


def test_a_run_without_a_base_begins_anew_and_pays_in_full(tmp_path: Path, drawn: list[Any]) -> None:
    async def test() -> None:
        async with office(tmp_path, EVERYBODY[:3]) as here:
            club = Consortium(here, EVERYBODY[:3], privacy=Privacy(epsilon=1.0))
            first = done(await club.run())
            del drawn[:]
            again = done(await club.run())
            assert (club.total(again).total == club.recount() + sum(drawn)).all()
            assert club.spent("south") == 2
            with pytest.raises(ConfigError, match="no total of that run"):
                here.agents["south"].begin(club.study.sha256, first)  # the miner's site learned it, south did not
            with pytest.raises(ConfigError, match="no total of that run"):
                here.agents["north"].begin(club.study.sha256, "ab" * 16)

    bounded(test, 60)


@pytest.mark.slow
def test_whoever_missed_the_base_is_not_counted_twice(tmp_path: Path, drawn: list[Any]) -> None:
    """With a quorum: a site that was lost in the base keeps out of the sum of changes, and is in the next total."""

    async def test() -> None:
        async with office(tmp_path, EVERYBODY) as here:
            quorum = Limits(min_parties=2, quorum=4)
            limits = Deadlines(step=3, join=3, run=30)
            club = Consortium(
                here, EVERYBODY, limits=quorum, deadlines=limits, privacy=Privacy(epsilon=1.0, honest_fraction=0.9)
            )
            first = done(await club.run())
            await here.stop("west")
            second = done(await club.run(base=first))
            await here.start("west")
            before = len(drawn)
            runs = await club.run(base=second)
            assert isinstance(runs["west"].error, PrivacyError)
            assert "without a base" in str(runs["west"].error)
            assert runs["north"].error is None
            third = runs["north"].run_id
            # west is in the total with the rows that it had at first; none of its noise of later runs is.
            assert (club.total(third).total == club.recount() + sum(drawn)).all()
            assert len(drawn) == before + 4

    bounded(test, 60)


@pytest.mark.parametrize(
    ("since", "most"),
    [
        ([], 0),
        ([None], 1),
        ([None, None, None], 3),
        ([None, 0, 1, 2, 3], 2),
        ([None, 0, 0, 2], 3),  # the second failed: what came then was told twice
        ([None, 0, None, 2], 3),  # a line, and another one
    ],
)
def test_what_one_record_can_move(since: list[int | None], most: int) -> None:
    assert max_moved(since) == most


def test_an_exact_sum_of_changes_is_refused_where_it_could_be_one_sites(tmp_path: Path) -> None:
    async def test() -> None:
        async with office(tmp_path) as here:
            club = Consortium(here, EVERYBODY[:4], privacy=Privacy(), limits=Limits())
            first = done(await club.run())
            same = done(await club.run(base=first))  # nothing changed: nothing is told
            assert (club.total(same).statistics.words == club.recount()).all()
            north = club.home("north")
            rows, north.tables = north.config.rows, Tables(north.folder, structs.replace(north.config.rows, name="year-2"))
            runs = await club.run(base=same)  # its old table less its new one, with which nothing is bound yet
            assert "has another table now" in str(runs["north"].error)
            north.tables = Tables(north.folder, rows)
            edit(tmp_path, "south", 5, add=3)
            runs = await club.run(base=same)
            assert "changed_data" in str(runs["south"].error)
            club.change(add=("centre",))
            runs = await club.run(base=same)
            assert "a site that is new in it" in str(runs["centre"].error)
            runs = await club.run()
            refused = {name: str(run.error) for name, run in runs.items() if isinstance(run.error, PrivacyError)}
            assert any("takes part in exact sums over east, north, south, west only" in words for words in refused.values())
            assert all(run.state == "failed" for run in runs.values())

    bounded(test, 90)
