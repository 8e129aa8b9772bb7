"""joined_sums: shares of the SQL join, equal to DuckDB's; nothing about the overlap is sent; bad input is refused early."""

import tomllib
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import blindbayes.protocols.private_join.sums as package
from blindbayes import JoinStudy, Privacy
from blindbayes.codebook import Categorical, Codebook, IdPart, IdRecipe, Numeric
from blindbayes.errors import ConfigError, DataError, IntegrityError, PeerLost, PeerProtocolError, PrivacyError
from blindbayes.protocols.memory import Drop, Duplicate, Replace, Tamper, local_runs, run_in_memory
from blindbayes.protocols.private_join.joined import connect
from blindbayes.protocols.private_join.sums import equal
from blindbayes.protocols.private_join.sums import roles as joined_roles
from blindbayes.protocols.private_join.sums.inputs import Entries, merge
from blindbayes.protocols.private_join.sums.roles import MAX_BOUND, MIN_BOUND, JoinedSumsSetup, label_holder, row_holder
from blindbayes.protocols.two_party.garbled import EqualityAsked, EqualityProved
from blindbayes.study.simulation.models import JoinedModel
from blindbayes.wire.transcript import Keep
from support.drivers import run_by
from support.two_party import JOIN_MESSAGES, coins, opened_count

SPEC = tomllib.loads((Path(package.__file__).parent / "SPEC.md").read_text().split("```toml\n", 1)[1].split("```", 1)[0])


# -- the protocol ----------------------------------------------------------------------------------------------------------


def identifiers(count, name="ids"):
    return coins(name).words(2 * count).reshape(count, 2)


def parts(shape, rows, labels, *, other_shape=None, mine="r", theirs="l", counted=False):
    runs = local_runs(["rows", "labels"], coins=coins("run"))

    def first():
        links = yield from connect(runs["rows"], "labels", coins("keeper"))
        made = yield from row_holder(runs["rows"], "labels", shape, rows, links.both, coins(mine))
        return made if counted else made.sums

    def second():
        links = yield from connect(runs["labels"], "rows", coins("planter"))
        made = yield from label_holder(runs["labels"], "rows", other_shape or shape, labels, links.both, coins(theirs))
        return made if counted else made.sums

    return {"rows": first(), "labels": second()}


def entries(count, words, overlap, labels, most=1, name="entries"):
    """Row holder's and label holder's entries with `overlap` identifiers in common; with one row each, one class at most."""
    source = coins(name)
    ids = identifiers(2 * count, name + " ids")
    mine = Entries(ids[:count], source.words(count * words).reshape(count, words))
    brought = source.words(count * labels).reshape(count, labels) % np.uint64(most + 1)
    if most == 1 and labels > 1:
        brought = np.eye(labels + 1, labels, dtype=np.uint64)[source.words(count) % np.uint64(labels + 1)]
    return mine, Entries(ids[count - overlap : 2 * count - overlap], brought)


def expected(rows, labels):
    known = {item.tobytes(): at for at, item in enumerate(labels.items)}
    total = np.zeros((labels.words.shape[1], rows.words.shape[1]), dtype=np.uint64)
    for item, words in zip(rows.items, rows.words, strict=True):
        at = known.get(item.tobytes())
        if at is not None:
            total += labels.words[at][:, None] * words[None]
    return total


@pytest.mark.parametrize(("count", "overlap"), [(0, 0), (1, 1), (300, 0), (300, 300), (300, 77), (MIN_BOUND, 1000)])
def test_shares_add_up_to_the_sums_over_the_intersection(count, overlap):
    rows, labels = entries(count, 3, overlap, 2)
    outcome = run_in_memory(parts(JoinedSumsSetup(MIN_BOUND, MIN_BOUND, 3, 2), rows, labels))
    total = outcome.outputs["rows"] + outcome.outputs["labels"]
    assert np.array_equal(total, expected(rows, labels))
    assert not np.array_equal(outcome.outputs["labels"], total)
    assert outcome.opened == {"rows": (), "labels": ()}
    assert SPEC["opened"] == []


@pytest.mark.parametrize(("count", "overlap"), [(0, 0), (1, 1), (300, 0), (300, 77), (MIN_BOUND, MIN_BOUND)])
def test_the_number_of_common_identifiers_is_counted_too(count, overlap):
    """Whatever their labels are, zeros among them."""
    rows, labels = entries(count, 2, overlap, 2)
    labels = Entries(labels.items, np.zeros_like(labels.words))
    shape = JoinedSumsSetup(MIN_BOUND, MIN_BOUND, 2, 2, counted=True)
    found = run_in_memory(parts(shape, rows, labels, counted=True)).outputs
    assert opened_count(found["rows"].matches, found["labels"].matches) == overlap
    assert not (found["rows"].sums + found["labels"].sums).any()


@pytest.mark.parametrize(("labels", "most"), [(1, 1), (5, 3), (40, 7)])
def test_labels_of_several_bits_weigh_the_rows(labels, most):
    rows, others = entries(200, 2, 120, labels, most)
    outcome = run_in_memory(parts(JoinedSumsSetup(MIN_BOUND, MIN_BOUND + 500, 2, labels, most), rows, others))
    assert np.array_equal(outcome.outputs["rows"] + outcome.outputs["labels"], expected(rows, others))


def cost_of(shape):
    known = {
        "row_ids": shape.row_ids,
        "label_ids": shape.label_ids,
        "words": shape.words,
        "labels": shape.labels,
        "most": shape.max_label,
        "counted": int(shape.counted),
    }
    for name, formula in SPEC["variables"].items():
        known[name] = eval(formula, {"max": max}, known)
    return known


@pytest.mark.parametrize("counted", [0, 1])
@pytest.mark.parametrize("words", [4, 200])
def test_cost_equals_the_spec(words, counted):
    shape = JoinedSumsSetup(5000, 4500, words, 2, 3, counted=counted > 0)
    rows, labels = entries(100, words, 50, 2, 3)
    outcome = run_in_memory(parts(shape, rows, labels))
    known = cost_of(shape)
    assert (known["bins"], known["tag_bits"], known["planes"]) == (shape.bins, shape.tag_bits, shape.planes)
    assert (known["payload"], known["block"]) == (shape.payload_words, shape.block)
    assert known["blocks"] == (4 if words == 200 else 1)
    assert outcome.cost.messages == 8 + eval(SPEC["messages"], {}, known)
    assert outcome.cost.rounds == 6 + eval(SPEC["rounds"], {}, known)
    kinds = JOIN_MESSAGES
    sizes = [entry.size for entry in outcome.transcript.entries if entry.kind.__name__ in kinds]
    assert known["bytes"] <= sum(sizes) <= known["bytes"] + 150 * len(sizes)  # names, frames, and units of 128 transfers


def test_what_is_sent_has_the_same_lengths_whatever_the_sizes_and_the_overlap():
    shape = JoinedSumsSetup(MIN_BOUND, MIN_BOUND, 2, 2)
    seen = []
    for count, overlap in ((0, 0), (50, 0), (1000, 1000), (MIN_BOUND, 17)):
        rows, labels = entries(count, 2, overlap, 2)
        outcome = run_in_memory(parts(shape, rows, labels))
        seen.append([(entry.sender, entry.kind, entry.size) for entry in outcome.transcript.entries])
    assert all(other == seen[0] for other in seen[1:])


def test_views_at_no_and_at_full_overlap_look_alike():
    """Mean bit of each kind of message within six standard deviations of 1/2 (alpha 2e-9 each) in both, and in the shares."""
    shape = JoinedSumsSetup(MIN_BOUND, MIN_BOUND, 2, 2)
    for overlap in (0, 500):
        rows, labels = entries(500, 2, overlap, 2)
        rows = Entries(rows.items, np.ones_like(rows.words))
        outcome = run_in_memory(parts(shape, rows, labels), keep=Keep.FRAMES)
        for entry in outcome.transcript.entries:
            body = np.frombuffer(entry.frame[96:], dtype=np.uint8)
            if len(body) < 4096:
                continue
            bits = np.unpackbits(body)
            assert abs(bits.mean() - 0.5) * 2 * np.sqrt(bits.size) < 6, entry.kind
        for share in outcome.outputs.values():
            bits = np.unpackbits(share.view(np.uint8))
            assert abs(bits.mean() - 0.5) * 2 * np.sqrt(bits.size) < 6


def test_digests_do_not_stand_in_the_transcript():
    rows, labels = entries(64, 2, 64, 2)
    outcome = run_in_memory(parts(JoinedSumsSetup(MIN_BOUND, MIN_BOUND, 2, 2), rows, labels), keep=Keep.FRAMES)
    whole = b"".join(entry.frame for entry in outcome.transcript.entries)
    for item in rows.items:
        assert item.tobytes() not in whole
        assert item[:1].tobytes() not in whole
        assert item[1:].tobytes() not in whole


def test_other_coins_give_other_messages():
    rows, labels = entries(64, 2, 10, 2)
    frames = []
    for name in ("a", "b"):
        made = parts(JoinedSumsSetup(MIN_BOUND, MIN_BOUND, 2, 2), rows, labels, mine=name, theirs="l" + name)
        outcome = run_in_memory(made, keep=Keep.FRAMES)
        frames.append({entry.frame for entry in outcome.transcript.entries[8:]})
    assert not frames[0] & frames[1]


def test_a_party_with_other_facts_is_refused_before_anything_is_sent():
    rows, labels = entries(10, 2, 5, 2)
    for other in (
        JoinedSumsSetup(MIN_BOUND, MIN_BOUND, 2, 2, 2),
        JoinedSumsSetup(MIN_BOUND + 1, MIN_BOUND, 2, 2),
        JoinedSumsSetup(MIN_BOUND, MIN_BOUND, 2, 2, 1, b"other recipe"),
    ):
        outcome = run_in_memory(
            parts(JoinedSumsSetup(MIN_BOUND, MIN_BOUND, 2, 2), rows, labels, other_shape=other), check=False
        )
        assert isinstance(outcome.error, PeerProtocolError)
        assert not any(
            kind.__name__ in ("ItemsMasked", "StoreFilled") for seen in outcome.transcript.received.values() for kind in seen
        )


@pytest.mark.parametrize("kind", JOIN_MESSAGES)
def test_a_message_of_a_wrong_length_is_refused(kind):
    rows, labels = entries(10, 2, 5, 2)

    def shorter(message):
        first = next(name for name in message.__struct_fields__ if name != "mark" and len(getattr(message, name)))
        values = {name: getattr(message, name) for name in message.__struct_fields__}
        return type(message)(**(values | {first: values[first][:-1]}))

    fault = Replace(lambda entry: entry.kind.__name__ == kind, shorter)
    outcome = run_in_memory(parts(JoinedSumsSetup(MIN_BOUND, MIN_BOUND, 2, 2), rows, labels), faults=[fault], check=False)
    assert isinstance(outcome.error, PeerProtocolError)
    assert outcome.error.party == ("rows" if kind in ("ItemsMasked", "DigitsMasked", "BinsCompared") else "labels")


@pytest.mark.parametrize("first", [0, *(pytest.param(at, marks=pytest.mark.slow) for at in (1, 2, 3))])
def test_every_message_may_be_lost_doubled_or_cut(first):
    """A typed error names the sender, or (a message doubled after the last one that is read) the run ends as it should.

    Who asks whether the two are equal knows the answer first: without its proof it counts as caught.
    """
    rows, labels = entries(10, 2, 5, 2)
    shape = JoinedSumsSetup(MIN_BOUND, MIN_BOUND, 2, 2)
    whole = run_in_memory(parts(shape, rows, labels))
    wanted = whole.outputs["rows"] + whole.outputs["labels"]
    for entry in whole.transcript.entries[first::4]:
        for fault in (Drop(entry.index), Duplicate(entry.index), Tamper(entry.index, lambda frame: frame[: len(frame) // 2])):
            outcome = run_in_memory(parts(shape, rows, labels), faults=[fault], check=False)
            if outcome.error is None:
                assert isinstance(fault, Duplicate)
                assert np.array_equal(outcome.outputs["rows"] + outcome.outputs["labels"], wanted)
                continue
            withholds_proof = entry.kind is EqualityProved or (entry.kind is EqualityAsked and isinstance(fault, Duplicate))
            assert isinstance(outcome.error, IntegrityError if withholds_proof else PeerProtocolError | PeerLost)
            assert outcome.error.party == entry.sender


def test_sets_over_the_bound_are_refused():
    rows, labels = entries(MIN_BOUND + 1, 1, 5, 2)
    with pytest.raises(DataError, match="bound"):
        run_in_memory(parts(JoinedSumsSetup(MIN_BOUND, MIN_BOUND, 1, 2), rows, labels))
    for bad in (MIN_BOUND - 1, MAX_BOUND + 1):
        with pytest.raises(ConfigError, match="bounds"):
            JoinedSumsSetup(bad, MIN_BOUND, 1, 2)
    assert JoinedSumsSetup(MAX_BOUND, MAX_BOUND, 1, 2).tag_bits == 67  # a tag may span words
    with pytest.raises(ConfigError, match="multiplicity"):
        JoinedSumsSetup(MIN_BOUND, MIN_BOUND, 1, 60, 255)


@pytest.mark.parametrize("bound", [MIN_BOUND, MAX_BOUND])
def test_labels_stand_behind_a_tag_of_any_width(bound):
    """At the largest bound a tag has more bits than a word."""
    shape = JoinedSumsSetup(bound, MIN_BOUND, 1, 5, 3)
    labels = coins("wide").words(5 * 40).reshape(40, 5) % np.uint64(4)
    words = joined_roles._payload(labels, shape)
    bits = joined_roles._label_bits(words, shape)
    assert bits.shape == (10, 40)
    assert not equal.digits(words, shape.tag_bits).any()
    assert np.array_equal(bits[::2].T + 2 * bits[1::2].T, labels)


def test_a_run_fails_with_probability_below_two_to_the_minus_forty_three():
    """False matches of occupied bins, placement and store, added up, at sizes where bins are just below a power of two."""
    for bound in (MIN_BOUND, 6206, 99_296, MAX_BOUND):
        shape = JoinedSumsSetup(bound, bound, 1, 2)
        false = bound / 2.0**shape.tag_bits
        assert false + 2.0**-48 + 2.0**-70 + bound * bound / 2.0**128 < 2.0**-43
    assert 99_296 / 2.0 ** (JoinedSumsSetup(99_296, MIN_BOUND, 1, 2).tag_bits - 1) > 2.0**-43  # a bit less would not do


# -- merging rows ------------------------------------------------------------------------------------------------------------


def test_rows_of_one_identifier_are_merged_by_policy():
    digests = [b"a" * 16, b"b" * 16, None, b"a" * 16]
    words = np.array([[1], [10], [100], [1000]], dtype=np.uint64)

    def found(policy, most=4):
        made = merge(digests, words, policy, most)
        return {item.tobytes(): int(own[0]) for item, own in zip(made.items, made.words, strict=True)}

    assert found("join") == {b"a" * 16: 1001, b"b" * 16: 10}
    assert found("first") == {b"a" * 16: 1, b"b" * 16: 10}
    with pytest.raises(DataError, match="reject"):
        found("reject")
    with pytest.raises(DataError, match="more than 1 rows"):
        found("join", 1)
    with pytest.raises(ConfigError):
        found("last")
    assert len(merge([None, None], words[:2], "reject", 1)) == 0


# -- studies against SQL -----------------------------------------------------------------------------------------------------

BOOK = Codebook(
    "y",
    ("no", "yes"),
    (
        Categorical("a1", ("sunny", "rain"), optional=True),
        Numeric("a2", -50, 50, 0.5, optional=True),
        Categorical("a3", ("high", "low")),
    ),
    variance_floor=0.25,
)
LEFT = pa.schema([("id", pa.string()), ("a1", pa.string()), ("a2", pa.float64())])
RIGHT = pa.schema([("id", pa.string()), ("a3", pa.string()), ("y", pa.string())])


def sql(left, right, policy):
    """Statistics of the inner join by DuckDB: rows of class, a1, a2, a3."""
    with duckdb.connect() as db:
        db.register("l", left.append_column("spot", pa.array(range(left.num_rows))))
        db.register("r", right.append_column("spot", pa.array(range(right.num_rows))))
        pick = "*" if policy == "join" else "* EXCLUDE (spot)"
        once = "" if policy == "join" else " QUALIFY row_number() OVER (PARTITION BY id ORDER BY spot) = 1"
        query = f"""
            SELECT y, a1, a2, a3 FROM (SELECT {pick} FROM l WHERE id IS NOT NULL{once}) a
            JOIN (SELECT {pick} FROM r WHERE id IS NOT NULL{once}) b ON a.id = b.id
        """
        return db.sql(query).fetchall()


def check(statistics, rows):
    classes = ["no", "yes"]
    assert statistics.class_counts.tolist() == [sum(row[0] == label for row in rows) for label in classes]
    for name, at, values in (("a1", 1, ("sunny", "rain")), ("a3", 3, ("high", "low"))):
        wanted = [[sum(row[0] == label and row[at] == value for row in rows) for value in values] for label in classes]
        assert statistics.counts[name].tolist() == wanted
    codes = {label: [round(row[2] * 2) for row in rows if row[0] == label and row[2] is not None] for label in classes}
    assert [int(value) for value in statistics.n["a2"]] == [len(codes[label]) for label in classes]
    assert [int(value) for value in statistics.sums["a2"]] == [sum(codes[label]) for label in classes]
    assert [int(value) for value in statistics.squares["a2"]] == [
        sum(code * code for code in codes[label]) for label in classes
    ]


def study(policy="join", book=BOOK, **options):
    return JoinStudy(book, key="id", duplicates=policy, options=options)


def tables(left, right):
    return {
        "alice": pa.Table.from_pylist([dict(zip(LEFT.names, row, strict=True)) for row in left], schema=LEFT),
        "bob": pa.Table.from_pylist([dict(zip(RIGHT.names, row, strict=True)) for row in right], schema=RIGHT),
    }


TABLE_2 = tables(
    [("1", "sunny", 30.0), ("2", "sunny", 30.0), ("3", "rain", 30.0), ("4", "rain", 10.0)],
    [
        ("1", "high", "no"),
        (None, "high", "no"),
        ("3", "low", "yes"),
        ("4", "low", "yes"),
        ("5", "high", "yes"),
        ("3", "high", "yes"),
    ],
)


def test_kikuchis_table_2():
    """Identifier 2 is missing at Bob, 3 stands twice there: the join has four rows, three of them yes."""
    result = study().simulate(TABLE_2)
    found = result.model.statistics()
    assert found.class_counts.tolist() == [1, 3]
    assert found.counts["a1"].tolist() == [[1, 0], [0, 3]]
    check(found, sql(TABLE_2["alice"], TABLE_2["bob"], "join"))
    assert all(leak.opened == () for leak in result.leakage.values())
    with pytest.raises(DataError, match="reject"):
        study("reject").simulate(TABLE_2)


keys = st.one_of(st.none(), st.integers(0, 9).map(str))
lefts = st.lists(
    st.tuples(
        keys, st.sampled_from([None, "sunny", "rain"]), st.one_of(st.none(), st.integers(-100, 100).map(lambda c: c / 2))
    ),
    min_size=1,
    max_size=12,
)
rights = st.lists(st.tuples(keys, st.sampled_from(["high", "low"]), st.sampled_from(["no", "yes"])), min_size=1, max_size=12)


@settings(max_examples=2, deadline=None, suppress_health_check=[HealthCheck.too_slow], phases=[Phase.explicit, Phase.generate])
@given(left=lefts, right=rights, policy=st.sampled_from(["join", "first"]))
def test_random_tables_equal_the_sql_join(left, right, policy):
    made = tables([("10", "sunny", 0.0), *left], [("10", "high", "no"), *right])
    most = {"multiplicity": 13} if policy == "join" else {}
    result = study(policy, **most).simulate(made)
    check(result.model.statistics(), sql(made["alice"], made["bob"], policy))


def test_a_larger_table_with_duplicates_and_gaps_on_both_sides():
    rng = np.random.default_rng(11)

    def key():
        return None if rng.random() < 0.02 else str(rng.integers(0, 2500))

    def pick(*values):
        return values[rng.integers(0, len(values))]

    left = [(key(), pick(None, "sunny", "rain"), pick(None, float(rng.integers(-100, 101)) / 2)) for _ in range(3000)]
    right = [(key(), pick("high", "low"), pick("no", "yes")) for _ in range(3000)]
    made = tables(left, right)
    rows = sql(made["alice"], made["bob"], "join")
    assert len(rows) > 3000
    check(study(multiplicity=12).simulate(made).model.statistics(), rows)


@pytest.mark.parametrize("overlap", [0, 200])
def test_empty_and_full_overlap(overlap):
    left = [(str(at), "rain", float(at % 7)) for at in range(200)]
    right = [(str(at + 200 - overlap), "low", "yes" if at % 3 else "no") for at in range(200)]
    made = tables(left, right)
    model = study().simulate(made).model
    check(model.statistics(), sql(made["alice"], made["bob"], "join"))
    if overlap:
        labels = model.predict({"alice": made["alice"].select(["a1", "a2"]), "bob": made["bob"].select(["a3"])})
        assert len(labels) == 200


def customers(count, seed=3):
    rng = np.random.default_rng(seed)
    label = rng.random(2 * count) < 0.4
    left_ids, right_ids = np.arange(count), np.arange(count // 2, count // 2 + count)
    left = [
        (
            str(at),
            ("sunny", "rain")[int(rng.random() < 0.3 + 0.4 * label[at])],
            float(np.clip(np.rint(rng.normal(8 * label[at], 6)), -50, 50)),
        )
        for at in left_ids
    ]
    right = [
        (str(at), ("high", "low")[int(rng.random() < 0.2 + 0.5 * label[at])], "yes" if label[at] else "no") for at in right_ids
    ]
    return tables(left, right)


@pytest.fixture(scope="module")
def joint():
    made = customers(600)
    return study(min_overlap=100).simulate(made), made


def test_joint_classes_equal_those_of_the_plain_model_of_the_join(joint):
    result, made = joint
    plain = result.model.combine()
    check(result.model.statistics(), sql(made["alice"], made["bob"], "join"))
    alice, bob = made["alice"].slice(0, 300).select(["a1", "a2"]), made["bob"].slice(0, 300).select(["a3"])
    both = pa.table({"a1": alice["a1"], "a2": alice["a2"], "a3": bob["a3"]})
    prediction = result.model.classify({"alice": alice, "bob": bob})
    scores = plain.predict_joint_log_proba(both)
    clear = np.abs(scores[:, 0] - scores[:, 1]) > result.model.tie_bound
    assert clear.mean() > 0.9
    assert (prediction.labels == plain.predict(both))[clear].all()
    assert len(set(prediction.labels)) == 2
    assert {leak.opened for leak in prediction.leakage.values()} == {("class",)}


def test_only_the_overlap_bit_is_opened(joint):
    result, _ = joint
    assert {leak.opened for leak in result.leakage.values()} == {tuple(SPEC["opened_with_min_overlap"])}
    assert "at least 100 identifiers" in result.statement


def test_too_small_an_overlap_stops_the_run():
    made = customers(60)
    study(min_overlap=30).simulate(made)
    with pytest.raises(PrivacyError, match="fewer than 31"):
        study(min_overlap=31).simulate(made)


def test_shares_survive_their_files(joint, tmp_path):
    result, made = joint
    files = {}
    for name, share in result.model.shares.items():
        files[name] = tmp_path / name
        share.save(files[name])
    loaded = JoinedModel.load(files)
    query = {"alice": made["alice"].slice(0, 20).select(["a1", "a2"]), "bob": made["bob"].slice(0, 20).select(["a3"])}
    assert (loaded.predict(query) == result.model.predict(query)).all()
    assert loaded.statistics() == result.model.statistics()
    for share in result.model.shares.values():
        share.path = None  # other tests have the model too, and the folder goes


def test_three_parties_are_joined_pairwise_from_the_class_holder():
    book = Codebook(
        "y",
        ("no", "yes"),
        (Categorical("a1", ("sunny", "rain")), Categorical("a3", ("high", "low")), Categorical("b", ("0", "1"))),
    )
    bob = pa.table(
        {"id": ["1", "2", "3", "3", None], "a3": ["high", "low", "low", "high", "low"], "y": ["no", "yes", "yes", "no", "yes"]}
    )
    alice = pa.table({"id": ["1", "3", "9"], "a1": ["sunny", "rain", "rain"]})
    carol = pa.table({"id": ["2", "2", "4"], "b": ["0", "1", "1"]})
    result = study(book=book).simulate({"bob": bob, "alice": alice, "carol": carol})
    found = result.model.statistics()
    assert found.class_counts.tolist() == [2, 3]  # all of Bob's rows
    assert found.counts["a3"].tolist() == [[2, 0], [0, 3]]
    with duckdb.connect() as db:
        for name, table, column, values in (("alice", alice, "a1", ("sunny", "rain")), ("carol", carol, "b", ("0", "1"))):
            db.register("bob", bob)
            db.register(name, table)
            rows = db.sql(f"SELECT y, {column} FROM bob JOIN {name} USING (id)").fetchall()
            wanted = [[sum(row == (label, value) for row in rows) for value in values] for label in ("no", "yes")]
            assert found.counts[column].tolist() == wanted
    labels = result.model.predict(
        {"bob": bob.select(["a3"]), "alice": pa.table({"a1": ["rain"] * 5}), "carol": pa.table({"b": ["0"] * 5})}
    )
    assert len(labels) == 5


def test_canary_identifiers_never_stand_in_a_frame(monkeypatch):
    from blindbayes.study.tasks import joined as joined_parts

    kept = []

    def keeping(roles):
        outcome = run_in_memory(roles, keep=Keep.FRAMES)
        kept.extend(entry.frame for entry in outcome.transcript.entries)
        return outcome

    run_by(monkeypatch, keeping)
    seen = []
    read = joined_parts.read_digests
    monkeypatch.setattr(joined_parts, "read_digests", lambda *given: seen.append(read(*given)) or seen[-1])
    left = [(f"canary-{at:06d}@example.com", "rain", 1.0) for at in range(40)]
    right = [(f"canary-{at:06d}@example.com", "low", "yes") for at in range(20, 60)]
    study().simulate(tables(left, right))
    whole = b"".join(kept)
    assert len(whole) > 10**6
    assert b"canary" not in whole
    for digest in [digest for digests in seen for digest in digests]:
        assert digest[:6] not in whole


@pytest.mark.parametrize(
    ("change", "error", "text"),
    [
        (lambda made: made | {"alice": made["alice"].drop_columns(["id"])}, DataError, "missing from the table"),
        (
            lambda made: made | {"alice": made["alice"].set_column(0, "id", pa.nulls(4, pa.string()))},
            DataError,
            "usable identifier",
        ),
        (
            lambda made: made | {"alice": made["alice"].set_column(0, "id", pa.array([0.5, 1.5, 2.5, 3.5]))},
            DataError,
            "neither text",
        ),
        (lambda made: made | {"bob": made["bob"].drop_columns(["y"])}, ConfigError, "class column"),
    ],
)
def test_bad_tables_are_refused_before_anything_leaves(change, error, text, monkeypatch):

    run_by(monkeypatch, lambda roles: pytest.fail("something was sent"))
    with pytest.raises(error, match=text):
        study().simulate(change(dict(TABLE_2)))


def test_bad_options_are_refused():
    for options in (
        {"bounds": {"alice": 10}},
        {"bounds": {"eve": MIN_BOUND}},
        {"join": "outer"},
        {"speed": 1},
        {"multiplicity": 0},
        {"queries": 0},
    ):
        with pytest.raises(ConfigError):
            study(**options).simulate(TABLE_2)
    with pytest.raises(DataError, match="more than 1 rows"):
        study(multiplicity=1).simulate(TABLE_2)
    with pytest.raises(ConfigError, match="one record at each party"):
        JoinStudy(BOOK, key="id", privacy=Privacy(epsilon=1.0)).simulate(TABLE_2)
    recipe = Codebook(
        BOOK.target, BOOK.classes, BOOK.features, variance_floor=0.25, identifier=IdRecipe((IdPart("id", "text"),))
    )
    with pytest.raises(ConfigError, match="recipe"):
        JoinStudy(recipe, key="other").simulate(TABLE_2)
    with pytest.raises(ConfigError, match="identifiers"):
        JoinStudy(BOOK).simulate(TABLE_2)


def test_one_side_may_score_alone_with_the_others_columns_missing(joint):
    """Whom alice scores, bob does not learn: he brings nulls. The answer is the plain model's with those columns missing."""
    result, made = joint
    alice = made["alice"].slice(0, 60).select(["a1", "a2"])
    labels = result.model.predict({"alice": alice, "bob": pa.table({"a3": pa.nulls(60, pa.string())})})
    both = pa.table({"a1": alice["a1"], "a2": alice["a2"], "a3": pa.nulls(60, pa.string())})
    scores = result.model.combine().predict_joint_log_proba(both)
    clear = np.abs(scores[:, 0] - scores[:, 1]) > result.model.tie_bound
    assert clear.any()
    assert (labels == np.array(["no", "yes"])[scores.argmax(axis=1)])[clear].all()


def test_what_the_row_holder_decodes_says_nothing_of_a_match(monkeypatch):
    """Tags and masked labels of bins that match and of those that do not: mean bit within six standard deviations of 1/2,
    alpha = 2e-9 each. With a label holder that forgets to draw its tags and masks, those of the matches fail."""
    seen = []
    monkeypatch.setattr(
        joined_roles, "digits", lambda words, tag_bits: seen.append(words.copy()) or equal.digits(words, tag_bits)
    )
    shape = JoinedSumsSetup(MIN_BOUND, MIN_BOUND, 1, 2)
    rows, labels = entries(MIN_BOUND, 1, 2000, 2)

    def scores():
        seen.clear()
        run_in_memory(parts(shape, rows, labels))
        theirs, mine = seen
        tag = np.uint64((1 << shape.tag_bits) - 1)
        match = ((mine[:, 0] ^ theirs[:, 0]) & tag == 0) & (mine[:, 1] == theirs[:, 1])
        assert match.sum() == 2000
        found = []
        for part in (mine[match], mine[~match], theirs[match]):
            flat = np.unpackbits(np.ascontiguousarray(part).view(np.uint8))
            found.append(abs(flat.mean() - 0.5) * 2 * np.sqrt(flat.size))
        return found

    assert max(scores()) < 6
    fill = joined_roles._fill

    def forgetful(session, shape, entries, owner, masked, secret, coins):
        secret[:] = 0
        return fill(session, shape, entries, owner, masked, secret, coins)

    monkeypatch.setattr(joined_roles, "_fill", forgetful)
    assert scores()[0] > 6


@pytest.mark.parametrize("kind", ["CountsChosen", "CountsGarbled"])
def test_circuits_over_counts_refuse_wrong_lengths(kind, monkeypatch):

    def shorter(message):
        first = message.__struct_fields__[1]  # behind the mark
        values = {name: getattr(message, name) for name in message.__struct_fields__}
        return type(message)(**(values | {first: values[first][:-1]}))

    fault = Replace(lambda entry: entry.kind.__name__ == kind, shorter)
    run_by(monkeypatch, lambda roles: run_in_memory(roles, faults=[fault]))
    with pytest.raises(PeerProtocolError):
        study(min_overlap=1).simulate(TABLE_2)


def test_a_label_holder_counts_nobody_in_two_classes():
    """Before, one person could count in every class, and the row holder's noise is made for one."""
    shape = JoinedSumsSetup(MIN_BOUND, MIN_BOUND, 2, 5, 1, counted=True)
    ids = identifiers(100)
    rows = Entries(ids[:60], np.stack([np.arange(60), np.ones(60)], axis=1).astype(np.uint64))
    labels = np.eye(5, dtype=np.uint64)[np.arange(60) % 5]
    honest, labels = labels.copy(), labels.copy()
    labels[5], honest[5] = 1, np.eye(5, dtype=np.uint64)[0]  # identifier 45 of the row holder
    outcome = run_in_memory(parts(shape, rows, Entries(ids[40:], labels)))
    total = outcome.outputs["rows"] + outcome.outputs["labels"]
    assert np.array_equal(total, expected(rows, Entries(ids[40:], honest)))
