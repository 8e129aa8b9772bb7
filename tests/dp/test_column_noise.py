"""Noise in the shares of a study over columns: drawn without data, private for each party's records, seen by the audit."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from msgspec.structs import replace as replaced

from audits.columns import OWNERS, attack_columns, audit_columns, missing_columns, plan_columns
from blindbayes.codebook import Categorical, Codebook, Numeric
from blindbayes.crypto.coins import Coins
from blindbayes.dp.audit.empirical import Claim
from blindbayes.dp.distributed.column_noise import ColumnNoise, PartyNoise, _raw, draw, draws
from blindbayes.dp.release.planner import plan_release
from blindbayes.errors import LocalProtocolError, PrivacyError
from blindbayes.protocols.shared_training.class_sums import RowLayout
from blindbayes.protocols.shared_training.shared_model import Guard, ScoreLayout
from blindbayes.statistics import CodedRows, Layout, Statistics, count_block
from blindbayes_papers.zafarani2020.query import Query
from support.plain_model import plain_tables, to_floats

BOOK = Codebook(
    "y",
    ("a", "b", "c"),
    (
        Categorical("u", ("p", "q", "r")),
        Categorical("v", ("s", "t"), optional=True),
        Numeric("x", 0, 50, bins=3),
        Categorical("w", tuple("1234")),
    ),
)
HOLDS = {"bank": ("u", "x"), "clinic": ("v", "w")}


def coins(name: str) -> Coins:
    return Coins.seeded(bytes(32)).derive(name)


def table_of(book: Codebook, rows: int) -> Statistics:
    rng = np.random.default_rng(5)
    columns = {f.name: rng.integers(-1 if f.optional else 0, f.size, rows) for f in book.features}
    return count_block(Layout(book), CodedRows(rng.integers(0, len(book.classes), rows), columns, rows))


@pytest.mark.parametrize("mechanism", ["knorm", "centred_gaussian"])
def test_noise_drawn_without_data_does_what_the_central_release_does_with_it(mechanism: str) -> None:
    """The same coins: exact counts plus noise drawn alone equal the released tables, levelled and rounded."""
    noise = ColumnNoise.make(BOOK, HOLDS, "bank", epsilon=1.0, rows=3000)
    plan = noise.plan_of("bank")
    assert plan.mechanism == "knorm"
    if mechanism != plan.mechanism:  # which many columns and a delta would get
        plan = replace(plan, mechanism=mechanism, delta=1e-5)
    statistics = table_of(plan.codebook, 3000)
    released = plan.release(statistics, coins("release"))
    drawn = draw(plan, coins("release"))
    for item, table in zip(plan.items, released.tables, strict=True):
        if item.kind == "classes":
            assert np.array_equal(np.floor(table[:, 0] + 0.5), statistics.class_counts + np.array(drawn.class_counts))
            continue
        level = table + ((released.tables[0][:, 0] - table.sum(axis=1)) / table.shape[1])[:, None]
        counts = statistics.counts[item.name]
        want = counts + drawn.tables[item.name]
        got = level[:, : counts.shape[1]]
        assert np.abs(got - want.astype(float)).max() <= 0.5 + 1e-6


def test_sums_with_noise_are_what_the_release_would_restore() -> None:
    book = Codebook("y", ("a", "b"), (Numeric("big", 0, 90_000), Categorical("u", ("p", "q"))), max_rows=10**6)
    noise = ColumnNoise.make(book, {"bank": ("u",), "shop": ("big",)}, "bank", epsilon=1.0, rows=400_000)
    plan = noise.plan_of("shop")
    assert [cut.kind for cut in plan.encodings] == ["moments"]
    assert plan.mechanism == "discrete_laplace"
    raw = [part[0] for part in _raw(plan, coins("sums"))[0]]
    drawn = draw(plan, coins("sums")).tables["big"]
    query = Query(plan.codebook)
    restored = Statistics(Layout(plan.codebook), query.restore(np.concatenate([part.ravel() for part in raw])))
    assert np.array_equal(drawn[:, 0], restored.class_counts)
    assert np.array_equal(drawn[:, 1], (raw[1][:, 0] + (feature_middle(plan.codebook, "big") * drawn[:, 0])) // 2)
    assert np.abs(drawn[:, 1] - restored.sums["big"]).max() <= 1
    assert np.abs((drawn[:, 2] - restored.squares["big"]).astype(float)).max() <= 2 + abs(feature_middle(plan.codebook, "big"))


def test_a_number_whose_noisy_sums_would_pass_a_word_is_counted_in_cells() -> None:
    owners = {"bank": ("u",), "shop": ("big",)}
    for high, kind in ((90_000, "moments"), (10**9, "cells")):
        book = Codebook("y", ("a", "b"), (Numeric("big", 0, high), Categorical("u", ("p", "q"))), max_rows=10**6)
        noise = ColumnNoise.make(book, owners, "bank", epsilon=1.0, rows=400_000)
        assert [cut.kind for cut in noise.tables.encodings] == [kind, "cells"]
        assert noise.declared == book
        optional = Codebook("y", ("a", "b"), tuple(replaced(f, optional=True) for f in noise.counted.features))
        layout = RowLayout(optional.features, 400_000, noise_bits=noise.noise_bits)
        assert all(field.shift + field.width <= 64 for field, _ in layout.placed())


def feature_middle(book: Codebook, name: str) -> int:
    feature = book.feature(name)
    assert isinstance(feature, Numeric)
    return feature.code_low + feature.code_high


@pytest.mark.parametrize("way", ["aligned", "left", "inner"])
def test_one_record_moves_what_the_plan_of_its_party_says(way: str) -> None:
    noise = ColumnNoise.make(BOOK, HOLDS, "bank", epsilon=1.0, rows=3000, join=way)  # type: ignore[arg-type]
    for party in HOLDS:
        plan = noise.plan_of(party)
        own = set(HOLDS[party]) if way != "inner" and party == "clinic" else set(BOOK.names)
        assert {cut.feature for cut in plan.encodings} == own
        layout = Layout(plan.codebook)
        empty = plan.tables(Statistics(layout, np.zeros(layout.size, dtype=np.int64)))
        sizes = [range(-1 if f.optional else 0, min(f.size, 3)) for f in plan.codebook.features]
        for values in itertools.product(*sizes):
            columns = {f.name: np.array([value]) for f, value in zip(plan.codebook.features, values, strict=True)}
            one = plan.tables(count_block(layout, CodedRows(np.array([1]), columns, 1)))
            for before, after in zip(empty, one, strict=True):
                change = after - before
                assert np.abs(change).sum() <= 1  # one cell, by one
                assert not change[[0, 2]].any()  # of the record's class
        assert plan.epsilon == Fraction(1)
    for name in BOOK.names:
        both = name in HOLDS["clinic"] or way == "inner"
        assert noise.adders(name) == (("bank", "clinic") if both else ("bank",))


def test_both_parties_pay_and_each_draws_noise_of_its_own() -> None:
    noise = ColumnNoise.make(BOOK, HOLDS, "bank", epsilon=0.5, delta=1e-7, rows=3000)
    assert noise.price.epsilon == 0.5
    assert noise.price.unit == "one record"
    first, second = noise.draw("bank", coins("a")), noise.draw("clinic", coins("a"))
    assert set(first.tables) == set(BOOK.names)
    assert set(second.tables) == {"v", "w"}
    alone = {item.name: d for item, d in zip(noise.tables.items, noise.tables.deviations, strict=True)}
    assert noise.deviation("u") == alone["u"]
    assert alone["w"] < noise.deviation("w") < 1.5 * alone["w"]  # an attribute holder's people touch fewer tables
    text = noise.statement().text
    assert "own noise alone" in text
    assert "taken out of all counts" in noise.words()


def test_noise_that_would_drown_everything_is_refused_with_the_way_out() -> None:
    with pytest.raises(PrivacyError, match="raise epsilon"):
        ColumnNoise.make(BOOK, HOLDS, "bank", epsilon=0.001, rows=50)


def test_the_width_holds_all_but_impossible_draws() -> None:
    noise = ColumnNoise.make(BOOK, HOLDS, "bank", epsilon=1.0, rows=3000)
    room = 1 << noise.noise_bits  # for the noise of both
    assert room > 2 * 200 * max(noise.tables.deviations)
    for at in range(20):
        assert max(abs(int(v)) for t in noise.draw("bank", coins(f"w{at}")).tables.values() for v in t.ravel()) < room / 16


# -- audit -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("party", OWNERS)
def test_a_quarter_of_the_noise_is_refuted_and_all_of_it_is_not(party: str) -> None:
    plan, claim = plan_columns(1).plan_of(party), Claim(1.0, 0.0)
    assert attack_columns(plan, claim, coins("whole"), 500).epsilon <= 1.0
    assert attack_columns(replace(plan, epsilon=plan.epsilon * 4), claim, coins("quarter"), 1200).epsilon > 1.0


@pytest.mark.parametrize("way", ["aligned", "left", "inner"])
def test_the_audit_does_not_refute_noise_in_shares_and_sees_half_of_it(way) -> None:  # type: ignore[no-untyped-def]
    checks = list(audit_columns(coins("audit"), epsilon=1, count=20_000, way=way))
    noise = plan_columns(1, way=way)
    assert len(checks) == sum(len(missing_columns(noise, party)) + 1 for party in OWNERS)
    assert max(len(missing_columns(noise, party)) for party in OWNERS) >= 4  # another's columns may have no value
    assert all(check.passed for check in checks), [check.finding for check in checks]
    assert sum(check.control for check in checks) == len(OWNERS)


def test_noise_that_is_not_levelled_is_refuted() -> None:
    """A planted fault: the drawn representative itself, whose middle cell has no noise at all."""

    def careless(plan, drawing, count):  # type: ignore[no-untyped-def]
        raw, steps = _raw(plan, drawing, count)
        at = {(item.name, item.kind): index for index, item in enumerate(plan.items)}
        tables = {
            feature.name: raw[at[feature.name, "cells"]][..., : feature.size] // steps[at[feature.name, "cells"]]
            for feature in plan.codebook.features
        }
        return raw[0][..., 0] // steps[0], tables

    noise = plan_columns(2)
    bound = attack_columns(noise.plan_of("other"), Claim(2.0, 0.0), coins("careless"), 1500, careless)
    assert bound.epsilon > 2.0


# -- the attack that needs no changed software -------------------------------------------------------------------------------


@pytest.mark.parametrize("nulls", [True, False], ids=["null for all but one", "0 for all but one"])
def test_what_one_answer_tells_of_a_person_is_bounded_as_epsilon_says(nulls: bool) -> None:
    """The attribute holder makes its table up so that the model is about one person, and thinks its own noise away.

    Measured: how often an answer comes for a person of one class and for the same person of the other. Exact counts tell
    the two apart with certainty; with noise no answer's odds move by more than e^(2 epsilon).
    """
    features, rows, epsilon, tries = 4, 300, 0.5, 250
    book = Codebook("hiv", ("neg", "pos"), tuple(Categorical(f"x{i}", ("0", "1"), optional=nulls) for i in range(features)))
    noise = ColumnNoise.make(book, {"clinic": (), "gym": book.names}, "clinic", epsilon=epsilon, rows=rows)
    counted = noise.counted.with_features(Categorical(f"x{i}", ("0", "1"), optional=True) for i in range(features))
    others = np.repeat([0, 1], [200, 99])

    def answers(person: int, drawn: PartyNoise | None) -> tuple[int, ...]:
        """Classes of the instances that the attacker asks, from exact counts or with the class holder's noise on them."""
        labels = np.append(others, person)
        column = np.full(rows, -1 if nulls else 0)
        column[-1] = 1
        guard = Guard() if drawn is None else Guard(noise_bits=noise.noise_bits)
        layout = RowLayout(counted.features, rows, noise_bits=guard.noise_bits)
        block = CodedRows(labels, dict.fromkeys(counted.names, column), rows)
        words = np.stack([layout.encode(block)[labels == c].sum(axis=0, dtype=np.uint64) for c in (0, 1)])
        plan = ScoreLayout(counted, rows, 1.0, guard)
        parts = [] if drawn is None else [drawn.tables]
        tables = to_floats(plain_tables(words, np.array([rows, 0]), layout, plan, parts)[0], plan)
        counts = np.bincount(labels, minlength=2) + (0 if drawn is None else np.array(drawn.class_counts, dtype=float))
        prior = math.log(max(counts[1], 1) / max(counts[0], 1))
        scores = [
            prior + k * tables["x0"][0, 2, 0] + sum(tables[f"x{i}"][0, 2, 0] for i in range(1, features)) for k in (1, 3, 9)
        ]
        return tuple(int(score > 0) for score in scores)

    assert answers(0, None) != answers(1, None)
    found = []
    for person in (0, 1):
        seen: dict[tuple[int, ...], int] = {}
        for at in range(tries):
            got = answers(person, noise.draw("clinic", coins(f"{nulls} {person} {at}")))
            seen[got] = seen.get(got, 0) + 1
        found.append(seen)
    limit = math.exp(2 * epsilon)
    for answer in set(found[0]) | set(found[1]):
        often, seldom = sorted((found[0].get(answer, 0), found[1].get(answer, 0)), reverse=True)
        slack = 3.5 * math.sqrt(often + limit**2 * max(seldom, 1))
        assert often <= limit * seldom + slack, answer
    assert min(len(seen) for seen in found) >= 2  # both kinds of person get several answers


@pytest.mark.parametrize("join", ["aligned", "left", "inner"])
def test_no_counter_is_without_the_noise_of_each_who_adds_to_it(join) -> None:  # type: ignore[no-untyped-def]
    """Columns that tell nothing: before, their counters held the exact class counts, and one bit of a circuit gave a class."""
    features = (
        Categorical("plan", ("s", "m")),
        Categorical("one", ("x",)),
        Numeric("same", 5, 5),
        Categorical("maybe", ("x",), optional=True),
        Numeric("rarely", 5, 5, optional=True),
    )
    book, held = Codebook("y", ("a", "b"), features), {"bank": ("plan",), "clinic": ("one", "same", "maybe", "rarely")}
    noise = ColumnNoise.make(book, held, "bank", epsilon=0.1, rows=3000, join=join)
    for party in held:
        plan = noise.plan_of(party)
        counts, tables = draws(plan, coins("each"), 200)
        for name in (name for name in tables if party in noise.adders(name)):
            assert tables[name].astype(float).std(axis=0).min() > 1, (party, name)
        for name, cut in zip(plan.codebook.names, plan.encodings, strict=True):
            if cut.cells == 1:
                assert np.array_equal(tables[name][..., 0], counts)


def test_a_counter_without_noise_is_refused() -> None:
    book = Codebook("y", ("a", "b"), (Categorical("plan", ("s", "m")), Categorical("job", ("u", "v"))))
    plan = plan_release(book, epsilon=1.0, rows=1000)
    left_out = replace(plan, encodings=(plan.encodings[0], replace(plan.encodings[1], kind="nothing")))
    with pytest.raises(LocalProtocolError, match="without noise"):
        draw(left_out, coins("none"))
