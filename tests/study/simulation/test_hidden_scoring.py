"""Scoring over a hidden join: equal to the SQL left join in clear; budgets, files, refusals, words."""

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from blindbayes import JoinStudy
from blindbayes.codebook import Categorical, Codebook, Numeric
from blindbayes.crypto.psi.cuckoo import bin_count
from blindbayes.errors import ConfigError, DataError, LocalProtocolError, PeerProtocolError, PrivacyError
from blindbayes.protocols.memory import local_runs, run_in_memory
from blindbayes.protocols.private_join.sums.roles import MIN_BOUND
from blindbayes.study.simulation.models import JoinedModel, LeftJoinedModel
from blindbayes.study.tasks.classify import scoring
from blindbayes.study.tasks.scoring import HiddenScoring, open_keyed
from blindbayes.wire.transcript import Keep
from support.drivers import run_by
from support.two_party import coins

BOOK = Codebook(
    "y",
    ("no", "maybe", "yes"),
    (
        Categorical("sector", ("a", "b"), optional=True),
        Numeric("income", -50, 50, 0.5, optional=True),
        Categorical("plan", ("s", "m", "l")),
        Numeric("minutes", 0, 100, optional=True),
    ),
    variance_floor=0.25,
)
BANK = pa.schema([("id", pa.string()), ("sector", pa.string()), ("income", pa.float64()), ("y", pa.string())])
TELECOM = pa.schema([("id", pa.string()), ("plan", pa.string()), ("minutes", pa.float64())])
FEATURES = {"bank": ["sector", "income"], "telecom": ["plan", "minutes"]}


def draw(count, shared, seed=1, duplicates=0):
    """Tables of a bank and a telecom with so many customers in common; some values are missing, two rows have no identifier."""
    rng = np.random.default_rng(seed)
    label = rng.integers(0, 3, 2 * count)

    def ids(first):
        names = [f"c{at}" for at in range(first, first + count)]
        return [*names[:duplicates], *names, None, None]

    def rows(first, make):
        return [(name, *make(label[int(name[1:])] if name else 0)) for name in ids(first)]

    def gap(value):
        return None if rng.random() < 0.15 else value

    bank = rows(
        0,
        lambda k: (
            gap("ab"[int(rng.random() < 0.2 + 0.3 * k)]),
            gap(float(np.clip(np.rint(rng.normal(6 * k, 5)), -50, 50))),
            BOOK.classes[k],
        ),
    )
    telecom = rows(
        count - shared,
        lambda k: ("sml"[int(rng.integers(0, 3)) if rng.random() < 0.5 else k], gap(float(rng.integers(0, 40) + 20 * k))),
    )
    return {"bank": table(bank, BANK), "telecom": table(telecom, TELECOM)}


def table(rows, schema):
    return pa.Table.from_pylist([dict(zip(schema.names, row, strict=True)) for row in rows], schema=schema)


def make(policy="first", book=BOOK, **options):
    return JoinStudy(book, key="id", duplicates=policy, options=options)


def in_clear(model, frames, to, scope):
    """(classes, whether they are clear of ties) by DuckDB's join and the plain model."""
    other = "telecom" if to == "bank" else "bank"
    with duckdb.connect() as db:
        for name, frame in frames.items():
            db.register(name, frame.append_column("spot", pa.array(range(frame.num_rows))))
        once = "QUALIFY id IS NULL OR row_number() OVER (PARTITION BY id ORDER BY spot) = 1"
        columns = ", ".join([f"a.{name}" for name in FEATURES[to]] + [f"b.{name}" for name in FEATURES[other]])
        joined = db.sql(
            f"SELECT a.spot AS spot, b.id IS NOT NULL AS shared, {columns} FROM (SELECT * FROM {to} {once}) a "
            f"LEFT JOIN (SELECT * FROM {other} {once}) b ON a.id = b.id ORDER BY a.spot"
        ).to_arrow_table()
    scores = model.combine().predict_joint_log_proba(joined.drop_columns(["spot", "shared"]))
    best = np.sort(scores, axis=1)
    rows = frames[to].num_rows
    labels, clear = np.full(rows, None, dtype=object), np.ones(rows, dtype=bool)
    spots = joined["spot"].to_numpy()
    clear[spots] = best[:, -1] - best[:, -2] > model.tie_bound
    labels[spots] = np.array(BOOK.classes, dtype=object)[scores.argmax(axis=1)]
    if scope == "shared":
        labels[spots[~joined["shared"].to_numpy(zero_copy_only=False)]] = None
    return labels, clear


@pytest.fixture(scope="module")
def trained():
    frames = draw(300, 180)
    return {how: make(join=how).simulate(frames).model for how in ("inner", "left")}


@pytest.mark.parametrize(
    ("how", "to", "scope"),
    [
        ("inner", "bank", "everybody"),
        ("inner", "telecom", "shared"),
        ("left", "bank", "shared"),
        ("left", "telecom", "everybody"),
        pytest.param("inner", "bank", "shared", marks=pytest.mark.slow),
        pytest.param("inner", "telecom", "everybody", marks=pytest.mark.slow),
        pytest.param("left", "bank", "everybody", marks=pytest.mark.slow),
        pytest.param("left", "telecom", "shared", marks=pytest.mark.slow),
    ],
)
def test_classes_equal_those_of_the_sql_join_in_clear(trained, how, to, scope):
    model, frames = trained[how], draw(200, 90, seed=8, duplicates=15)
    found = model.score(frames, to=to, scope=scope)
    wanted, clear = in_clear(model, frames, to, scope)
    assert clear.mean() > 0.95
    assert (found.labels == wanted)[clear].all()
    assert (found.labels == None).sum() == (wanted == None).sum()  # noqa: E711
    assert (found.labels[:15] != None).any() or scope == "shared"  # noqa: E711
    assert set(found.labels) - {None} == set(BOOK.classes)
    other = "telecom" if to == "bank" else "bank"
    assert set(found.leakage[to].opened) == {"class"} | ({"shared_identifiers"} if scope == "shared" else set())
    assert found.leakage[other].opened == ()
    assert found.report.unforeseen == ()


@pytest.mark.parametrize("shared", [0, 120])
def test_empty_and_full_overlap(trained, shared):
    frames = draw(120, shared, seed=4)
    for to, how in (("bank", "left"), ("telecom", "inner")):
        found = trained[how].score(frames, to=to)
        wanted, clear = in_clear(trained[how], frames, to, "everybody")
        assert (found.labels == wanted)[clear].all()
    nobody = trained["inner"].score(frames, to="bank", scope="shared").labels
    assert (nobody == None).sum() == 122 - shared  # noqa: E711


keys = st.one_of(st.none(), st.integers(0, 9).map(str))
banks = st.lists(
    st.tuples(
        keys,
        st.sampled_from([None, "a", "b"]),
        st.one_of(st.none(), st.integers(-100, 100).map(lambda code: code / 2)),
        st.sampled_from(BOOK.classes),
    ),
    min_size=1,
    max_size=12,
)
telecoms = st.lists(
    st.tuples(keys, st.sampled_from([None, "s", "m", "l"]), st.one_of(st.none(), st.integers(0, 100).map(float))),
    min_size=1,
    max_size=12,
)


@settings(max_examples=3, deadline=None, suppress_health_check=list(HealthCheck), phases=[Phase.explicit, Phase.generate])
@given(
    bank=banks,
    telecom=telecoms,
    how=st.sampled_from(["inner", "left"]),
    to=st.sampled_from(["bank", "telecom"]),
    scope=st.sampled_from(["everybody", "shared"]),
)
def test_random_tables_equal_the_sql_join(trained, bank, telecom, how, to, scope):
    """One identifier of each side is always there, so that a table without any usable one is not drawn."""
    frames = {"bank": table([("x", "a", 0.0, "no"), *bank], BANK), "telecom": table([("x", "s", 1.0), *telecom], TELECOM)}
    found = trained[how].score(frames, to=to, scope=scope).labels
    wanted, clear = in_clear(trained[how], frames, to, scope)
    assert (found == wanted)[clear].all()


def test_three_parties_score_for_the_class_holder():
    book = BOOK.with_features((*BOOK.features, Categorical("owns", ("0", "1"), optional=True)))
    frames = draw(150, 80, seed=3)
    agency = pa.table({"id": [f"c{at}" for at in range(40, 160)], "owns": ["0", "1"] * 60})
    frames = {**frames, "agency": agency}
    model = make(book=book).simulate(frames).model
    found = model.score(frames, to="bank")
    with duckdb.connect() as db:
        for name, frame in frames.items():
            db.register(name, frame.append_column("spot", pa.array(range(frame.num_rows))))
        joined = db.sql(
            "SELECT sector, income, plan, minutes, owns FROM bank LEFT JOIN telecom USING (id) LEFT JOIN agency USING (id) "
            "ORDER BY bank.spot"
        ).to_arrow_table()
    scores = model.combine().predict_joint_log_proba(joined)
    best = np.sort(scores, axis=1)
    clear = best[:, -1] - best[:, -2] > model.tie_bound
    assert clear.mean() > 0.95
    assert (found.labels == np.array(BOOK.classes)[scores.argmax(axis=1)])[clear].all()
    assert {name: set(leak.opened) for name, leak in found.leakage.items()} == {
        "bank": {"class"},
        "telecom": set(),
        "agency": set(),
    }
    compare_all = make(book=book, compare_all=True).simulate(frames).model.score(frames, to="bank")
    assert (compare_all.labels == found.labels)[clear].all()
    assert "bank and telecom together can see" in found.statement
    assert "no coalition short of all but one" in compare_all.statement
    assert any(item.kind == "GatesMasked" for item in compare_all.report.views[1].received)  # no pair is trusted
    with pytest.raises(ConfigError, match="joined with bank alone"):
        model.score(frames, to="telecom")
    with pytest.raises(ConfigError, match="two parties"):
        model.score(frames, to="bank", scope="shared")


def test_a_class_holder_without_columns_scores_and_helps():
    book = BOOK.with_features(BOOK.features[2:])
    frames = draw(150, 80, seed=5)
    frames["bank"] = frames["bank"].select(["id", "y"])
    model = make(book=book).simulate(frames).model
    asked = {"bank": frames["bank"].select(["id"]), "telecom": frames["telecom"]}
    for to in ("bank", "telecom"):
        labels = model.score(asked, to=to).labels
        plain = pa.table({"plan": frames["telecom"]["plan"], "minutes": frames["telecom"]["minutes"]})
        mine = dict(zip(frames["telecom"]["id"].to_pylist(), model.combine().predict(plain), strict=True))
        nothing = pa.table({"plan": pa.nulls(1, pa.string()), "minutes": pa.nulls(1, pa.float64())})
        default = model.combine().predict(nothing)[0]
        wanted = [mine.get(name, default) if name else None for name in frames[to]["id"].to_pylist()]
        agree = [a == b for a, b in zip(labels, wanted, strict=True) if b is not None]
        assert np.mean(agree) > 0.98  # but for ties
        assert len(set(labels)) > 1


# -- budget and files ----------------------------------------------------------------------------------------------------------


def test_both_sides_are_charged_what_a_scorer_that_fills_every_bin_would_get():
    frames = draw(100, 50)
    bins = bin_count(MIN_BOUND)
    assert bins > MIN_BOUND
    model = make(queries=bins + 10, bounds={"bank": MIN_BOUND, "telecom": 5000}).simulate(frames).model
    model.score(frames, to="bank")
    assert {name: share.spent for name, share in model.shares.items()} == {"bank": bins, "telecom": bins}
    with pytest.raises(PrivacyError, match="query budget"):
        model.score(frames, to="telecom")
    with pytest.raises(PrivacyError, match="query budget"):
        model.score(frames, to="bank")


def test_nothing_is_sent_when_the_budget_does_not_suffice(monkeypatch):
    frames = draw(100, 50)
    model = make(queries=100).simulate(frames).model
    run_by(monkeypatch, lambda roles: pytest.fail("something was sent"))
    with pytest.raises(PrivacyError, match="query budget"):
        model.score(frames, to="bank")


@pytest.mark.parametrize(
    ("how", "kind"), [("inner", JoinedModel), pytest.param("left", LeftJoinedModel, marks=pytest.mark.slow)]
)
def test_shares_from_files_score_alike_and_each_part_alone(trained, how, kind, tmp_path):
    model, frames = trained[how], draw(100, 60, seed=6)
    assert isinstance(model, kind)
    files = {}
    for name, share in model.shares.items():
        files[name] = tmp_path / name
        share.save(files[name])
    loaded = kind.load(files)
    wanted = model.score(frames, to="telecom").labels
    assert (loaded.score(frames, to="telecom").labels == wanted).all()
    parts = {name: HiddenScoring(share, open_keyed(share, frames[name]), "telecom") for name, share in loaded.shares.items()}
    runs = local_runs(tuple(files), study=model.shares["bank"].study, coins=coins("parts"))
    outcome = run_in_memory({name: part.role(runs[name], coins(name)) for name, part in parts.items()})
    assert (model.classes_[outcome.outputs["telecom"]] == wanted).all()
    assert outcome.outputs["bank"] is None
    assert {part.count for part in parts.values()} == {bin_count(MIN_BOUND)}
    for share in model.shares.values():
        share.path = None  # the fixture's model goes on in memory


@pytest.mark.parametrize("how", ["inner", pytest.param("left", marks=pytest.mark.slow)])
def test_shares_of_two_trainings_of_one_study_do_not_mix(how, tmp_path):
    """They add up to nothing: refused in one process, and by a site, which sees its own share alone."""
    frames = draw(60, 30)
    first, second = (make(join=how).simulate(frames, coins=coins(f"training {at}")).model for at in range(2))
    shares = {"bank": first.shares["bank"], "telecom": second.shares["telecom"]}
    for name, share in shares.items():
        share.save(tmp_path / name)
    with pytest.raises(ConfigError, match="not of one study"):
        type(first).load({name: tmp_path / name for name in shares})
    asked = {
        name: [
            HiddenScoring(share, open_keyed(share, frames[name]), "bank"),
            scoring(share, open_keyed(share, frames[name])),
        ]
        for name, share in shares.items()
    }
    runs = local_runs(("bank", "telecom"), study=shares["bank"].study, coins=coins("mixed"))
    for at in range(2):
        parts = {name: made[at].role(runs[name], coins(name)) for name, made in asked.items()}
        outcome = run_in_memory(parts, check=False)
        assert isinstance(outcome.error, PeerProtocolError)
        assert not any(outcome.opened.values())


def test_a_part_knows_whether_its_table_changed(trained):
    share, frames = trained["inner"].shares["telecom"], draw(50, 20)

    def digest(frame, key=b"k", scope="everybody"):
        return HiddenScoring(share, open_keyed(share, frame), "bank", scope).digest(key)

    frame = frames["telecom"]
    other_id = frame.set_column(0, "id", pa.array(["new", *frame["id"].to_pylist()[1:]]))
    other_value = frame.set_column(2, "minutes", pa.array([99.0, *frame["minutes"].to_pylist()[1:]]))
    assert digest(frame) == digest(frame)
    assert len({digest(frame), digest(other_id), digest(other_value), digest(frame, b"l"), digest(frame, scope="shared")}) == 5


# -- refusals ------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "asked", "error", "text"),
    [
        (lambda made: {"bank": made["bank"]}, {}, ConfigError, "one table per party"),
        (lambda made: made | {"telecom": made["telecom"].drop_columns(["id"])}, {}, DataError, "missing from the table"),
        (lambda made: made | {"telecom": made["telecom"].drop_columns(["plan"])}, {}, DataError, "plan"),
        (lambda made: made, {"to": "post"}, ConfigError, "post"),
        (lambda made: made, {"scope": "some"}, ConfigError, "scope"),
        (lambda made: made | {"bank": draw(MIN_BOUND + 1, 5)["bank"]}, {}, DataError, "bound"),
        (lambda made: made | {"telecom": draw(MIN_BOUND + 1, 5)["telecom"]}, {}, DataError, "bound"),
    ],
)
def test_bad_requests_are_refused_before_anything_leaves(trained, change, asked, error, text, monkeypatch):
    run_by(monkeypatch, lambda roles: pytest.fail("something was sent"))
    spent = trained["inner"].shares["bank"].spent
    with pytest.raises(error, match=text):
        trained["inner"].score(change(draw(50, 20)), **({"to": "bank"} | asked))
    assert trained["inner"].shares["bank"].spent == spent


def test_a_second_row_is_an_error_where_the_study_rejects_it():
    model = make("reject").simulate(draw(60, 30)).model
    for party in ("bank", "telecom"):
        frames = draw(60, 30) | {party: draw(60, 30, duplicates=2)[party]}
        with pytest.raises(DataError, match="reject"):
            model.score(frames, to="bank")


def test_classes_go_to_whom_the_study_names_alone():
    frames = draw(60, 30)
    model = JoinStudy(BOOK, key="id", reveal_to="bank").simulate(frames).model
    with pytest.raises(ConfigError, match="to bank alone"):
        model.score(frames, to="telecom")
    assert len(model.score(frames, to="bank").labels) == 62


def test_a_run_of_another_study_is_refused(trained):
    share, frames = trained["inner"].shares["bank"], draw(60, 30)
    part = HiddenScoring(share, open_keyed(share, frames["bank"]), "bank")
    run = local_runs(("bank", "telecom"), study="1" * 64, coins=coins("other"))["bank"]
    with pytest.raises(LocalProtocolError, match="another study"):
        next(part.role(run, coins("bank")))


def test_a_destroyed_share_scores_nobody():
    frames = draw(60, 30)
    model = make().simulate(frames).model
    model.destroy("telecom")
    with pytest.raises(ConfigError, match="destroyed"):
        model.score(frames, to="bank")


# -- what is told --------------------------------------------------------------------------------------------------------------


def test_canary_identifiers_never_stand_in_a_frame(trained, monkeypatch):
    kept = []

    def keeping(roles):
        outcome = run_in_memory(roles, keep=Keep.FRAMES)
        kept.extend(entry.frame for entry in outcome.transcript.entries)
        return outcome

    run_by(monkeypatch, keeping)
    bank = [(f"canary-{at:04d}@example.com", "a", 1.0, "no") for at in range(8)]
    telecom = [(f"canary-{at:04d}@example.com", "s", 1.0) for at in range(4, 12)]
    frames = {"bank": table(bank, BANK), "telecom": table(telecom, TELECOM)}
    trained["inner"].score(frames, to="bank", scope="shared")
    whole = b"".join(kept)
    assert len(whole) > 10**6
    assert b"canary" not in whole
    for name, share in trained["inner"].shares.items():
        part = HiddenScoring(share, open_keyed(share, frames[name]), "bank", "shared")
        for digest in part._digests:
            assert digest[:6] not in whole


def test_the_words_say_who_learned_what(trained):
    frames = draw(60, 30)
    everybody = trained["inner"].score(frames, to="bank")
    shared = trained["inner"].score(frames, to="bank", scope="shared")
    assert "did not learn who is shared" in everybody.statement
    assert "which persons in its table telecom knows too" in shared.statement
    for found in (everybody, shared):
        words = {view.party: " ".join(view.plain) for view in found.report.views}
        assert "Nothing was opened to it." in words["telecom"]
        assert ("since only those were given a class" in words["bank"]) == (found is shared)
        assert found.statement.count("4096") >= 2
        assert f"query budget: {bin_count(4096)}" in found.statement


def test_the_report_of_training_says_what_each_way_of_scoring_will_tell(trained):
    frames = draw(60, 30)
    result = JoinStudy(BOOK, key="id", reveal_to="bank").simulate(frames)
    words = " ".join(result.report.follows)
    assert "over the hidden join names nobody" in words
    assert "the same people in one order" in words
    assert "nulls" in words
    assert "go to bank" in words
    assert "joined_scores" in result.statement


def test_a_study_that_reveals_the_matching_reports_both_of_its_runs():
    frames = draw(60, 30)
    hidden, told = make().simulate(frames), make(reveal="matching").simulate(frames)
    assert told.report.protocols == ("transfer", "matching", "class_sums", "shared_model")
    assert told.report.unforeseen == ()
    for view in told.report.views:
        assert view.opened == ("matching",)
        assert {item.kind: (item.trust, item.count) for item in view.received} == dict(told.leakage[view.party].received)
        assert any(item.kind == "ValuesListed" for item in view.received) or view.party == "telecom"
    assert sum(flow.count for flow in told.report.flows) == told.cost.messages
    assert sum(part.sent for part in told.cost.parties.values()) == told.cost.messages
    assert "from now on" in told.report.follows[0]
    assert not any("matching" in view.opened for view in hidden.report.views)
