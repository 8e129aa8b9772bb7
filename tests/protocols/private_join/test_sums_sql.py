"""Studies over a hidden join against DuckDB: both sides with categorical and numeric columns, three classes, missing and
repeated identifiers, inner joins of two parties and left joins of three; bad input is refused before anything leaves."""

from __future__ import annotations

import hashlib

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from blindbayes import JoinStudy
from blindbayes.codebook import Categorical, Codebook, IdPart, IdRecipe, Numeric
from blindbayes.data.columns import open_columns
from blindbayes.errors import BlindbayesError, ConfigError, DataError, PeerProtocolError
from blindbayes.protocols.memory import local_runs, run_in_memory
from blindbayes.protocols.private_join.sums.roles import MIN_BOUND
from blindbayes.study.agreement import Agreement, Holdings
from blindbayes.study.tasks.joined import JoinedTask
from blindbayes.wire.transcript import Keep
from support.drivers import run_by
from support.two_party import JOIN_MESSAGES, coins

CLASSES = ("low", "middle", "high")
FEATURES = {
    "bob": (Categorical("b1", ("x", "y", "z"), optional=True), Numeric("b2", -1000, 1000, 0.25, optional=True)),
    "alice": (Categorical("a1", ("x", "y")), Numeric("a2", 0, 10**6, 1.0, optional=True)),
    "carol": (Numeric("c1", -5, 5, 0.001), Categorical("c2", ("x",), optional=True)),
}
SCHEMAS = {
    "bob": pa.schema([("id", pa.string()), ("b1", pa.string()), ("b2", pa.float64()), ("y", pa.string())]),
    "alice": pa.schema([("id", pa.string()), ("a1", pa.string()), ("a2", pa.float64())]),
    "carol": pa.schema([("id", pa.string()), ("c1", pa.float64()), ("c2", pa.string())]),
}


def codebook(parties, **more):
    features = tuple(feature for party in parties for feature in FEATURES[party])
    return Codebook("y", CLASSES, features, variance_floor=0.25, **more)


def study(parties, policy, book=None, **options):
    return JoinStudy(book or codebook(parties), key="id", duplicates=policy, options=options)


def table(party, rows):
    schema = SCHEMAS[party]
    return pa.Table.from_pylist([dict(zip(schema.names, row, strict=True)) for row in rows], schema=schema)


def joined_rows(tables, policy, party):
    """(y, every column of bob and of `party`) of the inner join with `party`; of bob alone if it is bob."""
    with duckdb.connect() as db:
        for name, own in tables.items():
            db.register(name + "_all", own.append_column("spot", pa.array(range(own.num_rows))))
            once = "" if policy == "join" else " QUALIFY id IS NULL OR row_number() OVER (PARTITION BY id ORDER BY spot) = 1"
            db.execute(f"CREATE TEMP TABLE {name} AS SELECT * FROM {name}_all{once}")
        join = "" if party == "bob" else f" JOIN {party} USING (id)"
        found = db.sql(f"SELECT * EXCLUDE (spot) FROM bob{join}" if party == "bob" else f"SELECT * FROM bob{join}")
        names = found.columns
        return [dict(zip(names, row, strict=True)) for row in found.fetchall()]


def require_equal(statistics, features, rows):
    for feature in features:
        name = feature.name
        own = [[row[name] for row in rows if row["y"] == label and row[name] is not None] for label in CLASSES]
        if isinstance(feature, Categorical):
            wanted = [[values.count(value) for value in feature.values] for values in own]
            assert statistics.counts[name].tolist() == wanted, name
            continue
        codes = [[feature.grid(value) - feature.centre for value in values] for values in own]
        if feature.optional:
            assert [int(value) for value in statistics.n[name]] == [len(values) for values in codes], name
        assert [int(value) for value in statistics.sums[name]] == [sum(values) for values in codes], name
        assert [int(value) for value in statistics.squares[name]] == [sum(v * v for v in values) for values in codes], name


def class_counts(rows):
    return [sum(row["y"] == label for row in rows) for label in CLASSES]


keys = st.one_of(st.none(), st.integers(0, 6).map(lambda at: f"id {at}"))


def maybe(values):
    return st.one_of(st.none(), values)


def lists(*columns):
    return st.lists(st.tuples(keys, *columns), min_size=1, max_size=10)


quarters = st.integers(-4000, 4000).map(lambda code: code / 4)
BOBS = lists(maybe(st.sampled_from(["x", "y", "z"])), maybe(quarters), st.sampled_from(CLASSES))
ALICES = lists(st.sampled_from(["x", "y"]), maybe(st.integers(0, 10**6).map(float)))
CAROLS = lists(st.integers(-5000, 5000).map(lambda code: code / 1000), maybe(st.just("x")))
SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large]


def check_inner(bob, alice, policy):
    tables = {"bob": table("bob", [("both", "x", 0.0, "low"), *bob]), "alice": table("alice", [("both", "x", 1.0), *alice])}
    most = {"multiplicity": 11} if policy == "join" else {}
    found = study(("bob", "alice"), policy, **most).simulate(tables).model.statistics()
    rows = joined_rows(tables, policy, "alice")
    assert found.class_counts.tolist() == class_counts(rows)
    require_equal(found, FEATURES["bob"] + FEATURES["alice"], rows)


def check_left(bob, alice, carol, policy):
    tables = {
        "alice": table("alice", [("both", "x", 1.0), *alice]),
        "bob": table("bob", [("both", "x", 0.0, "low"), *bob]),
        "carol": table("carol", [("both", 1.0, "x"), *carol]),
    }
    most = {"multiplicity": 11} if policy == "join" else {}
    found = study(("bob", "alice", "carol"), policy, **most).simulate(tables).model.statistics()
    alone = joined_rows(tables, policy, "bob")
    assert found.class_counts.tolist() == class_counts(alone)
    require_equal(found, FEATURES["bob"], alone)
    for party in ("alice", "carol"):
        require_equal(found, FEATURES[party], joined_rows(tables, policy, party))


def few(examples):
    return settings(
        max_examples=examples, deadline=None, suppress_health_check=SLOW, phases=[Phase.explicit, Phase.generate], database=None
    )


@few(2)
@given(bob=BOBS, alice=ALICES, policy=st.sampled_from(["join", "first"]))
def test_inner_joins_equal_sql(bob, alice, policy):
    check_inner(bob, alice, policy)


@few(2)
@given(bob=BOBS, alice=ALICES, carol=CAROLS, policy=st.sampled_from(["join", "first"]))
def test_left_joins_of_three_equal_sql(bob, alice, carol, policy):
    check_left(bob, alice, carol, policy)


@pytest.mark.slow
@few(60)
@given(bob=BOBS, alice=ALICES, policy=st.sampled_from(["join", "first"]))
def test_many_inner_joins_equal_sql(bob, alice, policy):
    check_inner(bob, alice, policy)


@pytest.mark.slow
@few(30)
@given(bob=BOBS, alice=ALICES, carol=CAROLS, policy=st.sampled_from(["join", "first"]))
def test_many_left_joins_of_three_equal_sql(bob, alice, carol, policy):
    check_left(bob, alice, carol, policy)


def test_further_rows_of_an_identifier_do_not_count_under_first():
    """Not over the join, and not in what the class holder of a left join counts alone; rows without identifier do there."""
    bob = [("1", "x", 1.0, "low"), ("1", "y", 9.0, "high"), (None, "z", 5.0, "high"), (None, "z", 5.0, "high")]
    check_left(bob, [("1", "y", 7.0), ("1", "x", 8.0)], [("2", 0.5, None)], "first")
    check_inner(bob, [("1", "y", 7.0), ("1", "x", 8.0)], "first")


def test_a_database_may_give_its_rows_in_any_order(tmp_path):
    """A view in random order, another at each reading: values stay beside their identifiers."""
    import ibis

    rng = np.random.default_rng(5)
    bob = [(f"id {at}", "xyz"[rng.integers(3)], float(at), CLASSES[rng.integers(3)]) for at in range(300)]
    alice = [(f"id {at}", "xy"[rng.integers(2)], float(at)) for at in range(200, 500)]
    tables = {"bob": table("bob", bob), "alice": table("alice", alice)}
    backend = ibis.duckdb.connect()
    backend.create_table("own", tables["bob"])
    backend.raw_sql("CREATE VIEW shuffled AS SELECT * FROM own ORDER BY random()")
    view = backend.table("shuffled")
    assert view.select("id").to_pyarrow() != view.select("id").to_pyarrow()
    sources = {"bob": view, "alice": tables["alice"]}
    found = study(("bob", "alice"), "reject").simulate(sources).model.statistics()
    rows = joined_rows(tables, "reject", "alice")
    assert len(rows) == 100
    assert found.class_counts.tolist() == class_counts(rows)
    require_equal(found, FEATURES["bob"] + FEATURES["alice"], rows)


# -- what leaves ---------------------------------------------------------------------------------------------------------------


def canaries(low, high):
    return [f"canary-{at:06d}@example.com" for at in range(low, high)]


def kept_frames(monkeypatch):
    frames = []

    def keeping(roles):
        outcome = run_in_memory(roles, keep=Keep.FRAMES)
        frames.extend(entry.frame for entry in outcome.transcript.entries)
        return outcome

    run_by(monkeypatch, keeping)
    return frames


@pytest.mark.parametrize("reveal", ["nothing", "matching"])
def test_hashes_of_identifiers_are_never_sent(reveal, monkeypatch):
    """No usual hash of an identifier stands in a frame, in bytes or in hexadecimal, keyed with the study's hash or not, nor do
    its halves; a frame that had one would be seen."""
    frames = kept_frames(monkeypatch)
    bob = [(name, "x", 1.0, "low") for name in canaries(0, 30)]
    alice = [(name, "y", 1.0) for name in canaries(15, 45)]
    agreed = study(("bob", "alice"), "reject", reveal=reveal)
    agreed.simulate({"bob": table("bob", bob), "alice": table("alice", alice)})
    salt = bytes.fromhex(agreed.sha256)
    hashes = set()
    for name in canaries(0, 45):
        for text in (name, f" {name}", name.upper()):
            raw = text.encode()
            for kind in ("md5", "sha1", "sha256", "sha512", "sha3_256", "blake2b"):
                hashes |= {hashlib.new(kind, raw).digest(), hashlib.new(kind, salt + raw).digest()}
            hashes |= {hashlib.blake2b(raw, key=salt, digest_size=size).digest() for size in (16, 32)}
    whole = b"".join(frames)
    assert len(whole) > 10**5
    wanted = np.array(
        [int.from_bytes(part, "little") for one in hashes for part in (one[:8], one[-8:], one.hex()[:8].encode())], np.uint64
    )

    maybe_one = np.zeros(1 << 16, dtype=bool)
    maybe_one[wanted & np.uint64(0xFFFF)] = True

    def found(frame):
        padded = frame + bytes(16)
        for at in range(8):
            words = np.frombuffer(padded, np.uint64, (len(padded) - at) // 8, at)
            if np.isin(words[maybe_one[words & np.uint64(0xFFFF)]], wanted).any():
                return True
        return False

    assert not found(whole)
    assert found(whole + next(iter(hashes)))
    assert found(b"at " + next(iter(hashes)).hex().encode())
    assert b"canary" not in whole


# -- bad input -----------------------------------------------------------------------------------------------------------------

GOOD = {
    "bob": [(name, "x", 1.0, "low") for name in canaries(0, 6)],
    "alice": [(name, "y", 1.0) for name in canaries(3, 9)],
}


def no_run(monkeypatch):
    run_by(monkeypatch, lambda roles: pytest.fail("something was sent"))


@pytest.mark.parametrize("party", ["bob", "alice"])
@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda own: own.drop_columns(["id"]), "missing from the table"),
        (lambda own: own.set_column(0, "id", pa.nulls(own.num_rows, pa.string())), "usable identifier"),
        (lambda own: own.set_column(0, "id", pa.array([""] * own.num_rows)), "usable identifier"),
        (lambda own: own.set_column(0, "id", pa.array([0.5] * own.num_rows)), "neither text"),
        (lambda own: own.set_column(0, "id", pa.array([[1]] * own.num_rows)), "neither text"),
        (lambda own: pa.concat_tables([own, own.slice(2, 1)]), "reject"),
        (lambda own: own.append_column("note", pa.array(["canary"] * own.num_rows)), "not in the codebook"),
    ],
)
def test_a_bad_table_of_either_party_is_refused_before_anything_leaves(party, change, text, monkeypatch):
    no_run(monkeypatch)
    made = {name: table(name, rows) for name, rows in GOOD.items()}
    made[party] = change(made[party])
    with pytest.raises(DataError, match=text) as caught:
        study(("bob", "alice"), "reject").simulate(made)
    assert "canary" not in str(caught.value)


@pytest.mark.parametrize("party", ["bob", "alice"])
@pytest.mark.parametrize("reveal", ["nothing", "matching"])
def test_sets_over_the_bound_are_refused_before_anything_leaves(party, reveal, monkeypatch):
    no_run(monkeypatch)
    many = canaries(0, MIN_BOUND + 1)
    rows = [(name, "x", 1.0, "low") for name in many] if party == "bob" else [(name, "y", 1.0) for name in many]
    made = {name: table(name, rows if name == party else GOOD[name]) for name in GOOD}
    with pytest.raises(DataError, match="bound") as caught:
        study(("bob", "alice"), "first", bounds={"bob": MIN_BOUND, "alice": MIN_BOUND}, reveal=reveal).simulate(made)
    assert party in str(caught.value)
    assert "canary" not in str(caught.value)


def test_identifiers_with_more_rows_than_the_multiplicity_are_refused(monkeypatch):
    no_run(monkeypatch)
    made = {name: table(name, rows + rows[:1] * 2) for name, rows in GOOD.items()}
    with pytest.raises(DataError, match="more than 2 rows") as caught:
        study(("bob", "alice"), "join", multiplicity=2).simulate(made)
    assert "canary" not in str(caught.value)


def recipes():
    base = codebook(("bob", "alice"), identifier=IdRecipe((IdPart("id", "text"),)))
    return base, codebook(("bob", "alice"), identifier=IdRecipe((IdPart("id", "email"),)))


@pytest.mark.parametrize("kind", ["inner", "left"])
def test_parties_with_other_recipes_stop_before_anything_leaves(kind):
    """Each believes in its own study; the codebook's hash, which holds the recipe, is compared first of all."""
    ours, theirs = recipes()
    assert ours.sha256 != theirs.sha256
    bounds = {"bob": MIN_BOUND, "alice": MIN_BOUND}
    owners = {name: tuple(feature.name for feature in FEATURES[name]) for name in bounds}
    runs = local_runs(("bob", "alice"), coins=coins("recipes"), signed=False)
    roles = {}
    for name, book in (("bob", ours), ("alice", theirs)):
        agreed = JoinStudy(book, duplicates="reject", options={"join": kind})
        agreed = agreed.replace(options={**agreed.options, "bounds": bounds})
        task = JoinedTask(Agreement(agreed, agreed.sha256, tuple(bounds), tuple(bounds), columns=Holdings(owners, ("bob",))))
        source = open_columns(table(name, GOOD[name]), book, ignore=("id",))
        task.bring(name, source)
        roles[name] = task.role(name, runs[name], coins(name))
    outcome = run_in_memory(roles, check=False)
    assert isinstance(outcome.error, PeerProtocolError)
    assert outcome.error.party in bounds
    assert not {*JOIN_MESSAGES} & {entry.kind.__name__ for entry in outcome.transcript.entries}


def test_studies_that_make_no_sense_are_refused(monkeypatch):
    no_run(monkeypatch)
    made = {name: table(name, rows) for name, rows in GOOD.items()}
    labelled = made | {"alice": made["alice"].append_column("y", pa.array(["low"] * 6))}
    for sources, duplicates, options in (
        (labelled, "reject", {}),
        (made, "last", {}),
        (made, "first", {"multiplicity": 2}),
        (made, "first", {"bounds": {"bob": MIN_BOUND - 1}}),
        (made, "first", {"bounds": {"bob": 10**8}}),
        (made, "first", {"reveal": "everything"}),
        (made, "join", {"multiplicity": 2**11}),
        (made, "join", {"multiplicity": 2**17}),
    ):
        with pytest.raises(ConfigError):
            study(("bob", "alice"), duplicates, **options).simulate(sources)
    with pytest.raises(BlindbayesError):
        study(("bob", "alice"), "first").simulate({"bob": made["bob"]})
    many = Codebook("y", tuple(str(at) for at in range(60)), codebook(("bob", "alice")).features, variance_floor=0.25)
    wide = made | {"bob": made["bob"].set_column(3, "y", pa.array(["1"] * 6))}
    with pytest.raises(ConfigError, match="lower the multiplicity"):
        study(("bob", "alice"), "join", many, multiplicity=255).simulate(wide)


def test_a_party_without_rows_joins_with_nobody():
    """Its padded set looks like any other; the class counts over the join are zero, and stay in shares."""
    tables = {"bob": table("bob", GOOD["bob"]), "alice": table("alice", [])}
    result = study(("bob", "alice"), "reject").simulate(tables)
    assert result.model.statistics().class_counts.tolist() == [0, 0, 0]
    assert all(leak.opened == () for leak in result.leakage.values())
