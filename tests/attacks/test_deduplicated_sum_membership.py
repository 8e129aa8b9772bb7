"""Matched persons: what the server learns of who is where, alone, and with one site's key, and what it never learns.

Before, a person at k sites was k persons, and nothing compared them; the attack on that is a sum that moves by k rows.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from blindbayes import Limits, Privacy, RowStudy
from blindbayes.codebook import Categorical, Codebook, IdPart, IdRecipe
from blindbayes.crypto.coins import Coins
from blindbayes.data.identifiers import normalised
from blindbayes.dp.distributed.noise_shares import DistributedNoise
from blindbayes.dp.distributed.whole_noise import WholeNoise
from blindbayes.protocols import memory
from blindbayes.protocols.core import Run
from blindbayes.protocols.deduplicated_sum.messages import PseudonymKeyShared, PseudonymsSent
from blindbayes.protocols.deduplicated_sum.roles import DeduplicatedSetup, Persons, pseudonyms, role
from blindbayes.protocols.registry import SumSetup
from blindbayes.protocols.shared_training.class_sums.messages import RowsMasked
from blindbayes.wire import decode
from blindbayes.wire.transcript import Keep

NAMES, LENGTH = ("north", "south"), 3
GUESSES = [f"patient {at}".encode() for at in range(40)]
HELD = {"north": GUESSES[:10], "south": GUESSES[5:20]}


def run(value: int = 1) -> tuple[memory.Outcome, dict[str, Run]]:
    """A run in which every person of the north adds `value`."""
    coins, made = Coins.seeded(bytes(32)), DeduplicatedSetup(SumSetup(NAMES, LENGTH, noisy=True), 100)
    runs = memory.local_runs((*NAMES, "server"), coins=coins.derive("identities"))
    roles: dict[str, Any] = {"server": role(runs["server"], made, None, None, coins.derive("server"))}
    for name, held in HELD.items():
        own = value if name == "north" else 1
        persons = Persons(held, lambda places, own=own: np.full((len(places), LENGTH), own, np.uint64))
        roles[name] = role(runs[name], made, persons, np.zeros(LENGTH, np.uint64), coins.derive(name))
    return memory.run_in_memory(roles, keep=Keep.FRAMES, check=False), runs


def lists_of(outcome: memory.Outcome) -> dict[str, set[bytes]]:
    """The pseudonyms that the server received, by site."""
    found = {}
    for entry in outcome.transcript.entries:
        if entry.kind is PseudonymsSent:
            packed = decode(entry.frame or b"", PseudonymsSent).pseudonyms
            found[entry.sender] = {packed[at : at + 16] for at in range(0, len(packed), 16)}
    return found


def guessed(outcome: memory.Outcome, run: Run, key: bytes) -> dict[str, list[bytes]]:
    """Whom a party with that key finds at each site, of all guesses."""
    found: dict[str, list[bytes]] = {}
    for guess in GUESSES:
        (name,) = (pseudonyms(run, key, [guess], Coins.seeded(bytes(32)))[0],)
        for site, sent in lists_of(outcome).items():
            if name in sent:
                found.setdefault(site, []).append(guess)
    return found


def test_a_server_alone_counts_and_finds_nobody() -> None:
    outcome, runs = run()
    sent = lists_of(outcome)
    assert (len(sent["north"]), len(sent["south"]), len(sent["north"] & sent["south"])) == (10, 15, 5)
    for key in (bytes(32), *(hash_.ljust(32, b"-") for hash_ in (b"study", runs["server"].run_id.encode()[:32]))):
        assert guessed(outcome, runs["server"], key) == {}


def test_a_server_with_the_key_of_a_site_finds_everybody_whom_it_can_guess_as_the_specification_says() -> None:
    """What matching costs: the two together. Without `sites_per_person = "matched"` there are no pseudonyms to search."""
    outcome, runs = run()
    key = next(
        decode(each.frame or b"", PseudonymKeyShared).key
        for each in outcome.transcript.entries
        if each.kind is PseudonymKeyShared
    )
    assert all(each.to != "server" for each in outcome.transcript.entries if each.kind is PseudonymKeyShared)
    assert guessed(outcome, runs["server"], key) == HELD


def test_what_reaches_the_server_of_a_row_is_uniform_whatever_the_row_is() -> None:
    """The masked words of tables that differ in every row: each bit is one in half of the words, in either table."""
    for value in (0, 2**64 - 1):
        outcome, _ = run(value)
        masked = np.concatenate(
            [
                decode(each.frame or b"", RowsMasked).rows.reshape(-1, LENGTH + 1)[:, :LENGTH].ravel()
                for each in outcome.transcript.entries
                if each.kind is RowsMasked and each.sender == "north"
            ]
        )
        ones = int(np.unpackbits(masked.view(np.uint8)).sum())
        assert abs(ones - 32 * masked.size) < 4.5 * np.sqrt(16 * masked.size)  # below 1e-5


BOOK = Codebook(
    "ill",
    ("no", "yes"),
    (Categorical("drug", ("a", "b", "c")),),
    max_rows=1000,
    identifier=IdRecipe((IdPart("patient", "digits"),)),
)


@pytest.mark.parametrize(("sites_per_person", "rows"), [(None, 3), ("matched", 1)])
def test_a_person_at_three_sites_moves_the_sum_by_one_row_and_by_three_without_matching(
    sites_per_person: Any, rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for law in (DistributedNoise, WholeNoise):
        drawn = law.share
        monkeypatch.setattr(law, "share", lambda self, coins, drawn=drawn: 0 * drawn(self, coins))
    study = RowStudy(
        BOOK,
        privacy=Privacy(epsilon=20.0, rows_per_person=1, sites_per_person=sites_per_person),
        limits=Limits(min_parties=2),
    )
    table = pd.DataFrame({"patient": [f"0{at}" for at in range(30)], "drug": list("abc") * 10, "ill": ["no", "yes"] * 15})
    sites = {name: table[at * 10 : at * 10 + 10] for at, name in enumerate(("north", "south", "west"))}
    target = pd.DataFrame({"patient": ["4711"], "drug": ["c"], "ill": ["yes"]})
    assert normalised(target, BOOK.identifier) == normalised(target.assign(patient="47-11"), BOOK.identifier)  # type: ignore[arg-type]

    def total(tables: dict[str, pd.DataFrame]) -> Any:
        return study.simulate(tables, coins=Coins.seeded(bytes(32))).statistics.class_counts.sum()

    spelled = [target, target.assign(patient="47-11"), target.assign(patient=" 47 11")]
    everywhere = {name: pd.concat([frame, own]) for (name, frame), own in zip(sites.items(), spelled, strict=True)}
    assert total(everywhere) - total(sites) == rows
