"""private_maximum between agents: the size of the largest table, and nothing else."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from blindbayes.errors import ConfigError
from blindbayes.study.file import Limits, Privacy
from blindbayes.testing.loopback import open_policy
from support.consortium import BOOK, EVERYBODY, Consortium, done, edit, office
from support.sites import bounded
from support.studies import make_study


def test_the_size_of_the_largest_table_is_opened_to_all_and_nothing_else(tmp_path: Path) -> None:
    """Huai's Delta = max N_k, between agents and in one process; a change of the roster takes it over."""

    async def test() -> None:
        policy = open_policy(protocols=("private_maximum", "oblivious_sum"))
        async with office(tmp_path, EVERYBODY[:3], policy) as here:
            edit(tmp_path, "south", 1, add=7)
            given = {"protocol": "private_maximum", "options": {"bits": 8}, "hosts": {"miner": "north"}}
            asked = Consortium(here, EVERYBODY[:3], privacy=Privacy(), limits=Limits(), **given)
            runs = await asked.run()
            run_id = done(runs)
            for name in EVERYBODY[:3]:
                release = asked.home(name).folder / "releases" / run_id
                assert json.loads((release / "maximum.json").read_text()) == {"party_rows": 37}
            tables = {name: asked.home(name).config.rows.source for name in EVERYBODY[:3]}
            alone = asked.study.simulate(tables)
            assert alone.maximum == 37
            assert {labels.opened for labels in alone.leakage.values()} == {("maximum",)}
            limit = Privacy(epsilon=1.0, unit="party", party_rows=30)
            club = Consortium(here, EVERYBODY[:3], privacy=limit)
            runs = await club.run()
            assert "more rows than the study's party_rows" in str(runs["south"].error)
            club.change(party_rows=37)
            assert club.study.agreement.study.privacy.party_rows == 37
            done(await club.run())

    bounded(test, 60)


def test_a_maximum_has_no_noise_and_needs_everybody() -> None:
    for wrong in ({"epsilon": 1.0}, {"quorum": 3}, {"options": {"bits": 64}}):
        with pytest.raises(ConfigError):
            make_study(BOOK, protocol="private_maximum", **wrong)
