"""Noise in the shares of a study over columns, against a party that enters another share than the one it was left with.

Counters were cut out of the words first, modulo 2^width, and noise was added after: a party that added 2^width - 1 to its share
of a counter turned 0 people into all rows and 1 person into none, which no noise hides. Now each party's noise is in its share
of the words, so whatever the other adds, and wherever a word is cut, the noise was there before.
"""

import math

import msgspec
import numpy as np
import pandas as pd
import pytest

from blindbayes import ColumnStudy, Privacy
from blindbayes.codebook import Categorical, Codebook, Numeric
from blindbayes.crypto import limbs as lm
from blindbayes.crypto.garbling import circuits as c
from blindbayes.crypto.garbling.garbling import Plain
from blindbayes.dp.audit.lower_bounds import epsilon_lower
from blindbayes.dp.distributed.column_noise import ColumnNoise, draws
from blindbayes.errors import ConfigError, LocalProtocolError
from blindbayes.protocols.memory import local_runs, run_in_memory
from blindbayes.protocols.private_join.sums import counts as on_counts
from blindbayes.protocols.shared_training import columns as columns_roles
from blindbayes.protocols.shared_training import shared_model
from blindbayes.protocols.shared_training.class_sums import RowLayout
from blindbayes.protocols.shared_training.columns import ColumnsSetup
from blindbayes.protocols.shared_training.shared_model import Guard, ScoreLayout
from blindbayes.protocols.shared_training.shared_model.roles import attribute_bits
from blindbayes.statistics import CodedRows
from support.columns import connect
from support.plain_model import to_floats
from support.two_party import coins

BOOK = Codebook(
    "risk", ("no", "yes"), (Categorical("plan", ("s", "m", "l")), Categorical("job", ("a", "b", "c"))), variance_floor=1.0
)
ROWS = 600
GUARD = Guard(noise_bits=12)


def shared_tables(joint, name, plan):
    """What two shares of a table add up to, in plain numbers."""
    whole = lm.cut(lm.add(*(next(iter(share.tables.values()))[name] for share in joint.model.shares.values())), plan.bits)
    return to_floats({name: whole}, plan)[name]


def with_lies(genuine, edit):
    """A role of shared_model whose party edits its share first."""

    def lying(run, other, share, *rest):
        layout = next(part[0] for part in rest if isinstance(part, tuple) and isinstance(part[0], RowLayout))
        field = next(fields for fields in layout.fields if fields.feature.name == "job").counts[2]
        share = share.copy()
        edit(share, layout, field)
        return (yield from genuine(run, other, share, *rest))

    return lying


def to_all_rows(share, layout, field):
    """The counter of "c" in class "yes": 0 becomes the largest number, 1 becomes 0. Beside it there are rows in "a"."""
    words = share.reshape(2, layout.stretches, layout.words)
    words[1, 0, layout.fields[0].counts[0].word] += np.uint64((ROWS // 4) << layout.fields[0].counts[0].shift)
    words[1, 0, field.word] += np.uint64(((1 << field.width) - 1) << field.shift)


@pytest.mark.parametrize("liar", ["class_holder", "attribute_holder"])
def test_a_changed_share_does_not_show_one_person_through_the_others_noise(liar, monkeypatch):
    """The liar's table is about one person alone; what it wants is in the other's table: a value, or the class."""

    def told(wanted, seed):
        rng = np.random.default_rng(seed)
        job, risk = rng.choice(["a", "b", "c"], ROWS), np.array(["no"] * ROWS, dtype=object)
        if liar == "class_holder":
            job[0], risk[0] = "c" if wanted else "a", "yes"
        else:
            job[:], risk[: ROWS // 3] = "a", "yes"
            job[0], risk[0] = "c", "yes" if wanted else "no"
        frames = {
            "bank": pd.DataFrame({"plan": rng.choice(["s", "m", "l"], ROWS), "risk": risk}),
            "clinic": pd.DataFrame({"job": job}),
        }
        joint = ColumnStudy(BOOK, privacy=Privacy(epsilon=0.3)).simulate(frames, coins=coins(f"wrapped {seed}"))
        return shared_tables(joint, "job", joint.model.columns.plan)[0, 3, 0]  # ln P(c | yes) - ln P(c | no)

    monkeypatch.setattr(columns_roles.shared_model, liar, with_lies(getattr(shared_model, liar), to_all_rows))
    there, gone = ([told(wanted, seed) for seed in range(3)] for wanted in (True, False))
    assert max(there) > min(gone)  # before: a person that is there is told apart each time, whatever the noise
    # Under one noise a person moves two counters by one each, smoothed by alpha = 1; before, one by 2^width - 1.
    assert np.abs(np.array(there) - gone).max() <= 2 * math.log(2)


def test_words_that_no_row_has_pass_the_class_holders_noise_alone(monkeypatch):
    """The limit of noise: an attribute holder whose program lets one row count a thousand times. Randomised labels bound what
    that tells (`test_class_sums_randomised_labels.py`)."""
    genuine = columns_roles.class_sums.attribute_holder

    def lying(run, other, shape, blocks, *rest):
        words = np.concatenate([block.layout.encode(block.block) for block in blocks])
        words[0] *= np.uint64(1000)
        return (yield from genuine(run, other, shape, [words], *rest))

    def told(risk):
        frames = {
            "bank": pd.DataFrame({"plan": ["s", "m", "l"] * (ROWS // 3), "risk": [risk, *["no", "yes"] * (ROWS // 2)][:ROWS]}),
            "clinic": pd.DataFrame({"job": ["c"] + ["a"] * (ROWS - 1)}),
        }
        joint = ColumnStudy(BOOK, privacy=Privacy(epsilon=0.3, label_epsilon=False)).simulate(frames, coins=coins("limit"))
        return shared_tables(joint, "job", joint.model.columns.plan)[0, 3, 0]

    monkeypatch.setattr(columns_roles.class_sums, "attribute_holder", lying)
    assert told("yes") > 1 > -1 > told("no")


@pytest.mark.parametrize("liar", ["class", "attributes"])
def test_a_changed_share_of_the_priors_does_not_show_whether_one_person_joined(liar):
    """Before, 0 people of a class became all rows and 1 person none, ahead of the noise."""
    book = BOOK.with_features(msgspec.structs.replace(feature, optional=True) for feature in BOOK.features)
    plan = ScoreLayout(book, ROWS, 1.0, GUARD)
    honest = "attributes" if liar == "class" else "class"

    def told(joined, seed):
        rng = np.random.default_rng(seed)
        shares = {honest: coins("honest").words(2)}
        shares[liar] = np.array([ROWS // 2, joined], dtype=np.uint64) - shares[honest]
        shares[liar][1] -= np.uint64(1)  # cut to any width: one less than fits
        noise = {honest: rng.integers(-40, 41, 2), liar: np.zeros(2, dtype=np.int64)}
        runs = local_runs(["class", "attributes"], coins=coins("run"))
        roles = {"class": on_counts.prior_class_holder, "attributes": on_counts.prior_attribute_holder}

        def role(me, other):
            both = yield from connect(runs[me], other, coins(me))
            return (yield from roles[me](runs[me], other, shares[me], plan, both, coins(f"r {me}"), noise[me]))

        found = run_in_memory({"class": role("class", "attributes"), "attributes": role("attributes", "class")}).outputs
        return to_floats({"y": lm.cut(lm.add(*found.values()), plan.bits)}, plan)["y"][0, 1, 0]

    there, gone = (np.array([told(joined, seed) for seed in range(3)]) for joined in (1, 0))
    assert there.max() > gone.min()
    assert np.abs(np.exp(there) - np.exp(gone)).max() <= 1.01 / (ROWS // 2 - 40)  # by one count, and not by all rows


# -- what the circuit cuts, audited ------------------------------------------------------------------------------------------

AUDITED = Codebook("y", ("a",), (Categorical("u", ("p", "q"), optional=True), Categorical("v", ("r", "s"), optional=True)))
HOLDS = {"class holder": ("u",), "other": ("v",)}
SUMS = Codebook("y", ("a",), (AUDITED.features[0], Numeric("v", 0, 90_000, optional=True)))


def loss(epsilon, party, offset, count, *, after=False, book=AUDITED):
    """A lower bound on epsilon of the fields that the genuine circuit cuts out of the words of one of a party's records, where
    the other adds `offset` to its share. Each draw of noise is a lane. `after`: noise is added to what was cut, as before."""
    noise = ColumnNoise.make(book, HOLDS, "class holder", epsilon=epsilon, rows=10**6)
    names = [name for owner, names in HOLDS.items() if party in ("class holder", owner) for name in names]
    layout = RowLayout([f for f in book.features if f.name in names], 10**6, noise_bits=noise.noise_bits)
    tables = {name: table[:, 0] for name, table in draws(noise.plan_of(party), coins(f"audit {party}"), count)[1].items()}
    codes = {name: getattr(book.feature(name), "code_high", 0) if book is SUMS else 0 for name in names}
    there = layout.encode(CodedRows(None, {name: np.full(1, code) for name, code in codes.items()}, 1))[0]
    outputs = []
    for words in (there, 0 * there):
        share = np.tile(words + offset(layout), (count, 1))
        parts = shared_model.field_sums.entered(
            share if after else shared_model.field_sums.with_noise(share, tables, layout), layout, raised=True
        )
        sums = shared_model.field_sums.FieldSums(Plain(), (parts, [np.zeros_like(part) for part in parts]), layout, count)
        found = []
        for fields in layout.fields:
            own = fields.counts if hasattr(fields, "counts") else (fields.present, fields.total, *fields.squares)
            for value, field in enumerate(own):
                cut = np.array(c.from_bits(sums.take([field])), dtype=float)
                found.append(cut + tables[fields.feature.name][:, value] if after else cut)
        outputs.append(np.column_stack(found))
    return epsilon_lower(*outputs, delta=0.0, names=[str(at) for at in range(outputs[0].shape[1])], learn=False).epsilon


def minus_one(layout):
    """One less than fits, in every field."""
    return sum_of(layout, lambda field: (1 << field.width) - 1 - (1 << field.raised))


def half(layout):
    return sum_of(layout, lambda field: 1 << (field.width - 1))


def anything(layout):
    return coins("anything").words(layout.words)


def sum_of(layout, value):
    words = np.zeros(layout.words, dtype=np.uint64)
    for field, _ in layout.placed():
        words[field.word] += np.uint64((value(field) << field.shift) % (1 << 64))
    return words


@pytest.mark.parametrize("offset", [minus_one, half, anything])
@pytest.mark.parametrize("book", [AUDITED, SUMS], ids=["counters", "sums"])
@pytest.mark.parametrize("party", HOLDS)
def test_what_is_cut_loses_no_more_than_epsilon_whatever_the_other_adds(party, book, offset):
    assert loss(1.0, party, offset, 4000, book=book) <= 1.0


@pytest.mark.parametrize("book", [AUDITED, SUMS], ids=["counters", "sums"])
@pytest.mark.parametrize("party", HOLDS)
def test_noise_after_the_cut_is_refuted(party, book):
    """The planted fault: the same noise, one step too late."""
    assert loss(1.0, party, minus_one, 4000, after=True, book=book) > 3.0


def test_another_circuit_too_sees_nothing_but_a_share_with_noise():
    """An honest party's bits are those of its share plus noise: whoever garbles another circuit for them, and learns one bit by
    being caught or not, learns it of noisy sums."""
    book = BOOK.with_features((Categorical("job", ("a", "b"), optional=True), Numeric("x", -9, 9, optional=True)))
    layout = RowLayout(book.features, ROWS, noise_bits=12)
    share, rng = coins("share").words(2 * layout.sums).reshape(2, -1), np.random.default_rng(1)
    noise = {"job": rng.integers(-99, 99, (2, 2)), "x": rng.integers(-99, 99, (2, 3))}
    added = shared_model.field_sums.with_noise(np.zeros_like(share), noise, layout)
    nothing = {name: 0 * table for name, table in noise.items()}
    assert added.any()
    assert np.array_equal(attribute_bits(share, noise, layout), attribute_bits(share + added, nothing, layout))


def test_with_noise_there_is_one_stretch_and_no_square_in_limbs():
    """Carries were counted in words of stretches without noise, and limbs cut one by one: noise is on the sum of all alone."""
    book = BOOK.with_features((Categorical("job", tuple("abcdef"), optional=True), Numeric("x", -300, 300, optional=True)))
    many = ColumnsSetup(book, 10**6, {"bank": (), "clinic": ("job", "x")}, ("bank",))
    assert many.aligned["clinic"].stretches > 1
    noisy = ColumnsSetup(book, 10**6, {"bank": (), "clinic": ("job", "x")}, ("bank",), guard=GUARD)
    assert noisy.aligned["clinic"].stretches == 1
    with pytest.raises(LocalProtocolError, match="over all rows"):
        RowLayout(book.features, 10**6, 1 << 15, noise_bits=12)
    wide = Numeric("x", 0, 2**24, optional=True)
    assert len(RowLayout([wide], 10**6).fields[0].squares) == 2
    with pytest.raises(ConfigError, match="pass 64 bits"):
        RowLayout([wide], 10**6, noise_bits=12)
