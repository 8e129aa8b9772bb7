"""The floored sum: equal to the rule in clear, views of every seat at toy size, malformed messages, deviations."""

from __future__ import annotations

import itertools
from collections import defaultdict
from typing import Any

import msgspec
import numpy as np
import pytest

from adversary.arena import Arena
from adversary.columns import ColumnArena
from blindbayes.codebook import Categorical, Codebook, Numeric
from blindbayes.crypto.coins import Coins
from blindbayes.crypto.prg import KEY_BYTES, expand
from blindbayes.errors import ConfigError, PeerProtocolError, PrivacyError
from blindbayes.protocols import memory, registry
from blindbayes.protocols.floored_sum import messages, roles
from blindbayes.protocols.floored_sum.roles import FlooredSetup, role
from blindbayes.protocols.formula import value_of
from blindbayes.protocols.memory import Replace
from blindbayes.protocols.registry import SumSetup
from blindbayes.report.spec import read_spec
from blindbayes.statistics import Layout, Statistics
from blindbayes.statistics.floor import open_table
from blindbayes.wire.transcript import Keep
from support.floors import floored

NAMES = ("alfa", "bravo", "charlie")
BOOK = Codebook(
    target="y",
    classes=("a", "b"),
    features=(Categorical("f", ("u", "v", "w"), optional=True), Numeric("x", 0, 10, optional=True)),
    max_rows=10_000,
)
LAYOUT = Layout(BOOK)
FLOOR = 5


def statistics(first: list[int], second: list[int], missing: tuple[int, int] = (0, 0)) -> Statistics:
    rows = np.array([sum(first), sum(second)])
    words = [*rows, *first[:3], *second[:3], *(rows - missing), 7, -9, 77, 99]
    return Statistics(LAYOUT, np.array(words))


def parts(total: Statistics) -> dict[str, Any]:
    generator = np.random.default_rng(4)
    one, two = (generator.integers(0, 2**63, LAYOUT.size, dtype=np.uint64) for _ in range(2))
    return dict(zip(NAMES, (one, two, total.words - one - two), strict=True))


def setup(floor: int = FLOOR, names: tuple[str, ...] = NAMES, host: str = "server", **fields: Any) -> FlooredSetup:
    return FlooredSetup.make(SumSetup(names, LAYOUT.word_count, **fields), LAYOUT, floor, host)


def run(total: Statistics, faults: tuple[Any, ...] = (), keep: Keep = Keep.HEADERS) -> memory.Outcome:
    coins, vectors = Coins.seeded(bytes(32)), parts(total)
    runs = memory.local_runs((*NAMES, "server"), coins=coins.derive("identities"))
    made = {name: role(runs[name], setup(), vectors.get(name), coins.derive(name)) for name in (*NAMES, "server")}
    return memory.run_in_memory(made, faults=faults, keep=keep, check=False)


TABLES = [
    statistics([30, 40, 2, 1], [20, 0, 9, 11]),
    statistics([3, 1, 0, 0], [200, 30, 9, 2], (0, 3)),
    statistics([1, 2, 1, 1], [2, 2, 1, 3]),
    statistics([300, 40, 20, 10], [20, 50, 90, 11], (5, 100)),
]


@pytest.mark.parametrize("at", range(len(TABLES)))
def test_every_party_learns_what_the_rule_opens_in_clear(at: int) -> None:
    outcome = run(TABLES[at])
    assert outcome.error is None
    for name in (*NAMES, "server"):
        total = outcome.outputs[name]
        assert total.table.cells == floored(TABLES[at], FLOOR).cells
        assert total.included == NAMES
        assert outcome.opened[name] == tuple(read_spec("floored_sum").opened)


@pytest.mark.parametrize("at", range(len(TABLES)))
def test_rounds_and_messages_are_those_of_the_specification(at: int) -> None:
    outcome = run(TABLES[at])
    sent = [entry.kind for entry in outcome.transcript.entries]
    facts = {"questions": sent.count(messages.BitsFound) // 2, "openings": sent.count(messages.MasksGiven), "n": 3}
    spec = read_spec("floored_sum").table
    assert (outcome.cost.rounds, outcome.cost.messages) == (value_of(spec["rounds"], facts), value_of(spec["messages"], facts))


def test_at_250_cells_the_floor_takes_at_most_five_times_the_bytes_of_the_plain_sum() -> None:
    """Beside CPU time, which `benchmarks/floored_sum.py` measures."""
    features = tuple(Categorical(f"f{at}", tuple("abcdefgh"), optional=at % 3 == 0) for at in range(15))
    layout = Layout(Codebook("y", ("a", "b"), (*features, Numeric("z", 0, 100, optional=True)), max_rows=10_000))
    assert 230 <= layout.word_count <= 270
    generator = np.random.default_rng(0)
    labels = generator.integers(0, 2, 900)
    total = np.zeros(layout.size, dtype=np.int64)
    for group in layout.groups:
        if group.kind == "class_count":
            total[layout.slice(group)] = np.bincount(labels, minlength=2)
        elif group.kind == "count" and group.feature is not None:
            values = np.minimum(generator.geometric(0.4, len(labels)) - 1, 7)  # rare values: small cells
            total[layout.slice(group)] = np.bincount(labels * 8 + values, minlength=16)
        elif group.kind == "n":
            total[layout.slice(group)] = np.bincount(labels, minlength=2)
    words = total.view(np.uint64)
    one, two = (generator.integers(0, 2**63, layout.size, dtype=np.uint64) for _ in range(2))
    vectors, coins = dict(zip(NAMES, (one, two, words - one - two), strict=True)), Coins.seeded(bytes(32))
    setting, plain = SumSetup(NAMES, layout.word_count), registry.load("masked_sum")

    def of(roles: Any) -> int:
        outcome = memory.run_in_memory(roles, check=False)
        assert outcome.error is None
        return outcome.cost.bytes

    runs = memory.local_runs((*NAMES, "server"), coins=coins.derive("identities"))
    sums = of(registry.simulate_roles(plain, runs, setting, vectors, coins))
    for floor in (5, 10):
        made = FlooredSetup.make(setting, layout, floor, "server")
        runs = memory.local_runs((*NAMES, "server"), coins=coins.derive("identities"))
        sent = of({name: role(runs[name], made, vectors.get(name), coins.derive(name)) for name in (*NAMES, "server")})
        assert sums < sent <= 5 * sums


def test_too_few_rows_end_the_run_with_nothing_opened() -> None:
    outcome = run(statistics([1, 2, 1, 0], [2, 2, 0, 0]))
    assert isinstance(outcome.error, PrivacyError)
    assert not any(outcome.opened.values())


# -- views -----------------------------------------------------------------------------------------------------------------

TOY = Codebook(target="y", classes=("a", "b"), features=(Categorical("f", ("u", "v")),), max_rows=100)
TOY_FLOOR = 3


def seats(toy: FlooredSetup, words: Any, mask: Any, key: bytes) -> dict[str, list[Any]]:
    """Run the steps after the masked sum with a given mask and key; return the messages that each seat received."""

    class Given(Coins):
        def bytes(self, count: int) -> bytes:
            return key[:count]

    def rule() -> Any:
        return open_table(toy.layout, toy.floor)

    made = {
        "server": roles._server(toy, words + mask, rule()),
        toy.masker: roles._masker(toy, mask, rule(), Given.seeded(bytes(32))),
        toy.referee: roles._referee(toy, rule()),
    }
    received: dict[str, list[Any]] = {name: [] for name in made}

    def watch(name: str, inner: Any) -> Any:
        value = None
        while True:
            try:
                effect = inner.send(value)
            except StopIteration as stop:
                return stop.value
            value = yield effect
            if value is not None:
                received[name].append(value)

    outcome = memory.run_in_memory({name: watch(name, each) for name, each in made.items()}, check=False)
    assert outcome.error is None or isinstance(outcome.error, PrivacyError)
    return received


def plain(view: list[Any], *, tags: bool = True) -> list[Any]:
    kinds = [each for each in view if tags or not isinstance(each, messages.TagsSent)]
    return [
        (type(each).__name__, *(np.array(getattr(each, name)).tolist() for name in each.__struct_fields__)) for each in kinds
    ]


def toy_tables() -> dict[Any, list[Any]]:
    """Return all tables of a toy by what the masker, who has no secret input of others, sees."""
    layout = Layout(TOY)
    toy = FlooredSetup.make(SumSetup(NAMES[:2], layout.word_count), layout, TOY_FLOOR, "server")
    by_view = defaultdict(list)
    mask, key = expand(bytes(KEY_BYTES), layout.word_count), bytes(range(32))
    for cells in itertools.product(range(8), repeat=4):
        if 6 <= sum(cells) <= 12:
            words = np.array([cells[0] + cells[1], cells[2] + cells[3], *cells], dtype=np.uint64)
            views = seats(toy, words, mask, key)
            by_view[str(plain(views[toy.masker]))].append((words, views))
    return by_view


def test_views_of_tables_that_agree_in_public_are_the_same_from_every_seat() -> None:
    """For each mask of one table there is one of the other with the server's very view; tags are equal where they were."""
    layout = Layout(TOY)
    toy = FlooredSetup.make(SumSetup(NAMES[:2], layout.word_count), layout, TOY_FLOOR, "server")
    mask, key = expand(bytes(KEY_BYTES), layout.word_count), bytes(range(32))
    compared = 0
    for tables in toy_tables().values():
        (words, views), *others = tables
        for other, _ in others[:3]:
            compared += 1
            assert (words != other).any()
            moved = seats(toy, other, mask + words - other, key)
            assert plain(moved["server"]) == plain(views["server"])
            for at in (0, 1):  # the referee: equality of pseudo-random tags is all that it sees
                assert plain(moved[toy.referee], tags=False) == plain(views[toy.referee], tags=False)
                pairs = [
                    [each.tags for each in view[toy.referee] if isinstance(each, messages.TagsSent)] for view in (views, moved)
                ]
                assert [len(each) for each in pairs[0]] == [len(each) for each in pairs[1]]
                equal = [[np.isin(view[2 * at], view[2 * at + 1]).tolist() for at in range(len(view) // 2)] for view in pairs]
                assert equal[0] == equal[1], at
                assert all(len(set(np.concatenate(view[1::2]).tolist())) == sum(map(len, view[1::2])) for view in pairs)
    assert compared > 50


def test_the_views_show_a_masker_that_keeps_the_order_of_its_tags(monkeypatch: pytest.MonkeyPatch) -> None:
    """Power: unsorted tags let the referee read the cell from the place of the match."""
    total = TABLES[0]

    def matches() -> set[int]:
        places = set()
        for seed in range(12):
            mask, key = expand(bytes([seed]) * 32, LAYOUT.word_count), bytes([seed + 1]) * 32
            view = [
                each.tags
                for each in seats(setup(names=NAMES[:2]), total.words, mask, key)["bravo"]
                if isinstance(each, messages.TagsSent)
            ]
            own, theirs = view[4], view[5]  # cells of the features
            sizes = len(theirs) // len(own)
            places.add(int(np.flatnonzero(theirs[2 * sizes : 3 * sizes] == own[2])[0]))
        return places

    assert len(matches()) > 1
    monkeypatch.setattr(roles.np, "lexsort", lambda keys: np.arange(len(keys[0])))
    assert matches() == {2}


# -- deviations ------------------------------------------------------------------------------------------------------------

OWN = {
    ("TagsSent", "tags"),
    ("BitsFound", "bits"),
    ("MasksGiven", "masks"),
    ("TagKeyShared", "key"),
    ("ValuesOpened", "values"),
    ("TablePublished", "bits"),
    ("TablePublished", "values"),
    ("MaskedVectorSent", "vector_masked"),
}
"""A party that deviates here gets what the plain sum would give it, as SPEC.md says; it must not frame another."""


def arena() -> ColumnArena:
    def players(runs: Any, coins: Coins, data: Any) -> Any:
        vectors = parts(TABLES[0])
        return {name: role(runs[name], setup(), vectors.get(name), coins.derive(name)) for name in (*NAMES, "server")}

    return ColumnArena.of("floored_sum", (*NAMES, "server"), players, OWN)


# Masker alfa, referee bravo, the plain contributor charlie, and every coalition within the bound: one of the three and others.
WITHIN = [("alfa",), ("bravo",), ("charlie",), ("server",), ("alfa", "charlie"), ("bravo", "charlie"), ("server", "charlie")]


def findings(coalition: tuple[str, ...], every: int) -> list[str]:
    """Deviations in every field of every message, masked_sum's among them, that frame another or end in an untyped error."""
    made, wrong = arena(), []
    for at, (title, change) in enumerate(made.deviations(coalition)):
        if at % every == 0 or any(kind in title for kind, _ in OWN):
            fight = Arena.fight(made, coalition, change)
            wrong += [f"{title}: {each}" for each in fight.frames() if "PrivacyError" not in each]
    return wrong


@pytest.mark.parametrize("coalition", WITHIN, ids="+".join)
def test_a_deviating_coalition_frames_nobody_and_ends_in_typed_errors(coalition: tuple[str, ...]) -> None:
    assert findings(coalition, every=20) == []


@pytest.mark.slow
@pytest.mark.parametrize("coalition", WITHIN, ids="+".join)
def test_a_deviating_coalition_frames_nobody_and_ends_in_typed_errors_whole(coalition: tuple[str, ...]) -> None:
    assert findings(coalition, every=1) == []


@pytest.mark.parametrize(
    ("kind", "field", "party"),
    [
        (messages.TagKeyShared, "key", "alfa"),
        (messages.TagsSent, "tags", "alfa"),
        (messages.BitsFound, "bits", "bravo"),
        (messages.MasksGiven, "masks", "alfa"),
        (messages.ValuesOpened, "values", "server"),
        (messages.TablePublished, "bits", "server"),
        (messages.TablePublished, "values", "server"),
    ],
)
def test_a_message_of_the_wrong_length_names_its_sender(kind: type, field: str, party: str) -> None:
    def cut(message: Any) -> Any:
        return msgspec.structs.replace(message, **{field: getattr(message, field)[:-1]})

    def is_meant(sent: Any) -> bool:
        return sent.kind is kind and sent.sender == party

    error = run(TABLES[0], (Replace(is_meant, cut),)).error
    assert isinstance(error, PeerProtocolError)
    assert error.party == party


def test_masker_and_referee_are_not_the_servers_host() -> None:
    chosen = setup(host="alfa")
    assert (chosen.masker, chosen.referee) == ("bravo", "charlie")
    with pytest.raises(ConfigError, match="three sites"):
        setup(names=("alfa", "bravo"), host="alfa")
    with pytest.raises(ConfigError, match="every site"):
        setup(names=(*NAMES, "delta"), quorum=3)
    with pytest.raises(ConfigError, match="publish"):
        setup(options={"publish": False})
    with pytest.raises(ConfigError, match="at most 64"):
        setup(names=tuple(f"s{at}" for at in range(65)))
