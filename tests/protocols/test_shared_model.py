"""shared_model: shares add up to the fixed-point model, which stays within its stated error of the plain one."""

import tomllib
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import blindbayes.protocols.shared_training.shared_model as package
from blindbayes.codebook import Categorical, Codebook, Numeric
from blindbayes.crypto import limbs as lm
from blindbayes.crypto.tweaks import TweakedHash
from blindbayes.errors import ConfigError, IntegrityError, LocalProtocolError, PeerProtocolError, ProtocolError
from blindbayes.protocols.memory import Drop, Replace, Tamper, run_in_memory
from blindbayes.protocols.shared_training.class_sums import RowLayout
from blindbayes.protocols.shared_training.shared_model import ScoreLayout, circuit, score
from blindbayes.protocols.shared_training.shared_model import tables as model_tables
from blindbayes.protocols.shared_training.shared_model.messages import ModelGarbled, SumsChosen
from blindbayes.protocols.shared_training.shared_model.score_layout import FRACTION
from blindbayes.statistics import MISSING, CodedRows
from blindbayes.wire.transcript import Keep
from support.columns import MIXED, Case, book, draw_block, to_scores
from support.oracles import is_normal
from support.plain_model import to_floats
from support.two_party import coins

SPEC = tomllib.loads((Path(package.__file__).parent / "SPEC.md").read_text().split("```toml\n", 1)[1].split("```", 1)[0])

WIDE = book([Numeric("x", -1e6, 1e6, 0.001), Numeric("z", 0, 50)], floor=1e-9)
BINARY = book([Categorical("v", ("0", "1")), Numeric("x", 0, 10, 0.1)], classes=("no", "yes"))
SMALL = book([Categorical("v", ("0", "1"), optional=True), Numeric("x", 0, 5)], classes=("no", "yes"), floor=1.0)
TINY = book([Categorical("v", ("0", "1"), optional=True)], classes=("no", "yes"))
FIVE = book([Categorical("v", tuple("abcdefg"), optional=True)], classes=tuple("12345"))


@pytest.mark.parametrize(
    ("codebook", "rows"), [(MIXED, 400), (BINARY, 50), (FIVE, 90), (WIDE, 60)], ids=["mixed", "binary", "five", "two limbs"]
)
def test_the_two_shares_add_up_to_the_plain_circuit_and_alone_they_do_not(codebook, rows):
    case = Case(codebook, draw_block(codebook, rows))
    outcome = run_in_memory(case.model_roles())
    mine, theirs = outcome.outputs["class"], outcome.outputs["attributes"]
    for name, table in case.plain().items():
        assert np.array_equal(lm.cut(lm.add(mine[name], theirs[name]), case.plan.bits), table)
        assert not np.array_equal(mine[name], table)
    assert is_normal(mine, case.plan)
    assert is_normal(theirs, case.plan)
    assert outcome.opened == {"class": (), "attributes": ()}
    assert SPEC["opened"] == []


def test_every_step_of_either_execution_hashes_under_a_key_of_its_own(monkeypatch):
    """Security falls with the hashes under one key: 98 bits for the widest studies where a whole session has one."""
    used, genuine = Counter(), TweakedHash.reserve

    def counted(hash_, domain, count):
        used[hash_.session] += count
        return genuine(hash_, domain, count)

    monkeypatch.setattr(TweakedHash, "reserve", counted)
    for module in (circuit, model_tables):
        monkeypatch.setattr(module, "LN_LANES", 4)
    case = Case(MIXED, draw_block(MIXED, 40))
    run_in_memory(case.model_roles())
    steps = len(model_tables.output_lanes(case.layout, case.plan))
    assert steps >= 5
    assert len(used) == 2 * steps
    assert max(used.values()) < sum(used.values()) / 2


@pytest.mark.parametrize(("codebook", "rows", "stretch"), [(MIXED, 70, 9), (MIXED, 70, 69), (BINARY, 20, 1), (WIDE, 30, 7)])
def test_the_sums_of_stretches_make_the_same_model(codebook, rows, stretch):
    """Fields of every kind, negative sums and limbs too; once the attribute holder's share is all ones, so that all carry."""
    block = draw_block(codebook, rows)
    whole, case = Case(codebook, block), Case(codebook, block, stretch=stretch)
    assert case.layout.stretches == -(-rows // stretch)
    wanted = whole.plain()
    for name, table in case.plain().items():
        assert np.array_equal(table, wanted[name])
    for share in (None, np.full_like(case.words, np.iinfo(np.uint64).max)):
        case.shares = lambda share=share: Case.shares(case) if share is None else (case.words - share, share)
        outcome = run_in_memory(case.model_roles())
        for name, table in wanted.items():
            mine, theirs = outcome.outputs["class"][name], outcome.outputs["attributes"][name]
            assert np.array_equal(lm.cut(lm.add(mine, theirs), case.plan.bits), table)


def test_rows_are_cut_into_stretches_where_that_makes_the_fewest_bytes():
    features = [Categorical(f"c{at}", ("0", "1")) for at in range(45)] + [Numeric(f"g{at}", -2047, 2047) for at in range(5)]
    found = {rows: RowLayout.thrifty(features, rows, 3) for rows in (1000, 20_000, 10**6)}
    assert [(layout.stretches, layout.words) for layout in found.values()] == [(1, 12), (1, 17), (31, 17)]
    assert RowLayout(features, 10**6).words == 22
    wires = RowLayout.thrifty(features, 2**31 - 1, 40)  # as many stretches as fit into the memory of the circuit
    assert wires.stretches == 1 or wires.sums * 40 <= 1 << 16


def errors(case, columns=None, rows=None):
    """Per feature: largest error of differences between classes that have rows, and twice the stated bound."""
    columns = columns or case.block.columns
    rows = rows or case.block.rows
    tables = case.plain()
    full = case.counts > 0
    found = {}
    for name, term in case.parameters.terms.items():
        got = to_scores(score({name: tables[name]}, columns, case.plan, rows), case.plan) / 2**case.plan.fraction
        got = np.concatenate([np.zeros((rows, 1)), got.astype(np.float64)], axis=1)[:, full]
        plain = case.parameters.score(name, term, columns[name])[:, full]
        size = np.abs(plain).max(initial=0.0)
        error = np.abs((got - got[:, :1]) - (plain - plain[:, :1])).max(initial=0.0)
        found[name] = (error, 2 * case.plan.error(name) + size * 2.0**-46)
    return found


ABSENT = np.array([0, 2] * 30)
HARD = {
    "mixed": (MIXED, draw_block(MIXED, 500), 1.0),
    "one row": (MIXED, draw_block(MIXED, 1, labels=np.array([1])), 1.0),
    "absent class": (MIXED, draw_block(MIXED, 60, labels=ABSENT), 1.0),
    "alpha 0.1": (MIXED, draw_block(MIXED, 300), 0.1),
    "alpha 2.5": (MIXED, draw_block(MIXED, 300), 2.5),
    "two limbs": (WIDE, draw_block(WIDE, 80), 1.0),
    "constant column": (WIDE, CodedRows(ABSENT, {"x": np.full(60, 123456), "z": np.zeros(60, dtype=np.int64)}, 60), 1.0),
    "at the bounds": (
        BINARY,
        CodedRows(np.arange(40) % 2, {"v": np.arange(40) % 2, "x": np.where(np.arange(40) % 4 < 2, -50, 50)}, 40),
        1.0,
    ),
    "all missing in one class": (
        MIXED,
        CodedRows(
            np.arange(90) % 3,
            {
                **draw_block(MIXED, 90).columns,
                "weight": np.where(np.arange(90) % 3 == 1, MISSING, np.arange(90) * 10),
                "size": np.where(np.arange(90) % 3 == 1, -1, np.arange(90) % 2),
            },
            90,
        ),
        1.0,
    ),
    "all missing": (
        MIXED,
        CodedRows(np.arange(30) % 3, {**draw_block(MIXED, 30).columns, "weight": np.full(30, MISSING)}, 30),
        1.0,
    ),
}


@pytest.mark.parametrize("name", HARD)
def test_every_score_is_within_the_stated_bound_of_the_plain_model(name):
    codebook, block, alpha = HARD[name]
    case = Case(codebook, block, alpha)
    for feature, (error, bound) in errors(case).items():
        assert error <= bound, feature
    query = draw_block(codebook, 200, "query")
    for feature, (error, bound) in errors(case, query.columns, 200).items():
        assert error <= bound, feature


def test_the_bound_has_teeth():
    """A tenth of the bound is not always kept: it is not idle."""
    case = Case(MIXED, draw_block(MIXED, 2000))
    found = errors(case)
    assert any(error > bound / 20 for error, bound in found.values())


def test_a_feature_without_any_value_adds_nothing():
    codebook, block, _ = HARD["all missing"]
    table = Case(codebook, block).plain()["weight"]
    assert not table.any()


def test_no_score_difference_can_overflow():
    """The worst data the codebook allows: each class at one bound with variance at the floor, queries at the other bound."""
    features = [Numeric("x", -100, 100), Numeric("z", -7, 9, 0.5), Categorical("v", ("0", "1"))]
    codebook = book(features, classes=("a", "b"), floor=0.0001)
    rows, z = 30, codebook.feature("z")
    labels = np.arange(rows) % 2
    block = CodedRows(
        labels,
        {"x": np.where(labels == 0, -100, 100), "z": np.where(labels == 0, z.code_low, z.code_high), "v": labels},
        rows,
    )
    case = Case(codebook, block)
    worst = {"x": np.array([100, -100]), "z": np.array([z.code_high, z.code_low]), "v": np.array([1, 0])}
    got = to_scores(score(case.plain(), worst, case.plan, 2), case.plan)
    plain = case.parameters.joint_log_likelihood(CodedRows(None, worst, 2))
    difference = plain[:, 1] - plain[:, 0]
    assert np.abs(difference).min() > 0.4 * case.plan.spread  # it really is near the edge
    assert np.allclose(got[:, 0].astype(float) / 2**case.plan.fraction, difference, rtol=1e-9)
    assert np.abs(got).max() < 2 ** (case.plan.bits - 2)


def test_widths_come_from_public_facts_and_refuse_what_cannot_be_held():
    categorical = book([Categorical("v", ("0", "1"))])
    assert ScoreLayout(categorical, 100).bits < ScoreLayout(categorical, 10**6).bits < 40
    assert ScoreLayout(WIDE, 100).limbs == 2
    assert ScoreLayout(MIXED, 100).limbs == 1
    assert ScoreLayout(MIXED, 100).fraction == FRACTION
    with pytest.raises(ConfigError, match="variance_floor"):
        ScoreLayout(Codebook("y", ("a", "b"), (Numeric("x", 0, 1, 0.1),)), 100)
    with pytest.raises(ConfigError, match="coarsen"):
        ScoreLayout(book([Numeric("x", -1e6, 1e6, 1e-6)], floor=1e-30), 100)
    with pytest.raises(ConfigError, match="alpha"):
        ScoreLayout(categorical, 100, alpha=0.0)
    with pytest.raises(ConfigError, match="two classes"):
        ScoreLayout(book([Categorical("v", ("0", "1"))], classes=("only",)), 100)


def test_gate_counts():
    """AND gates: per histogram cell and class, and per Gaussian feature and class."""
    rows = 1000
    cells = Case(book([Categorical("v", ("0", "1", "2"))]), draw_block(book([Categorical("v", ("0", "1", "2"))]), rows))
    assert cells.gates() == 4665
    numeric = book([Numeric("x", 0, 100)], floor=1.0)
    assert Case(numeric, draw_block(numeric, rows)).gates() == 22503


def test_cost_equals_the_spec():
    case = Case(SMALL, draw_block(SMALL, 20))
    outcome = run_in_memory(case.model_roles())
    pieces = sum(entry.kind is ModelGarbled and entry.sender == "class" for entry in outcome.transcript.entries)
    assert outcome.cost.rounds == 5 + eval(SPEC["rounds"], {}, {"pieces": pieces})
    assert outcome.cost.messages == 8 + eval(SPEC["messages"], {}, {"pieces": pieces})
    assert pieces == 2  # one step of logarithms, one per Gaussian feature


def test_each_share_alone_is_uniform():
    """Mean bit of the entries over runs with fresh masks: six standard deviations, alpha = 2e-9; the model itself fails."""
    case = Case(SMALL, draw_block(SMALL, 20))
    bits = case.plan.bits

    def score_of(tables):
        entries = np.concatenate([table[:, 1:].reshape(-1, case.plan.limbs) for table in tables])
        spread = lm.to_bits(entries, bits)
        return abs(spread.mean() - 0.5) * 2 * np.sqrt(spread.size)

    runs = [run_in_memory(case.model_roles(mine=coins(f"mask {number}"))).outputs for number in range(3)]
    for who in ("class", "attributes"):
        assert score_of([table for outputs in runs for table in outputs[who].values()]) < 6
    assert score_of(list(case.plain().values()) * 3) > 6
    # Fresh masks: no entry of a share comes twice.
    first, second = runs[0]["attributes"]["x"], runs[1]["attributes"]["x"]
    assert not np.any((first == second)[:, 1:].all(axis=-1))


def test_sums_do_not_stand_in_the_transcript():
    case = Case(BINARY, draw_block(BINARY, 200))
    outcome = run_in_memory(case.model_roles(), keep=Keep.FRAMES)
    secrets = [int(value).to_bytes(8, "little") for value in case.words.reshape(-1) if value > 2**16]
    secrets += [int(value).to_bytes(8, "little") for share in case.shares() for value in share.reshape(-1)]
    for entry in outcome.transcript.entries:
        assert not any(secret in entry.frame for secret in secrets)


def test_a_changed_table_ends_in_an_integrity_error():
    case = Case(SMALL, draw_block(SMALL, 20))

    def change(message):
        tables = message.tables.copy()
        tables[:: max(1, len(tables) // 64)] ^= np.uint64(1 << 40)
        return ModelGarbled(message.mark, tables, message.tags, message.last)

    with pytest.raises(IntegrityError) as caught:
        run_in_memory(case.model_roles(), faults=[Replace(lambda entry: entry.kind is ModelGarbled, change)])
    assert caught.value.party == "class"


def test_broken_messages_end_in_a_typed_error():
    case = Case(TINY, draw_block(TINY, 20))
    count = run_in_memory(case.model_roles()).cost.messages
    for index in range(count):
        for fault in (Drop(index), Tamper(index, lambda frame: frame[:-9]), Tamper(index, lambda frame: b"\1\2")):
            outcome = run_in_memory(case.model_roles(), faults=[fault], check=False)
            assert isinstance(outcome.error, ProtocolError) or outcome.lost
            assert outcome.opened == {"class": (), "attributes": ()}
    for kind, change in (
        (SumsChosen, lambda m: SumsChosen(m.mark, m.corrections[:-1])),
        (ModelGarbled, lambda m: ModelGarbled(m.mark, m.tables[:-4], m.tags, m.last)),
        (ModelGarbled, lambda m: ModelGarbled(m.mark, np.concatenate([m.tables, m.tables[:4]]), m.tags, m.last)),
        (ModelGarbled, lambda m: ModelGarbled(m.mark, m.tables, m.tags[:-1], m.last)),
        (ModelGarbled, lambda m: ModelGarbled(m.mark, m.tables, m.tags, False)),
    ):
        with pytest.raises(PeerProtocolError):
            run_in_memory(case.model_roles(), faults=[Replace(lambda entry, kind=kind: entry.kind is kind, change)])


def test_other_public_facts_are_refused_before_anything_moves():
    case = Case(SMALL, draw_block(SMALL, 20))
    for other in (Case(SMALL, draw_block(SMALL, 21)), Case(SMALL, draw_block(SMALL, 20), alpha=2.0)):
        outcome = run_in_memory(case.model_roles(other=other), check=False)
        assert isinstance(outcome.error, PeerProtocolError)
        assert not any(entry.kind in (SumsChosen, ModelGarbled) for entry in outcome.transcript.entries)


def test_own_mistakes_are_local_errors():
    case = Case(SMALL, draw_block(SMALL, 20))
    case.counts = case.counts + 1
    with pytest.raises(LocalProtocolError):
        run_in_memory(case.model_roles())
    tables = Case(SMALL, draw_block(SMALL, 20)).plain()
    assert is_normal(tables, case.plan)
    assert not is_normal({"v": tables["x"]}, case.plan)
    assert set(to_floats(tables, case.plan)) == {"v", "x"}
