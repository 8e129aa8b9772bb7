"""private_maximum between agents: the size of the largest table, and nothing else."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from blindbayes.crypto.coins import Coins
from blindbayes.errors import ConfigError
from blindbayes.protocols.core import Role, Run, Send, receive_all
from blindbayes.protocols.memory import Outcome, local_runs, run_in_memory
from blindbayes.study.file import Limits, Privacy
from blindbayes.testing.loopback import open_policy
from blindbayes_papers.huai2015 import private_maximum as maximum
from blindbayes_papers.huai2015.oblivious_sum.messages import BitSent, BitShown
from blindbayes_papers.huai2015.oblivious_sum.miner import enrol_all
from blindbayes_papers.huai2015.oblivious_sum.terms import MINER
from blindbayes_papers.huai2015.primitives.ristretto_sum import RistrettoSum
from blindbayes_papers.huai2015.private_maximum import roles as module
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


# -- a miner that deviates -----------------------------------------------------------------------------------------------

SIZES = {"a": 0b0011_0110, "b": 0b0010_1101, "c": 0b0001_0011}
BITS = 8


def with_miner(shown: Callable[[str, int, bool], bool], victim: str) -> tuple[int, Outcome]:
    """Run with a miner that shows each party the digit `shown(party, bit, true digit)`; what it reads of the victim."""
    runs = local_runs((*SIZES, MINER), run_id="run", coins=Coins.seeded(bytes(32)))
    read: list[int] = []

    def evil(run: Run) -> Role[None]:
        terms, scheme, prefix, found = module._terms(run, tuple(SIZES), BITS), RistrettoSum(1), 0, 0
        names, key, roster = yield from enrol_all(terms, scheme, Coins.seeded(bytes(32)).derive(MINER))
        for bit in reversed(range(BITS)):
            sent = yield from receive_all(names, BitSent)
            mask = scheme.masks(key, module.label_of(terms, roster, bit, prefix), 1)
            found |= (not scheme.is_zero(scheme.multiply([*([each.element] for each in sent.values()), mask]))[0]) << bit
            digits = {name: shown(name, bit, bool(found >> bit & 1)) for name in names}
            prefix |= digits[victim] << bit  # what the victim's next label is bound to
            for name in names:
                yield Send(name, BitShown(digits[name]))
        read.append(found)

    roles: dict[str, Role[Any]] = {
        name: maximum.contributor(runs[name], tuple(SIZES), rows, BITS, Coins.seeded(bytes(32)).derive(name))
        for name, rows in SIZES.items()
    }
    roles[MINER] = evil(runs[MINER])
    outcome = run_in_memory(roles, check=False)
    return (read or [-1])[0], outcome


@pytest.mark.parametrize("victim", SIZES)
def test_a_miner_that_shows_each_party_other_digits_does_not_read_the_party_of_its_choice(victim: str) -> None:
    """It shows a 1 that nobody has to all but one: they are no candidates any more, and the rest is the digits of that one."""
    read, _ = with_miner(lambda name, bit, digit: digit if name == victim else bit == BITS - 1 or digit, victim)
    assert read != SIZES[victim]


def test_a_miner_that_shows_0_to_a_party_that_sent_a_1_is_named_before_it_reads_the_next_size() -> None:
    """It would be told the digits of the largest of the others."""
    read, outcome = with_miner(lambda name, bit, digit: digit and bit < 5, "b")
    assert read == -1
    assert outcome.error is not None
    assert outcome.error.party == MINER


def test_a_miner_that_follows_the_steps_is_not_accused() -> None:
    read, outcome = with_miner(lambda name, bit, digit: digit, "b")
    assert read == max(SIZES.values())
    assert outcome.error is None
