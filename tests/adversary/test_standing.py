"""Changed software against masked_sum with keys that stand, and against the words that neighbours of a sparse graph give."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import pytest

from adversary import cases, planted
from adversary.arena import SEED, Arena, sums
from adversary.deviations import systematic
from adversary.roles import story_teller
from blindbayes.errors import IntegrityError, ProtocolError
from blindbayes.primitives.agreement import AgreementKey
from blindbayes.primitives.coins import Coins
from blindbayes.protocol import registry
from blindbayes.protocol.core import Role, Run, Send, receive_all
from blindbayes.protocol.masked_sum import graph, keys, messages, ratchet
from blindbayes.transport.memory import Fault, KeptInMemory, Outcome, Replace, Vanish, local_runs, run_in_memory

NAMES = cases.NAMES


class Again(KeptInMemory):
    """What every fight begins with."""

    def keep(self, state: bytes) -> None:
        """Nothing."""


def later(sites: Sequence[str], quorum: int | None = None) -> Arena:
    """A run after the one in which the keys were agreed; whatever a fight leaves behind, the next begins where this one did."""
    arena = sums("masked_sum", sites, quorum=quorum, keys="standing")
    made, coins, shipped = {name: KeptInMemory() for name in sites}, Coins.seeded(SEED), arena.make
    first = local_runs(arena.seats, run_id="the first", coins=coins.derive("identities"), kept=made)
    run_in_memory(shipped(first, coins))
    states = {name: kept.state for name, kept in made.items()}

    def make(runs: Mapping[str, Run], coins: Coins) -> dict[str, Role[Any]]:
        arena.runs = {name: replace(run, kept=Again(states.get(name, b""))) for name, run in runs.items()}
        if isinstance(runs, dict):
            runs.update(arena.runs)  # for what the coalition makes again
        return shipped(arena.runs, coins)

    return replace(arena, make=make)


def test_a_later_run_opens_the_one_sum_to_who_follows() -> None:
    """The ledger sees it, and keys did stand."""
    arena = later(NAMES[:3])
    fight = arena.fight(("server", "charlie"))
    assert fight.judge() == fight.errors == []
    assert all(said.standing and not said.public for said in fight.heard["KeysAdvertised"].values())
    assert {tuple(each) for each in fight.ledger.determined(("server", "charlie"), None)} == {("alfa", "bravo")}


@pytest.mark.parametrize("coalition", [("server", "charlie"), ("server",), ("charlie",)], ids=" and ".join)
def test_no_changed_message_gains_anything_in_a_later_run(coalition: tuple[str, ...]) -> None:
    """One in four of all changed fields; a server with one colluder vouches for whatever it showed to whom."""
    arena = later(NAMES[:3])
    tries = itertools.islice(systematic(arena, coalition), 0, None, 4)
    assert [str(each) for each in cases.search("standing", arena, coalition, tries)] == []


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(("size", "quorum"), [(3, None), (4, 3)])
def test_no_changed_message_gains_anything_in_a_later_run_from_any_seat(size: int, quorum: int | None) -> None:
    arena = later(NAMES[:size], quorum)
    for coalition in cases.coalitions(arena):
        assert [str(each) for each in cases.search("standing", arena, coalition, systematic(arena, coalition))] == []


def two_sums(colluders: tuple[str, ...]) -> list[str]:
    """What goes wrong over stories that the server tells about survivors, which it need not sign where keys stand."""
    arena = later(NAMES[:4], 3)
    sets = [each for size in (3, 4) for each in itertools.combinations(NAMES[:4], size)]
    honest = [name for name in arena.contributors if name not in colluders]
    stories, found = list(itertools.product(sets, repeat=len(honest))), []
    for story in stories[:: 1 + len(stories) // 40]:
        told = {**dict.fromkeys(arena.contributors, story[0]), **dict(zip(honest, story, strict=True))}
        fight = arena.fight(("server", *colluders), instead={"server": story_teller(arena.setting, told)})
        assert all(said.standing for said in fight.heard["KeysAdvertised"].values())
        found += fight.judge()
    return found


@pytest.mark.parametrize("colluders", [(), ("delta",)], ids=["alone", "with a colluder"])
def test_no_story_about_survivors_opens_two_sums_where_keys_stand(
    colluders: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fewer than 2q - n = 2 colluders. The search finds a vector that the server calls lost, if it has no mask of its own."""
    assert two_sums(colluders) == []
    planted.no_own_mask(monkeypatch)
    assert any("compute" in words for words in two_sums(colluders))


# -- a server that tells two stories about keys ------------------------------------------------------------------------------


def study_of(sites: tuple[str, ...], kept: Mapping[str, KeptInMemory], number: int, **more: Any) -> tuple[dict[str, Run], Any]:
    setting = registry.SumSetup(sites, 2, len(sites) - 1, options={"keys": "standing", **more})
    runs = local_runs((*sites, "server"), run_id=f"run {number}", coins=Coins.seeded(bytes(32)), kept=kept)
    return runs, setting


def ended(
    sites: tuple[str, ...],
    kept: Mapping[str, KeptInMemory],
    number: int,
    faults: Sequence[Fault] = (),
    server: Any = None,
) -> Outcome:
    runs, setting = study_of(sites, kept, number)
    vectors = {name: np.array([at, 1], np.uint64) for at, name in enumerate(sites)}
    roles = registry.simulate_roles(
        registry.load("masked_sum"), runs, setting, vectors, Coins.seeded(bytes(31) + bytes([number]))
    )
    if server is not None:
        roles["server"] = server(keys.MaskedSumSetup(runs["server"], setting))
    return run_in_memory(roles, faults=faults, check=False)


def right(outcome: Outcome, sites: tuple[str, ...], lost: Sequence[str] = ()) -> bool:
    assert outcome.error is None, outcome.error
    there = [at for at, name in enumerate(sites) if name not in lost]
    return bool(outcome.outputs["server"].words.tolist() == [sum(there), len(there)])


@pytest.mark.parametrize("fresh", [1, 2, 3])
def test_a_server_that_tells_some_to_agree_anew_and_others_to_go_on_gets_no_share(fresh: int) -> None:
    """The roster that each computes is another, and so are the keys of every box."""
    sites, kept = NAMES[:4], {name: KeptInMemory() for name in NAMES[:4]}
    assert right(ended(sites, kept, 0), sites)
    coins, dealt = Coins.seeded(b"m" * 32), []
    made_up = [messages.KeysAdvertised(bytes([at]) * 64, AgreementKey.generate(coins).public, bytes(64)) for at in range(4)]

    def server(terms: keys.MaskedSumSetup) -> Role[Any]:
        said = yield from receive_all(sites, messages.KeysAdvertised)
        for name in sites[:fresh]:
            yield Send(name, messages.KeysListed(()))
        renewed = yield from receive_all(sites[:fresh], messages.KeysAdvertised)
        for at, name in enumerate(sites):
            others = terms.neighbours(at)
            if name in renewed:  # it must be shown fresh keys of all, and whoever has a card needs no signature
                yield Send(
                    name, messages.KeysListed(others, tuple(renewed.get(sites[other], made_up[other]) for other in others))
                )
            else:
                yield Send(name, messages.KeysListed(others, (), b"".join(said[sites[other]].said for other in others)))
        found = yield from receive_all(sites, messages.SharesDealt, quorum=0)
        dealt.extend(found)
        for at, name in enumerate(sites):
            if name in found:
                boxes = [
                    found[sites[other]].boxes[keys.BOX_BYTES * terms.neighbours(other).index(at) :][: keys.BOX_BYTES]
                    for other in terms.neighbours(at)
                    if sites[other] in found
                ]
                shown = tuple(other for other in terms.neighbours(at) if sites[other] in found)
                yield Send(name, messages.SharesPassedOn(shown, b"".join(boxes)))
        yield from receive_all(tuple(found), messages.MaskedVectorSent, quorum=0)
        raise AssertionError("somebody sent a vector")

    outcome = ended(sites, kept, 1, server=server)
    assert isinstance(outcome.error, ProtocolError)
    assert "server" in outcome.error.suspects
    assert set(outcome.opened.values()) == {()}
    assert dealt == list(sites)


def test_a_colluder_that_says_the_last_count_only_ends_the_agreement() -> None:
    """All step on to it, once; in the run after that they agree anew."""
    sites, kept = NAMES[:4], {name: KeptInMemory() for name in NAMES[:4]}
    assert right(ended(sites, kept, 0), sites)
    chains = ratchet.read(kept["delta"].state)
    assert chains is not None
    last = msgspec.structs.replace(
        chains, epoch=ratchet.LIFE - 1, keys=ratchet.forward(chains.keys, ratchet.LIFE - 1 - chains.epoch)
    )
    kept["delta"].state = ratchet.write(last)
    assert right(ended(sites, kept, 1), sites)
    found = ratchet.read(kept["alfa"].state)
    assert found is not None
    assert found.epoch == ratchet.LIFE
    assert found.of(("bravo",)) is None
    assert right(ended(sites, kept, 2), sites)
    anew = ratchet.read(kept["alfa"].state)
    assert anew is not None
    assert (anew.epoch, anew.name != found.name) == (1, True)


@pytest.mark.parametrize("moment", range(10))
def test_a_site_that_leaves_at_any_moment_of_a_step_is_in_the_next_run_or_all_agree_anew(moment: int) -> None:
    """Its chain stands where it was or one further; the others have stepped. Nobody is stuck, and no run is wrong."""
    sites, kept = NAMES[:4], {name: KeptInMemory() for name in NAMES[:4]}
    assert right(ended(sites, kept, 0), sites)
    before = kept["bravo"].state
    for number, lost_write in ((1, False), (2, True)):
        outcome = ended(sites, kept, number, [Vanish("bravo", moment)])
        assert outcome.error is None
        if lost_write:  # the disk forgot what was written after the agreement
            kept["bravo"].state = before
        after = ended(sites, kept, 10 + number)
        assert right(after, sites)


# -- the words that members of a sparse graph give each other -----------------------------------------------------------------


@pytest.fixture
def sparse(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Eight sites with four neighbours each, which no bound would allow."""
    monkeypatch.setattr(keys, "plan", lambda *facts: graph.MaskGraph(4, 3, False, 0.0, 0.0))
    return {"neighbours": 4}


def passing_on(how: str, sparse: dict[str, Any]) -> Outcome:
    """A run whose server passes other tags on to one member than its neighbours made for it."""
    sites = tuple(f"site{at}" for at in range(8))
    vectors = {name: np.array([at], np.uint64) for at, name in enumerate(sites)}
    setting = registry.SumSetup(sites, 1, 7, options={"publish": False, **sparse})
    protocol, earlier = registry.load("masked_sum"), []

    def run(run_id: str, faults: Sequence[Fault]) -> Outcome:
        runs = local_runs(protocol.roster(setting), run_id=run_id, coins=Coins.seeded(bytes(32)))
        roles = registry.simulate_roles(protocol, runs, setting, vectors, Coins.seeded(run_id.encode().ljust(32)))
        return run_in_memory(roles, faults=faults, check=False)

    sent: dict[str, bytes] = {}

    def note(message: Any) -> Any:
        sent.setdefault("vector", message.tags)
        return message

    def passed_on(message: Any) -> Any:
        earlier.append(message.masked)
        other = {
            "its own, sent back": sent["vector"],
            "the echo in its place": message.tags,
            "another pair's": message.masked[16:] + message.masked[:16],
            "another run's": earlier[0],
            "left out": message.masked[:-16] + bytes(16),
        }[how]
        return msgspec.structs.replace(message, masked=other[: len(message.masked)].ljust(len(message.masked), b"0"))

    victim = "site0"
    listen = Replace(lambda entry: entry.kind is messages.MaskedVectorSent and entry.sender == victim, note)
    change = Replace(lambda entry: entry.kind is messages.EchoesPassedOn and entry.to == victim, passed_on)
    if how == "another run's":
        assert run("same", [listen, change]).error is None, "its own tags do"
        sent.clear()
    return run("other" if how == "another run's" else "same", [listen, change])


@pytest.mark.parametrize("how", ["its own, sent back", "the echo in its place", "another pair's", "another run's", "left out"])
def test_no_other_tag_stands_for_the_word_that_a_mask_is_on(how: str, sparse: dict[str, Any]) -> None:
    """What a server has at hand: tags of the other direction, of another step, pair or run."""
    outcome = passing_on(how, sparse)
    assert isinstance(outcome.error, IntegrityError)
    assert "server" in outcome.error.suspects
    assert outcome.failed == "site0"


def test_a_tag_that_is_sent_back_would_do_if_both_directions_had_one_key(
    sparse: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    shipped = keys.MaskedSumSetup.run_keys

    def one(self: Any, pairs: bytes, me: int, others: Sequence[int], shown: bytes) -> tuple[bytes, bytes, bytes]:
        secrets, _, _ = shipped(self, pairs, me, others, shown)
        return secrets, secrets, secrets

    monkeypatch.setattr(keys.MaskedSumSetup, "run_keys", one)
    assert passing_on("its own, sent back", sparse).error is None
