"""The deduplicated sum: every person once, at a site that nobody else learns; malformed messages, deviations, costs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from adversary.arena import Arena
from adversary.columns import ColumnArena
from blindbayes.crypto.coins import Coins
from blindbayes.errors import ConfigError, PeerProtocolError
from blindbayes.protocols import memory
from blindbayes.protocols.deduplicated_sum import messages, roles
from blindbayes.protocols.deduplicated_sum.roles import DeduplicatedSetup, Persons, choose, pseudonyms, role
from blindbayes.protocols.formula import value_of
from blindbayes.protocols.memory import Replace
from blindbayes.protocols.registry import SumSetup
from blindbayes.report.spec import read_spec
from blindbayes.wire.transcript import Keep

NAMES = ("alfa", "bravo", "charlie")
HELD = {"alfa": ("ann", "bob", "cas"), "bravo": ("bob", "cas", "dan"), "charlie": ("cas", "eve")}
EVERYBODY = ("ann", "bob", "cas", "dan", "eve")
LENGTH = 15  # a word for each person at each of three sites


def setup(names: tuple[str, ...] = NAMES, **options: Any) -> DeduplicatedSetup:
    return DeduplicatedSetup(SumSetup(names, LENGTH, noisy=True, options=options), 100)


def persons(site: str, held: Sequence[str]) -> Persons:
    """Whoever counts sets the word of the person and the site to one."""

    def words(places: Any) -> Any:
        made = np.zeros((len(places), LENGTH), np.uint64)
        for row, at in enumerate(places):
            made[row, 3 * EVERYBODY.index(held[at]) + NAMES.index(site) % 3] = 1
        return made

    return Persons([f"person {each}".encode() for each in held], words)


def run(
    held: Mapping[str, Sequence[str]] = HELD,
    seed: int = 0,
    noise: Mapping[str, int] | None = None,
    faults: tuple[Any, ...] = (),
    keep: Keep = Keep.HEADERS,
    **options: Any,
) -> memory.Outcome:
    coins, names = Coins.seeded(bytes([seed]) * 32), tuple(held)
    runs = memory.local_runs((*names, "server"), coins=coins.derive("identities"))
    made = {"server": role(runs["server"], setup(names, **options), None, None, coins.derive("server"))}
    for name, each in held.items():
        own = np.full(LENGTH, (noise or {}).get(name, 0), np.uint64)
        made[name] = role(runs[name], setup(names, **options), persons(name, each), own, coins.derive(name))
    return memory.run_in_memory(made, faults=faults, keep=keep, check=False)


def counted(outcome: memory.Outcome) -> dict[str, list[str]]:
    """Return at which sites each person counts."""
    words = outcome.outputs["server"].words.reshape(len(EVERYBODY), 3)
    assert set(np.unique(words)) <= {0, 1}
    return {person: [NAMES[at] for at in np.flatnonzero(row)] for person, row in zip(EVERYBODY, words, strict=True)}


def test_everybody_counts_once_at_one_of_their_sites_each_as_often() -> None:
    where = {person: {name for name, held in HELD.items() if person in held} for person in EVERYBODY}
    times: dict[str, Counter[str]] = {person: Counter() for person in EVERYBODY}
    runs = 60
    for seed in range(runs):
        lists = [[person.encode() for person in held] for held in HELD.values()]
        made = [np.frombuffer(pseudonyms(RUN, bytes(32), each, Coins.seeded(bytes(32)))[0], ">u8") for each in lists]
        orders = [pseudonyms(RUN, bytes(32), each, Coins.seeded(bytes(32)))[1] for each in lists]
        kept, at_sites = choose([each.astype(np.uint64).reshape(-1, 2) for each in made], Coins.seeded(bytes([seed]) * 32))
        assert at_sites == {(0,): 1, (0, 1): 1, (0, 1, 2): 1, (1,): 1, (2,): 1}
        for name, flags, order in zip(NAMES, kept, orders, strict=True):
            for flag, at in zip(flags, order, strict=True):
                times[HELD[name][at]][name] += int(flag)
    for person, sites in times.items():
        assert sites.total() == runs
        assert set(sites) - {name for name in sites if not sites[name]} == where[person]
        for name in where[person]:  # below 1e-4 for all five together, if each site has the same chance
            assert abs(sites[name] - runs / len(where[person])) < 4.5 * np.sqrt(runs * 0.25)
    outcome = run()
    assert outcome.error is None
    for person, sites_of in counted(outcome).items():
        assert len(sites_of) == 1
        assert set(sites_of) <= where[person]


RUN = memory.local_runs((*NAMES, "server"), coins=Coins.seeded(bytes(32)))["alfa"]


def test_the_sum_holds_all_noise_and_every_site_learns_it_if_it_is_published() -> None:
    outcome = run(noise={"alfa": 100, "bravo": 20, "charlie": 3})
    total = outcome.outputs["server"].words
    assert total.sum() == 123 * LENGTH + len(EVERYBODY)
    for name in NAMES:
        assert (outcome.outputs[name].words == total).all()
        assert outcome.opened[name] == ("noisy_sum",)
    assert list(outcome.opened["server"]) == ["persons_by_sites", "noisy_sum"]
    hidden = run(publish=False)
    assert [hidden.outputs[name] for name in NAMES] == [None] * 3


def test_a_site_without_persons_takes_part() -> None:
    outcome = run({**HELD, "bravo": ()})
    assert outcome.error is None
    assert counted(outcome)["bob"] == ["alfa"]
    assert counted(outcome)["dan"] == []


@pytest.mark.parametrize("size", [2, 3, 5])
@pytest.mark.parametrize("publish", [True, False])
def test_rounds_and_messages_are_those_of_the_specification(size: int, publish: bool) -> None:
    names = ("alfa", "bravo", "charlie", "delta", "echo")[:size]
    spec = read_spec("deduplicated_sum").table
    own = Persons([b"one", b"two"], lambda places: np.zeros((len(places), LENGTH), np.uint64))
    outcome = between(setup(names, publish=publish), own)
    facts = {"n": size, "publish": int(publish)}
    assert (outcome.cost.rounds, outcome.cost.messages) == (value_of(spec["rounds"], facts), value_of(spec["messages"], facts))


def test_bytes_per_person_are_those_of_the_specification() -> None:
    def sent(count: int) -> int:
        made = DeduplicatedSetup(SumSetup(NAMES, LENGTH, noisy=True), count)
        many = Persons([b"%d" % at for at in range(count)], lambda places: np.zeros((len(places), LENGTH), np.uint64))
        return between(made, many).cost.bytes

    per_person = (sent(3000) - sent(1000)) / (2000 * len(NAMES))
    stated = value_of(read_spec("deduplicated_sum").table["bytes_per_person"], {"words": LENGTH})
    assert abs(per_person - stated) < 1


def between(made: DeduplicatedSetup, own: Persons) -> memory.Outcome:
    """Run a sum in which every site brings the same persons, and no noise."""
    names, coins, zero = made.sum.contributors, Coins.seeded(bytes(32)), np.zeros(LENGTH, np.uint64)
    runs = memory.local_runs((*names, "server"), coins=coins.derive("identities"))
    brought = {"server": (None, None), **dict.fromkeys(names, (own, zero))}
    outcome = memory.run_in_memory(
        {name: role(runs[name], made, *brought[name], coins.derive(name)) for name in runs}, check=False
    )
    assert outcome.error is None
    return outcome


# -- what parties see ------------------------------------------------------------------------------------------------------


def test_what_a_site_is_sent_has_one_form_whoever_is_elsewhere() -> None:
    """Kinds and sizes of all messages to and from a site are the same if it shares nobody and if it shares everybody."""
    forms = []
    for others in (("bob", "cas", "dan"), ("ann", "bob", "cas")):
        outcome = run({"alfa": ("ann", "bob", "cas"), "bravo": others, "charlie": ("eve",)})
        forms.append([(each.sender, each.to, each.kind, each.size) for each in outcome.transcript.entries])
    assert forms[0] == forms[1]


def test_the_server_is_sent_no_identifier_no_order_and_no_pseudonym_of_another_run() -> None:
    sent = []
    for seed in range(2):
        outcome = run(seed=seed, keep=Keep.FRAMES)
        frames = [each.frame or b"" for each in outcome.transcript.entries if each.to == "server"]
        assert not any(b"person" in frame for frame in frames)
        sent.append([each.frame or b"" for each in outcome.transcript.entries if each.kind is messages.PseudonymsSent])
    assert not set(sent[0]) & set(sent[1])
    one, two = (pseudonyms(RUN, bytes(32), [b"ann", b"bob", b"cas"][::step], Coins.seeded(bytes(32))) for step in (1, -1))
    assert one[0] == two[0]  # in whatever order the table has them
    assert one[1].tolist() == [2 - at for at in two[1].tolist()]


def test_a_server_that_lets_nobody_count_or_everybody_meets_all_of_the_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    """So epsilon holds of the rows of a person at one site whatever the server does, and k times epsilon at k sites."""
    for flag, times in ((0, 0), (1, sum(map(len, HELD.values())))):

        def keep(lists: Any, coins: Coins, flag: int = flag) -> Any:
            return [np.full(len(each), flag, np.int64) for each in lists], {}

        monkeypatch.setattr(roles, "choose", keep)
        outcome = run(noise={"alfa": 100, "bravo": 20, "charlie": 3})
        assert outcome.error is None
        assert outcome.outputs["server"].words.sum() == 123 * LENGTH + times


# -- deviations ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda names: b"", "wrong length"),
        (lambda names: names[:-1], "wrong length"),
        (lambda names: names * 40, "wrong length"),
        (lambda names: names[:16] * 2, "distinct"),
        (lambda names: names[16:32] + names[:16], "in order"),
    ],
)
def test_lists_that_are_not_distinct_and_in_order_are_refused(change: Any, problem: str) -> None:
    fault = Replace(
        lambda entry: entry.kind is messages.PseudonymsSent and entry.sender == "bravo",
        lambda sent: messages.PseudonymsSent(change(sent.pseudonyms)),
    )
    outcome = run(faults=(fault,))
    assert isinstance(outcome.error, PeerProtocolError)
    assert outcome.error.party == "bravo"
    assert problem in str(outcome.error)


def test_a_key_of_another_length_and_a_total_of_another_length_are_refused() -> None:
    short = Replace(
        lambda entry: entry.kind is messages.PseudonymKeyShared, lambda sent: messages.PseudonymKeyShared(sent.key[1:])
    )
    outcome = run(faults=(short,))
    assert isinstance(outcome.error, PeerProtocolError)
    assert outcome.error.party == "alfa"
    total = Replace(lambda entry: entry.kind is roles.TotalPublished, lambda sent: roles.TotalPublished(sent.total[1:]))
    outcome = run(faults=(total,))
    assert isinstance(outcome.error, PeerProtocolError)
    assert outcome.error.party == "server"


def test_more_sites_than_have_links_of_their_own_and_a_quorum_are_refused() -> None:
    with pytest.raises(ConfigError, match="at most 64"):
        setup(tuple(f"p{at}" for at in range(65)))
    with pytest.raises(ConfigError, match="every site"):
        DeduplicatedSetup(SumSetup(NAMES, LENGTH, quorum=2), 100)


OWN = {
    ("PseudonymKeyShared", "key"),
    ("PseudonymsSent", "pseudonyms"),
    ("TotalPublished", "total"),
    ("MaskedVectorSent", "vector_masked"),
}
"""A party that deviates here changes who counts, or the sum, as SPEC.md says; it must not frame another."""


def findings(coalition: tuple[str, ...], every: int) -> list[str]:
    def players(runs: Any, coins: Coins, data: Any) -> Any:
        made = {"server": role(runs["server"], setup(), None, None, coins.derive("server"))}
        for name, held in HELD.items():
            zero = np.zeros(LENGTH, np.uint64)
            made[name] = role(runs[name], setup(), persons(name, held), zero, coins.derive(name))
        return made

    made, wrong = ColumnArena.of("deduplicated_sum", (*NAMES, "server"), players, OWN), []
    for at, (title, change) in enumerate(made.deviations(coalition)):
        if at % every == 0:
            wrong += [f"{title}: {each}" for each in Arena.fight(made, coalition, change).frames()]
    return wrong


@pytest.mark.parametrize("coalition", [("alfa",), ("charlie",), ("server",), ("alfa", "bravo")], ids="+".join)
def test_a_deviating_coalition_frames_nobody_and_ends_in_typed_errors(coalition: tuple[str, ...]) -> None:
    assert findings(coalition, every=80) == []


@pytest.mark.slow
@pytest.mark.parametrize("coalition", [("alfa",), ("charlie",), ("server",), ("alfa", "bravo")], ids="+".join)
def test_a_deviating_coalition_frames_nobody_and_ends_in_typed_errors_more(coalition: tuple[str, ...]) -> None:
    assert findings(coalition, every=6) == []
