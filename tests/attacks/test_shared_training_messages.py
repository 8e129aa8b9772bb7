"""Attacks on studies over columns: what a party that follows the protocol, or a message that is not the one due, could get."""

from collections import Counter, defaultdict

import msgspec
import numpy as np
import pandas as pd
import pytest

from blindbayes import ColumnStudy, JoinStudy
from blindbayes.codebook import Categorical, Codebook, Numeric
from blindbayes.crypto import limbs as lm
from blindbayes.crypto.ot.softspoken import OtReceiver, OtSender
from blindbayes.crypto.psi.cuckoo import MIN_ITEMS
from blindbayes.crypto.tweaks import TweakedHash
from blindbayes.errors import IntegrityError, PeerProtocolError, PrivacyError
from blindbayes.protocols.memory import Replace, local_runs, run_in_memory
from blindbayes.protocols.private_join import matching
from blindbayes.protocols.private_join.matching.messages import MatchesTold
from blindbayes.protocols.private_join.scores import roles as scoring_roles
from blindbayes.protocols.private_join.sums import counts
from blindbayes.protocols.private_join.sums import roles as joined_sums
from blindbayes.protocols.private_join.sums.inputs import Entries
from blindbayes.protocols.private_join.sums.messages import OverlapGarbled
from blindbayes.protocols.shared_inference.messages import ScoresHanded
from blindbayes.protocols.two_party.transfer import roles as transfer
from blindbayes.wire import decode
from blindbayes.wire.transcript import Keep
from support.drivers import run_by
from support.hidden import Case
from support.plain_model import to_integers
from support.two_party import JOIN_MESSAGES, coins, count_pair, opened_count, transfer_pair


@pytest.fixture
def frames_kept(monkeypatch):
    """The outcomes of all runs in memory, frames included."""
    seen = []

    def keeping(roles, **options):
        seen.append(run_in_memory(roles, **{**options, "keep": Keep.FRAMES}))
        return seen[-1]

    run_by(monkeypatch, keeping)
    return seen


# -- shared_argmax: what further holders hand to the first ------------------------------------------------------------------


def test_a_holder_that_knows_the_class_does_not_hand_its_scores_in_clear(frames_kept):
    """Three parties that all know the class: the third computed its part of the scores itself. If it handed that as it is, the
    first holder would read ln p of the third's values off, instance by instance, and so the values themselves."""
    rng = np.random.default_rng(7)
    names, values = ("a", "b", "c"), ("0", "1", "2")
    frame = pd.DataFrame(
        {name: rng.choice(values, 300, p=[0.6, 0.3, 0.1]) for name in names} | {"y": rng.choice(["n", "p"], 300)}
    )
    book = Codebook("y", ("n", "p"), tuple(Categorical(name, values) for name in names))
    joint = ColumnStudy(book).simulate({name: frame[[name, "y"]] for name in names}, coins=coins("train"))
    asked = frame[:120]
    found = joint.model.predict({name: asked[[name]] for name in names}, coins=coins("ask"))
    pooled = joint.model.combine()
    assert found.tolist() == pooled.predict(asked[list(names)]).tolist()
    plan = joint.model.columns.plan
    handed = [e for out in frames_kept for e in out.transcript.entries if e.kind is ScoresHanded and e.to == "b"]
    assert [entry.sender for entry in handed] == ["c"]
    shares = decode(handed[0].frame, ScoresHanded).shares.reshape(len(asked), -1)
    by_value = [{tuple(row) for row in shares[(asked["c"] == value).to_numpy()].tolist()} for value in values]
    assert min(len(rows) for rows in by_value) > 1, "one value of c, one share: the share is the score"
    bits = lm.to_bits(shares.reshape(-1, plan.limbs), plan.bits)
    assert abs(bits.mean() - 0.5) * 2 * np.sqrt(bits.size) < 6  # alpha = 2e-9


# -- matching: where the asker placed what matches ----------------------------------------------------------------------


def told(others, salt):
    """What the owner is told of 150 shared identifiers, by an asker that has `others` more."""
    shared, rest = coins("shared").words(300).reshape(-1, 2), coins(f"rest {salt}").words(2 * others).reshape(-1, 2)
    items = np.concatenate([shared, rest])
    items = items[np.lexsort((items[:, 1], items[:, 0]))]
    sizes, runs = matching.MatchingSetup(MIN_ITEMS, MIN_ITEMS), local_runs(["asker", "owner"], coins=coins("run"))

    def asker():
        ot_sender = yield from transfer.ot_sender(runs["asker"], "owner", coins("keeper"))
        return (yield from matching.asker(runs["asker"], "owner", sizes, items, ot_sender, coins("asker")))

    def owner():
        ot_receiver = yield from transfer.ot_receiver(runs["owner"], "asker", coins("planter"))
        return (yield from matching.owner(runs["owner"], "asker", sizes, shared, ot_receiver, coins("owner")))

    outcome = run_in_memory({"asker": asker(), "owner": owner()}, keep=Keep.FRAMES)
    assert outcome.outputs["owner"].tolist() == list(range(150))
    return decode(next(e.frame for e in outcome.transcript.entries if e.kind is MatchesTold), MatchesTold)


def test_the_owner_is_told_the_matching_and_not_where_the_asker_placed_it():
    """Values of the oblivious function, once told, named the bin: one of an identifier's three, taken because others were full.
    Of 200 shared identifiers 46% lay in their first bin if the asker had no others, 69% if it had 3,900 more (both padded to
    4,096): its number of identifiers, and something of each of them. Now there are no bins, and what is told is a function of
    item and session."""
    few, many = told(0, "few"), told(3900, "many")
    assert np.array_equal(few.names, many.names)


# -- joined_scores: the classes of bins in which there is nobody --------------------------------------------------------------


class Leaning(Case):
    """A prior in given shares: the helper's lies far on one side."""

    def __init__(self, side):
        super().__init__(sizes=(60, 50), overlap=20)
        self.side = side

    def known(self, party):
        theirs = lm.from_integers([self.side << (self.plan.bits - 3)], self.plan.limbs)
        own = theirs if party == self.other else lm.subtract(self.prior[0], theirs)
        return lm.cut(own, self.plan.bits)


def test_empty_bins_do_not_show_the_helpers_share_of_the_prior(monkeypatch):
    """In an empty bin the helper adds its share of the prior. If the scorer does not add its own, the class that it sees there
    is the sign of the helper's share alone, and with its own a comparison of the prior with a random number."""
    genuine, seen = scoring_roles._compare, []

    def watched(run, hidden, *rest):
        learnt = yield from genuine(run, hidden, *rest)
        if run.me == hidden.to:
            seen.append(learnt)
        return learnt

    monkeypatch.setattr(scoring_roles, "_compare", watched)
    for side in (1, -1):
        case = Leaning(side)
        assert np.array_equal(run_in_memory(case.roles()).outputs["bank"], case.expected())
    first, second = (np.bincount(classes, minlength=2) for classes in seen)
    alone = 1 if to_integers(case.prior[0], case.plan.bits)[0] > 0 else 0
    assert first.tolist() == second.tolist()
    assert first[alone] >= len(seen[0]) - 60  # nobody gets the class of a row without any value


# -- transfer: a setup from another run ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["PointsChosen", "TreesPlanted"])
def test_a_setup_of_another_run_is_refused(kind):
    """Points and trees of an earlier setup are well formed. Two parties whose trees do not belong together would not notice:
    class_sums would leave them shares of nonsense."""

    def setting_up(name, **options):
        runs = local_runs(["a", "b"], run_id=name, coins=coins("runs"))
        roles = {
            "a": transfer.ot_sender(runs["a"], "b", coins(f"a {name}")),
            "b": transfer.ot_receiver(runs["b"], "a", coins(f"b {name}")),
        }
        return run_in_memory(roles, **options)

    old = next(e for e in setting_up("earlier", keep=Keep.FRAMES).transcript.entries if e.kind.__name__ == kind)
    again = Replace(lambda entry: entry.kind is old.kind, lambda _: decode(old.frame, old.kind, sender=old.sender))
    outcome = setting_up("later", faults=[again], check=False)
    assert isinstance(outcome.error, PeerProtocolError)
    assert outcome.error.party == old.sender


# -- joined_sums: messages of another run, and a bit that was made up ---------------------------------------------------------


def joining(name, **options):
    """Two parties with 30 identifiers in common count them, on the same transfers whatever the run's name."""
    shape = joined_sums.JoinedSumsSetup(MIN_ITEMS, MIN_ITEMS, 2, 2, counted=True)
    runs = local_runs(["rows", "labels"], run_id=name, coins=coins("runs"))
    items = coins("items").words(80).reshape(-1, 2)
    words = np.ones((30, 2), dtype=np.uint64)
    (forth, taking), (back, giving) = transfer_pair(), transfer_pair("back")
    roles = {
        "rows": joined_sums.row_holder(
            runs["rows"], "labels", shape, Entries(items[:30], words), (forth, giving), coins(f"r {name}")
        ),
        "labels": joined_sums.label_holder(
            runs["labels"], "rows", shape, Entries(items[:30], words), (back, taking), coins(f"l {name}")
        ),
    }
    return run_in_memory(roles, **options)


@pytest.mark.parametrize("kind", JOIN_MESSAGES)
def test_a_message_of_an_earlier_join_is_refused(kind):
    """It has the right length and looks as it should. Taken for the one that is due it would leave shares of nonsense, of which
    nobody would know, and which the comparison with min_overlap would take for a large number."""
    earlier = joining("earlier", keep=Keep.FRAMES)
    assert opened_count(earlier.outputs["rows"].matches, earlier.outputs["labels"].matches) == 30
    old = next(entry for entry in earlier.transcript.entries if entry.kind.__name__ == kind)
    again = Replace(lambda entry: entry.kind is old.kind, lambda _: decode(old.frame, old.kind, sender=old.sender))
    outcome = joining("later", faults=[again], check=False)
    assert isinstance(outcome.error, PeerProtocolError)
    assert outcome.error.party == old.sender


@pytest.mark.parametrize("field", ["tables", "tags"])
@pytest.mark.parametrize("liar", ["rows", "labels"])
def test_that_enough_identifiers_joined_cannot_be_made_up(field, liar, monkeypatch):
    """Each reads the bit in what the other garbled, and both must have read the same."""

    def change(garbled):
        return msgspec.structs.replace(garbled, **{field: getattr(garbled, field)[::-1].copy()})

    lie = Replace(lambda entry: entry.kind is OverlapGarbled and entry.sender == liar, change)

    def roles():
        mine, theirs = count_pair(11)
        return {"rows": counts.enough(mine, 12, False, coins("r")), "labels": counts.enough(theirs, 12, True, coins("l"))}

    honest = run_in_memory(roles(), check=False)
    assert "fewer than 12" in str(honest.error)
    monkeypatch.setattr(counts, "_require_enough", lambda *given: None)  # the liar goes on
    outcome = run_in_memory(roles(), faults=[lie], check=False)
    assert isinstance(outcome.error, IntegrityError)
    assert set(outcome.opened.values()) == {()}


# -- a model about one person --------------------------------------------------------------------------------------------------


def about(person, telecom, **options):
    """The class that every query gets from a model for which the bank brought one identifier alone."""
    book = Codebook("y", ("no", "yes"), (Categorical("plan", ("s", "m")),))
    frames = {
        "bank": pd.DataFrame({"id": [person], "y": ["yes"]}),
        "telecom": pd.DataFrame({"id": telecom, "plan": ["s", "m"] * (len(telecom) // 2)}),
    }
    study = JoinStudy(book, key="id", duplicates="first", options=options)
    asked = {"bank": pd.DataFrame({"id": ["nobody"]}), "telecom": frames["telecom"][:0]}
    result = study.simulate(frames)
    assert "No minimum was set" in result.statement
    return result.model.score(asked, to="bank").labels.tolist()


def test_a_list_of_one_person_tells_whether_the_other_has_that_person_unless_a_minimum_is_set():
    """Nothing is opened in training, but the model is about whoever was brought. SPEC and statement say so; `min_overlap` is
    the way out, and says the same of both."""
    customers = [f"t{at}" for at in range(40)]
    assert about("t7", customers) == ["yes"]
    assert about("stranger", customers) == ["no"]  # no row at all: all classes alike, the first is taken
    for person in ("t7", "stranger"):
        with pytest.raises(PrivacyError, match="fewer than 5"):
            about(person, customers, min_overlap=5)


# -- pads and tweaks over a model's whole life --------------------------------------------------------------------------------


def test_no_tweak_and_no_stream_is_used_twice_in_training_and_all_that_follows(monkeypatch):
    """Transfers set up in training serve every prediction. A tweak that came back under one session, or a session's name that
    came back on one set of transfers, would put two secrets under one pad."""
    hashes, streams, reserve = defaultdict(list), Counter(), TweakedHash.reserve

    def reserving(self, domain, count):
        if not any(other is self for other in hashes[self.session]):
            hashes[self.session].append(self)
        return reserve(self, domain, count)

    def watched(genuine):
        def session(self, name):
            streams[self.leaves, name] += 1
            return genuine(self, name)

        return session

    monkeypatch.setattr(TweakedHash, "reserve", reserving)
    for side in (OtReceiver, OtSender):
        monkeypatch.setattr(side, "session", watched(side.session))
    people = [f"p{at}" for at in range(60)]
    frames = {
        "bank": pd.DataFrame({"id": people[:40], "a": ["0", "1"] * 20, "y": ["no", "yes", "yes", "no"] * 10}),
        "telecom": pd.DataFrame({"id": people[20:], "b": ["0", "1", "1", "1"] * 10}),
    }
    book = Codebook("y", ("no", "yes"), (Categorical("a", ("0", "1")), Categorical("b", ("0", "1"))))
    options = {"min_overlap": 3, "overlap_epsilon": 1.0}
    study = JoinStudy(book, key="id", duplicates="first", options=options)
    model = study.simulate(frames, coins=coins("life")).model
    source = coins("queries")
    for _ in range(2):
        model.predict({"bank": frames["bank"][["a"]][:5], "telecom": frames["telecom"][["b"]][:5]}, coins=source)
        model.score(frames, to="bank", scope="shared", coins=source)
        model.score(frames, to="telecom", coins=source)
    assert len(streams) > 20
    assert max(streams.values()) == 1
    assert len(hashes) > 20
    assert {len(made) for made in hashes.values()} == {2}  # one hash per party and session, which gives every tweak once


# -- what repeated queries tell ----------------------------------------------------------------------------------------------


def test_some_answers_about_one_person_tell_what_the_others_columns_add_to_the_score():
    """Nothing breaks here: an answer is a comparison, and who sets one side of it can search for the other. The documentation
    says so. Fifteen answers of one bit leave an interval below the hundredth part of a nat."""
    rng = np.random.default_rng(3)
    y = rng.integers(0, 2, 400)
    values = np.where(rng.random(400) < 0.5, rng.integers(0, 3, 400), rng.integers(0, 2, 400) + y).astype(str)
    frame = pd.DataFrame({"x": rng.normal(3 * y, 2, 400).clip(-9, 9), "v": values, "y": y.astype(str)})
    book = Codebook("y", ("0", "1"), (Numeric("x", -10, 10, 0.001), Categorical("v", ("0", "1", "2"))), variance_floor=0.01)
    parts = {"class": frame[["x", "y"]], "attributes": frame[["v"]]}
    model = ColumnStudy(book).simulate(parts, coins=coins("training")).model
    plain, source = model.combine(), coins("queries")
    for person in ("0", "1", "2"):
        low, high = -9.0, 9.0
        for _ in range(15):
            middle = (low + high) / 2
            asked = {"class": pd.DataFrame({"x": [middle]}), "attributes": pd.DataFrame({"v": [person]})}
            is_one = model.predict(asked, coins=source)[0] == "1"
            low, high = (low, middle) if is_one else (middle, high)
        alone = np.diff(plain.predict_log_proba(pd.DataFrame({"x": [low], "v": [None]})))  # the class holder knows its own part
        added = np.diff(plain.parameters_.terms["v"].log_prob[:, int(person)])
        assert abs(float(alone[0, 0]) + float(added[0])) < 0.01
