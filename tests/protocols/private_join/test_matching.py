"""matching: both learn which identifiers they share, and studies line their rows up by it."""

import tomllib
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import blindbayes.protocols.private_join.matching as package
from blindbayes import JoinStudy
from blindbayes.codebook import Categorical, Codebook
from blindbayes.crypto.psi.cuckoo import MIN_ITEMS
from blindbayes.errors import ConfigError, DataError, PeerProtocolError, PrivacyError
from blindbayes.protocols.memory import Replace, local_runs, run_in_memory
from blindbayes.protocols.private_join.matching import MatchingSetup, asker, owner, roles
from blindbayes.protocols.private_join.matching.messages import MatchesTold, ValuesListed
from blindbayes.protocols.private_join.matching.roles import find
from blindbayes.protocols.two_party.transfer import roles as transfer
from blindbayes.wire.transcript import Keep
from support.two_party import coins

SPEC = tomllib.loads((Path(package.__file__).parent / "SPEC.md").read_text().split("```toml\n", 1)[1].split("```", 1)[0])


def parts(sizes, mine, theirs):
    runs = local_runs(["alice", "bob"], coins=coins("run"))

    def first():
        ot_sender = yield from transfer.ot_sender(runs["alice"], "bob", coins("keeper"))
        return (yield from asker(runs["alice"], "bob", sizes, mine, ot_sender, coins("a")))

    def second():
        ot_receiver = yield from transfer.ot_receiver(runs["bob"], "alice", coins("planter"))
        return (yield from owner(runs["bob"], "alice", sizes, theirs, ot_receiver, coins("b")))

    return {"alice": first(), "bob": second()}


def sets(count, overlap):
    ids = coins("ids").words(4 * max(1, count)).reshape(-1, 2)
    return ids[:count], ids[count - overlap : 2 * count - overlap][::-1].copy()


@pytest.mark.parametrize(("count", "overlap"), [(0, 0), (1, 1), (500, 0), (500, 500), (500, 123), (MIN_ITEMS, 2000)])
def test_both_learn_the_positions_of_what_they_share(count, overlap):
    mine, theirs = sets(count, overlap)
    outcome = run_in_memory(parts(MatchingSetup(MIN_ITEMS, MIN_ITEMS), mine, theirs))
    assert outcome.outputs["alice"].tolist() == list(range(count - overlap, count))
    assert outcome.outputs["bob"].tolist() == list(range(count - overlap, count))
    assert outcome.opened == {name: tuple(SPEC["opened"]) for name in ("alice", "bob")}
    known = {"asker": MIN_ITEMS, "owner": MIN_ITEMS}
    for name, formula in SPEC["variables"].items():
        known[name] = eval(formula, {"max": max}, known)
    assert outcome.cost.messages == 4 + eval(SPEC["messages"], {}, known)
    assert outcome.cost.rounds == 3 + eval(SPEC["rounds"], {}, known)


def test_only_matches_change_what_is_sent_and_digests_are_not():
    seen = []
    for count in (10, 3000):
        mine, theirs = sets(count, 10)
        outcome = run_in_memory(parts(MatchingSetup(MIN_ITEMS, MIN_ITEMS), mine, theirs), keep=Keep.FRAMES)
        seen.append([(entry.kind, entry.size) for entry in outcome.transcript.entries])
        whole = b"".join(entry.frame for entry in outcome.transcript.entries)
        assert not any(item[:1].tobytes() in whole for item in np.concatenate([mine, theirs])[:50])
    assert seen[0] == seen[1]


@pytest.mark.parametrize("all_there", [True, False])
def test_an_asker_cannot_claim_identifiers_that_it_did_not_ask_for(monkeypatch, all_there):
    """Its store holds the first 500 of its items; it tells 200 others as matches. Before, the owner failed only where it lacked
    one of them: what told a match was a hash of the item, which anybody can make."""
    mine, theirs = sets(500, 123)
    guessed = theirs[:200].copy()
    if not all_there:
        guessed[7, 0] ^= np.uint64(1)
    padded, search = roles.padded, roles.find

    def less(items, bound, coins):
        return padded(items[:500] if len(items) == 700 else items, bound, coins)

    def more(values, listed):
        found = search(values, listed)
        if len(values) == 700:
            found[500:] = 0
        return found

    monkeypatch.setattr(roles, "padded", less)
    monkeypatch.setattr(roles, "find", more)
    outcome = run_in_memory(parts(MatchingSetup(4096, 4096), np.concatenate([mine, guessed]), theirs), check=False)
    assert isinstance(outcome.error, PeerProtocolError)
    assert (outcome.failed, outcome.error.party) == ("bob", "alice")


def test_wrong_answers_are_refused():
    mine, theirs = sets(20, 5)
    cases = [
        (ValuesListed, lambda message: ValuesListed(message.mark, message.values[:-1]), "bob"),
        (ValuesListed, lambda message: ValuesListed(message.mark ^ 1, message.values), "bob"),
        (MatchesTold, lambda message: MatchesTold(message.mark, message.names[:-1]), "alice"),
        (MatchesTold, lambda message: MatchesTold(message.mark, message.names ^ np.uint64(1)), "alice"),
        (MatchesTold, lambda message: MatchesTold(message.mark, np.tile(message.names[:2], 5)), "alice"),
    ]
    for kind, change, party in cases:
        fault = Replace(lambda entry, kind=kind: entry.kind is kind, change)
        outcome = run_in_memory(parts(MatchingSetup(MIN_ITEMS, MIN_ITEMS), mine, theirs), faults=[fault], check=False)
        assert isinstance(outcome.error, PeerProtocolError)
        assert outcome.error.party == party
    with pytest.raises(DataError, match="bound"):
        run_in_memory(parts(MatchingSetup(MIN_ITEMS, MIN_ITEMS), *sets(MIN_ITEMS + 1, 0)))
    with pytest.raises(ConfigError):
        MatchingSetup(MIN_ITEMS, 10)


def test_equal_first_words_are_told_apart():
    listed = np.array([[7, 1], [7, 2], [7, 3], [9, 9]], dtype=np.uint64)
    values = np.array([[7, 3], [7, 4], [9, 9], [10, 0], [0, 0]], dtype=np.uint64)
    assert find(values, listed).tolist() == [2, -1, 3, -1, -1]


BOOK = Codebook("y", ("no", "yes"), (Categorical("a", ("0", "1")), Categorical("b", ("0", "1"))))


def test_a_study_that_reveals_the_matching_lines_rows_up():
    rng = np.random.default_rng(1)
    left = pa.table({"id": [str(at) for at in range(300)], "a": [str(value) for value in rng.integers(0, 2, 300)]})
    ids = [str(at) for at in rng.permutation(np.arange(100, 400))]
    right = pa.table(
        {
            "id": [*ids, ids[0], None],
            "b": [str(value) for value in rng.integers(0, 2, 302)],
            "y": [("no", "yes")[value] for value in rng.integers(0, 2, 302)],
        }
    )
    frames = {"alice": left, "bob": right}

    def study(duplicates, **options):
        return JoinStudy(BOOK, key="id", duplicates=duplicates, options={"reveal": "matching", **options})

    result = study("first").simulate(frames)
    hidden = JoinStudy(BOOK, key="id", duplicates="first").simulate(frames)
    assert result.model.statistics() == hidden.model.statistics()
    assert result.model.statistics().class_counts.sum() == 200
    assert all(leak.opened == ("matching",) for leak in result.leakage.values())
    assert all(leak.opened == () for leak in hidden.leakage.values())
    assert "known to both" in result.statement
    with pytest.raises(ConfigError, match="first"):
        study("join").simulate(frames)
    with pytest.raises(DataError, match="reject"):
        study("reject").simulate(frames)
    assert study("first", min_overlap=200).simulate(frames).model.statistics() == hidden.model.statistics()
    with pytest.raises(PrivacyError, match="fewer than 201 identifiers match"):
        study("first", min_overlap=201).simulate(frames)
    with pytest.raises(ConfigError, match="never be reached"):
        study("first", min_overlap=5000).simulate(frames)
    with pytest.raises(DataError, match="no identifier"):
        study("first").simulate({"alice": left.slice(0, 50), "bob": right})
