"""The kit on the shipped code, on code without its defences, and on the tree before them."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from collections.abc import Callable, Collection
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from adversary import cases, planted
from adversary.arena import Arena, sums
from adversary.deviations import chosen_keys, copies, systematic
from adversary.linear import measured
from adversary.roles import story_teller

HERE = Path(__file__).parent
BEFORE = "6e79d09"  # the tree that the review attacked
KIT = "9eec7289"  # the last kit that runs on it: since then packages have other names


def findings(title: str, arena: Arena, coalition: Collection[str], tries: Any) -> list[str]:
    return [str(each) for each in cases.search(title, arena, coalition, tries)]


# -- the shipped code ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", cases.SMALL)
def test_whoever_follows_learns_the_one_sum(name: str) -> None:
    """The ledger sees what it should see: with the reader in the coalition exactly one functional, the sum of the others."""
    arena = cases.SMALL[name]
    coalition = (arena.reader, "charlie") if arena.reader else ("charlie",)
    fight = arena.fight(coalition)
    assert fight.judge() == []
    assert fight.errors == []
    if name == "ring_sum":
        assert measured(arena, coalition) == [{"alfa": 1, "bravo": 1}]
    else:
        assert {tuple(each) for each in fight.ledger.determined(coalition, arena.reader_only)} == {("alfa", "bravo")}


@pytest.mark.parametrize("name", cases.SMALL)
def test_no_changed_message_and_no_chosen_key_gains_anything(name: str) -> None:
    """One field in five of every message, all chosen keys; the long form tries all of them from every seat."""
    arena = cases.SMALL[name]
    for coalition in cases.last_coalitions(arena):
        assert findings(name, arena, coalition, cases.deviations(arena, coalition, every=5)) == []


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", cases.SMALL | cases.LARGER)
def test_no_changed_message_and_no_chosen_key_gains_anything_from_any_seat(name: str) -> None:
    arena = (cases.SMALL | cases.LARGER)[name]
    for coalition in cases.coalitions(arena):
        assert findings(name, arena, coalition, cases.deviations(arena, coalition)) == []


LONG = [pytest.mark.slow, pytest.mark.timeout(1800)]
LARGE = [pytest.param(size, colluders, marks=LONG) for size, colluders in ((4, 1), (5, 2), (6, 2), (7, 3))]


@pytest.mark.parametrize(("size", "colluders"), [(3, 1), *LARGE])
@pytest.mark.parametrize("name", ["masked_sum", "oblivious_sum"])
def test_copies_of_keys_by_several_colluders_in_any_order_of_the_roster_gain_nothing(
    name: str, size: int, colluders: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the refusal of copies on; and, so that the keys themselves are tried, with it off."""
    orders = 2 if size < 6 else 1
    assert [str(each) for each in cases.copied(name, size, colluders, orders=orders)] == []
    planted.unchecked_keys(monkeypatch)
    assert [str(each) for each in cases.copied(name, size, colluders, orders=orders) if "compute" in each.words] == []


def told_by(arena: Arena, colluders: Collection[str], told: dict[str, Collection[str]]) -> list[str]:
    """What is wrong after the server told these stories about survivors."""
    return arena.fight(("server", *colluders), instead={"server": story_teller(arena.setting, told)}).judge()


@pytest.mark.parametrize("colluders", [(), ("delta",)])
def test_no_story_about_survivors_opens_two_sums_or_a_small_one(colluders: tuple[str, ...]) -> None:
    """Four contributors, quorum 3: the server names any set to anybody; fewer than 2q - n = 2 colluders."""
    arena = cases.masked(cases.NAMES[:4], 3)
    sets = [each for size in (3, 4) for each in itertools.combinations(cases.NAMES[:4], size)]
    honest = [name for name in arena.contributors if name not in colluders]
    stories = list(itertools.product(sets, repeat=len(honest)))
    for story in stories[:: 1 + len(stories) // 60]:
        told = {**dict.fromkeys(arena.contributors, story[0]), **dict(zip(honest, story, strict=True))}
        assert told_by(arena, colluders, told) == []


@pytest.mark.parametrize("coalition", [("alfa",), ("alfa", "bravo"), ("bravo", "delta", "echo")])
def test_the_law_of_the_rings_holds_for_parties_that_deviate(coalition: tuple[str, ...]) -> None:
    """Two rings of five: up to three colluders, whatever they put into the partial sums, learn the sum of the others."""
    arena = cases.LARGER["ring_sum of five"]
    others = sorted(set(arena.contributors) - set(coalition))
    tried = 0
    for title, change in systematic(arena, coalition):
        if "partial_masked" in title and ("zeroed" in title or "one more" in title):
            assert measured(arena, coalition, change) == [dict.fromkeys(others, 1)], title
            tried += 1
    assert tried >= 2


def test_keys_signed_for_another_study_or_run_are_of_no_use() -> None:
    """A colluder and the reader replay keys, with their signatures, from a run of the same parties with the same coins."""
    for make in (cases.masked, cases.oblivious, cases.chain):
        arena = make(cases.NAMES[:3])
        coalition = (arena.reader or "", "charlie")
        for other in (replace(arena, study="1" * 64), replace(arena, run_id="another")):
            lists = {}

            def note(sender: str, to: str, message: Any, lists: dict[str, Any] = lists) -> Any:
                if type(message).__name__ in ("KeysListed", "RosterNamed", "RosterListed"):
                    lists[to] = message
                return message

            other.fight(coalition, note)
            assert lists

            def replayed(sender: str, to: str, message: Any, lists: dict[str, Any] = lists) -> Any:
                return lists[to] if isinstance(message, type(lists.get(to))) else message

            fight = arena.fight(coalition, replayed, resign=False)
            assert fight.errors
            assert fight.judge() == []


# -- without the defences --------------------------------------------------------------------------------------------------


def copied_key_reads(arena: Arena, which: str) -> list[str]:
    coalition = (arena.reader or "", "charlie")
    tries = [*copies(arena, coalition, which), *chosen_keys(arena, coalition, to_each=False)]
    return [words for words in findings("planted", arena, coalition, tries) if "compute" in words]


ATTACKED = {
    "masked_sum": (cases.masked, "public"),
    "oblivious_sum": (cases.oblivious, "key"),
    "maximum": (cases.largest, "key"),
}


@pytest.mark.parametrize("name", ATTACKED)
def test_the_attacks_of_the_review_are_found_where_keys_are_neither_bound_nor_checked(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Copied keys, and the miner's shown as another's: each defence alone stops them; without both they work."""
    make, which = ATTACKED[name]
    arena = make(cases.NAMES[:3])
    with monkeypatch.context() as patch:
        planted.unbound_keys(patch)
        assert copied_key_reads(arena, which) == []
    with monkeypatch.context() as patch:
        planted.unchecked_keys(patch)
        assert copied_key_reads(arena, which) == []
    planted.unbound_keys(monkeypatch)
    planted.unchecked_keys(monkeypatch)
    found = copied_key_reads(arena, which)
    assert any("the sum of bravo alone" in words for words in found)
    if arena.reader == "miner":
        assert any("miner's miner shown" in words for words in found)


PLANTED: dict[str, tuple[Callable[[pytest.MonkeyPatch], None], tuple[str, ...], str]] = {
    "a box names its author": (planted.blamed_authors, ("server",), "who is honest"),
    "a tag names the server": (planted.blamed_authors, ("charlie",), "who is honest"),
    "one mask for all": (planted.one_seed_for_all, ("server", "charlie"), "compute"),
}


@pytest.mark.parametrize("case", PLANTED)
def test_planted_faults_are_found(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plant, coalition, words = PLANTED[case]
    plant(monkeypatch)
    arena = cases.masked(cases.NAMES[:3])
    tries = itertools.islice(systematic(arena, coalition), 0, None, 3)
    assert any(words in each for each in findings(case, arena, coalition, tries))


def test_a_vector_that_the_server_calls_lost_is_found_if_it_has_no_mask_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    arena = cases.masked(cases.NAMES[:4], 3)
    told = dict.fromkeys(arena.contributors, ("alfa", "bravo", "charlie"))
    assert told_by(arena, (), told) == []
    planted.no_own_mask(monkeypatch)
    assert any("delta" in words for words in told_by(arena, (), told))


# -- the tree before -------------------------------------------------------------------------------------------------------

EXPECTED = {  # found on the old tree: arena, coalition, words, and how
    "review: a copied mask key": ("masked_sum", "server+charlie", "the sum of bravo alone", "charlie's mask_key shown"),
    "review: the miner's key": ("oblivious_sum", "miner+charlie", "the sum of bravo alone", "miner's miner shown"),
    "the miner alone reads a part": ("oblivious_sum", "miner", "the sum of bravo, charlie alone", "miner's miner shown"),
    "a copied contributor's key": ("oblivious_sum", "miner+charlie", "the sum of bravo alone", "charlie's key shown"),
    "the maximum's digits": ("maximum", "miner+charlie", "the sum of bravo alone", "miner's miner shown"),
    "two colluders of five": ("masked_sum of 5", "server+alfa+bravo", "the sum of charlie alone", "copies"),
    "a server accuses an author": ("masked_sum", "server", "names bravo, who is honest", "SharesPassedOn.boxes"),
    "a contributor accuses the server": ("masked_sum", "charlie", "names server, who is honest", "SurvivorsEchoed"),
    "a giver accuses an owner": ("masked_sum", "charlie", "names alfa, who is honest", "SharesGiven"),
    "a server calls the honest lost": ("masked_sum", "server", "PeerLost that names bravo", "SharesPassedOn.neighbours"),
    "a miner accuses a neighbour": ("oblivious_sum", "miner", "names bravo, who is honest", "RosterNamed.publics"),
    "a builder accuses a peer": ("chain_sum", "builder", "who is honest", "RosterListed.keys"),
}


def unpacked(commit: str, folder: Path, *paths: str) -> None:
    archive = subprocess.run(["git", "archive", commit, *paths], capture_output=True, cwd=HERE.parents[1], check=False)
    if archive.returncode:
        pytest.skip("no history here")
    subprocess.run(["tar", "-x", "-C", str(folder)], input=archive.stdout, check=True)


def on_tree(kit: Path, source: Path) -> list[list[str]]:
    """What a kit finds on a source tree, in a process of its own."""
    environment = {**os.environ, "PYTHONPATH": str(source)}
    ended = subprocess.run(
        [sys.executable, str(kit), "--json"], capture_output=True, text=True, env=environment, timeout=1500, check=False
    )
    assert ended.stdout, ended.stderr
    found: list[list[str]] = json.loads(ended.stdout)
    assert ended.returncode == bool(found), ended.stderr
    return found


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_the_tree_before_falls_to_every_attack_that_the_shipped_one_withstands(tmp_path: Path) -> None:
    unpacked(BEFORE, tmp_path, "src")
    unpacked(KIT, tmp_path, "tests/adversary", "tests/support", "tests/conftest.py")
    found = on_tree(tmp_path / "tests" / "adversary", tmp_path / "src")
    for title, (arena, coalition, words, how) in EXPECTED.items():
        fitting = [each for each in found if each[0].startswith(arena) and each[1] == coalition]
        assert any(words in each[3] and how in each[2] for each in fitting), title


def test_a_kit_that_is_asked_about_a_protocol_without_protection_says_so() -> None:
    """Power: the reference shows every vector, and a mask that nobody removes shows none."""
    arena = sums("reference", cases.NAMES[:3])
    assert [len(each) for each in measured(arena, ("collector",))] == [1, 1, 1]
