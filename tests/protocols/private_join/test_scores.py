"""joined_scores: classes over a hidden join equal those in clear; no message shows who is shared; wrong ones are refused."""

import tomllib
from pathlib import Path

import numpy as np
import pytest

import blindbayes.protocols.private_join.scores as package
from blindbayes.codebook import Categorical, Numeric
from blindbayes.crypto import limbs as lm
from blindbayes.crypto.tweaks import TweakedHash
from blindbayes.errors import ConfigError, DataError, PeerLost, PeerProtocolError
from blindbayes.protocols.memory import Drop, Duplicate, Replace, Tamper, run_in_memory
from blindbayes.protocols.private_join.scores import blocks as on_blocks
from blindbayes.protocols.private_join.scores import match
from blindbayes.protocols.private_join.scores.roles import BATCH, JoinedScoresSetup
from blindbayes.protocols.private_join.sums.roles import MIN_BOUND
from blindbayes.protocols.two_party import lookups
from blindbayes.wire.transcript import Keep
from support.hidden import FEATURES, Case
from support.two_party import transfer_pair

SPEC = tomllib.loads((Path(package.__file__).parent / "SPEC.md").read_text().split("```toml\n", 1)[1].split("```", 1)[0])


@pytest.mark.parametrize("inner", [True, False])
@pytest.mark.parametrize("to", ["bank", "telecom"])
@pytest.mark.parametrize("scope", ["everybody", "shared"])
def test_classes_equal_those_in_clear(to, scope, inner):
    case = Case(to, scope, inner=inner)
    outcome = run_in_memory(case.roles())
    assert np.array_equal(outcome.outputs[to], case.expected())
    assert outcome.outputs[case.other] is None
    labels = SPEC["opened"] if scope == "everybody" else SPEC["opened_with_scope_shared"]
    assert set(outcome.opened[to]) == set(labels)
    assert outcome.opened[case.other] == ()


@pytest.mark.parametrize(
    ("sizes", "overlap", "classes"), [((0, 0), 0, 2), ((40, 40), 0, 3), ((40, 40), 40, 6), ((1, 300), 1, 2)]
)
def test_empty_full_and_lopsided_joins(sizes, overlap, classes):
    for scope in ("everybody", "shared"):
        case = Case("telecom", scope, sizes=sizes, overlap=overlap, classes=classes)
        assert np.array_equal(run_in_memory(case.roles()).outputs["telecom"], case.expected())


def test_a_party_without_columns_scores_and_helps():
    held = {"bank": (), "telecom": FEATURES["telecom"]}
    for to in ("bank", "telecom"):
        for scope in ("everybody", "shared"):
            case = Case(to, scope, held=held)
            assert np.array_equal(run_in_memory(case.roles()).outputs[to], case.expected())


def test_a_payload_of_many_words():
    """Nine Gaussian features: more bits than the oblivious function's own output."""
    held = {"bank": (), "telecom": tuple(Numeric(f"n{at}", -1000, 1000, 0.01) for at in range(9))}
    case = Case("bank", held=held)
    shape = case.hidden.shapes["telecom"]
    assert shape.payload_words > 8
    assert np.array_equal(run_in_memory(case.roles()).outputs["bank"], case.expected())


# -- cost and lengths --------------------------------------------------------------------------------------------------------


def cost_of(case):
    shape, hidden = case.hidden.shapes[case.other], case.hidden
    counts = [part.stop - part.start for part in hidden.parts()]
    batches = [min(BATCH, shape.bins - low) for low in range(0, shape.bins, BATCH)]
    known = {
        "scorer_ids": shape.scorer_ids,
        "helper_ids": shape.helper_ids,
        "planes": shape.planes,
        "entry_words": shape.entry_words,
        "shared": int(shape.shared),
        "garbles": int(case.to == "bank"),
        "own": int(bool(hidden.own)),
        "chunks": sum(len(hidden.query(count).chunks()) for count in batches),
        "own_chunks": sum(len(hidden.own_query(count).chunks()) for count in counts) if hidden.own else 0,
    }
    for name, formula in SPEC["variables"].items():
        known[name] = eval(formula, {"max": max, "min": min}, known)
    assert (known["bins"], known["tag_bits"], known["payload"]) == (shape.bins, shape.tag_bits, shape.payload_words)
    assert (known["block"], known["blocks"], known["batches"]) == (shape.block, len(counts), len(batches))
    return eval(SPEC["rounds"], {}, known), eval(SPEC["messages"], {}, known)


@pytest.mark.parametrize(
    ("to", "scope", "inner", "bound"),
    [
        ("bank", "everybody", True, MIN_BOUND),
        ("telecom", "shared", True, MIN_BOUND),
        ("telecom", "everybody", True, 6000),
        pytest.param("bank", "shared", False, 13_000, marks=pytest.mark.slow),
    ],
)
def test_cost_equals_the_spec(to, scope, inner, bound):
    case = Case(to, scope, inner=inner, bound=bound)
    outcome = run_in_memory(case.roles())
    rounds, messages = cost_of(case)
    assert outcome.cost.messages == 8 + messages
    # The set-up of transfers takes six rounds; where the first of the roster scores, the first question comes one earlier.
    assert outcome.cost.rounds == rounds + (6 if to == "telecom" else 5)


def test_what_is_sent_has_the_same_lengths_whatever_the_sizes_and_the_overlap():
    for to, scope in (("bank", "shared"), ("telecom", "everybody")):
        seen = []
        for sizes, overlap in (((0, 0), 0), ((60, 60), 60), ((1000, MIN_BOUND), 17)):
            outcome = run_in_memory(Case(to, scope, sizes=sizes, overlap=overlap).roles())
            seen.append([(entry.sender, entry.kind, entry.size) for entry in outcome.transcript.entries])
        assert all(other == seen[0] for other in seen[1:])


# -- views -------------------------------------------------------------------------------------------------------------------


def deviation(array):
    """How many standard deviations the mean bit lies off 1/2."""
    bits = np.unpackbits(np.ascontiguousarray(array).view(np.uint8))
    return abs(bits.mean() - 0.5) * 2 * np.sqrt(bits.size)


@pytest.mark.parametrize("overlap", [0, 500])
def test_views_at_no_and_at_full_overlap_look_alike(overlap):
    """Mean bit of each long message within six standard deviations of 1/2 (alpha 2e-9 each)."""
    case = Case("bank", "shared", sizes=(500, 500), overlap=overlap)
    outcome = run_in_memory(case.roles(), keep=Keep.FRAMES)
    kinds = set()
    for entry in outcome.transcript.entries:
        body = np.frombuffer(entry.frame[96:], dtype=np.uint8)
        if len(body) >= 4096:
            kinds.add(entry.kind.__name__)
            assert deviation(body) < 6, entry.kind
    assert {"ItemsMasked", "StoreFilled", "CodesChosen", "CodesCompared", "CodesAnswered", "ScoresGated"} <= kinds


def test_digests_do_not_stand_in_the_transcript():
    case = Case("bank", sizes=(12, 10), overlap=5)
    outcome = run_in_memory(case.roles(), keep=Keep.FRAMES)
    whole = b"".join(entry.frame for entry in outcome.transcript.entries)
    for items in case.items.values():
        for item in items:
            assert item[:1].tobytes() not in whole
            assert item[1:].tobytes() not in whole


def shares_of(case, monkeypatch, mutant=None):
    """What each side holds of each bin after steps 7 and 8: its share of the match, and of the scores."""
    held = {}

    def watching(side, play):
        def watched(block, words, tables):
            scores = yield from play(block, words, tables)
            held.setdefault(side, []).append((block.equal_share.copy(), scores.copy(), words.copy()))
            return scores

        return watched

    with monkeypatch.context() as patch:
        patch.setattr(on_blocks, "scorer_block", watching("scorer", on_blocks.scorer_block))
        patch.setattr(on_blocks, "helper_block", watching("helper", on_blocks.helper_block))
        if mutant is not None:
            patch.setattr(match, "_fill", mutant)
        run_in_memory(case.roles())
    return {side: [np.concatenate(parts) for parts in zip(*found, strict=True)] for side, found in held.items()}


def test_what_either_side_holds_of_a_bin_says_nothing_of_a_match(monkeypatch):
    """Shares of matches and of scores, tags and masked codes, in bins that match and in those that do not: the mean bit lies
    within six standard deviations of 1/2 (alpha 2e-9 each). With a helper that forgets to draw its tags and masks, what the
    scorer reads in matching bins fails."""
    case = Case("bank", sizes=(MIN_BOUND, MIN_BOUND), overlap=2000)

    def scores(mutant=None):
        held = shares_of(case, monkeypatch, mutant)
        matched = (held["scorer"][0] ^ held["helper"][0]) == 1
        assert matched.sum() == 2000
        found = {}
        for side, (equal, own, words) in held.items():
            for name, where in (("match", matched), ("other", ~matched)):
                bits = equal[where]
                found[side, name, "equal"] = abs(bits.mean() - 0.5) * 2 * np.sqrt(len(bits))
                found[side, name, "scores"] = deviation(own[where])
                found[side, name, "words"] = deviation(words[where])
        return found

    assert max(scores().values()) < 6
    fill = match._fill

    def forgetful(session, shape, items, choices, three, function, secret, coins):
        secret[:] = 0
        return fill(session, shape, items, choices, three, function, secret, coins)

    assert scores(forgetful)["scorer", "match", "words"] > 6


def test_the_helper_is_left_alone_with_uniform_shares_of_the_gated_scores(monkeypatch):
    """Scope shared: after the gate either side's shares look uniform, in matching bins and in others, where they add to 0."""
    case = Case("telecom", "shared", sizes=(500, 500), overlap=250)
    held = {}

    def watching(side, play):
        def watched(block, scores):
            found = yield from play(block, scores)
            held.setdefault(side, []).append((block.equal_share.copy(), found.copy()))
            return found

        return watched

    monkeypatch.setattr(on_blocks, "scorer_gate", watching("scorer", on_blocks.scorer_gate))
    monkeypatch.setattr(on_blocks, "helper_gate", watching("helper", on_blocks.helper_gate))
    run_in_memory(case.roles())
    mine, theirs = ([np.concatenate(parts) for parts in zip(*held[side], strict=True)] for side in ("scorer", "helper"))
    matched = (mine[0] ^ theirs[0]) == 1
    assert matched.sum() == 250
    assert not lm.add(mine[1], theirs[1])[~matched].any()
    assert lm.add(mine[1], theirs[1])[matched].any()
    for _, share in (mine, theirs):
        assert deviation(share[matched]) < 6
        assert deviation(share[~matched]) < 6


def test_other_coins_give_other_messages():
    frames = []
    for keys in (("a", "b"), ("c", "d")):
        outcome = run_in_memory(Case().roles(keys=keys), keep=Keep.FRAMES)
        frames.append({entry.frame for entry in outcome.transcript.entries})
    assert not frames[0] & frames[1]


# -- look-ups at shared places -----------------------------------------------------------------------------------------------


def test_a_look_up_at_every_shared_place():
    """All flips and choices of a table with 8 entries: the shares add up to the entry, and each looks uniform."""
    ot_sender, ot_receiver = transfer_pair("places")
    rng = np.random.default_rng(5)
    flips, choices = (part.reshape(-1).astype(np.uint64) for part in np.meshgrid(np.arange(8), np.arange(8)))
    table = rng.integers(0, 2**63, (1, 8, 2, 1)).astype(np.uint64)
    bits = ((choices[:, None] >> np.arange(3, dtype=np.uint64)) & np.uint64(1)).astype(np.uint8)
    corrections, t = ot_receiver.session(b"look-up").extend(bits)
    q = ot_sender.session(b"look-up").extend(corrections, bits.size)
    sender, chooser = TweakedHash(b"look-up"), TweakedHash(b"look-up")
    share, taken = np.zeros((2, 64, 2, 1), dtype=np.uint64)
    sent = lookups.offer(sender, q.reshape(-1, 3, 2), ot_sender.delta, lookups.Offered(table[None], flips[:, None]), share)
    lookups.take(chooser, t.reshape(-1, 3, 2), choices, sent, taken)
    assert np.array_equal(lm.add(share, taken), table[0, (flips ^ choices).astype(np.int64)])
    assert deviation(share) < 6
    assert deviation(taken) < 6


def test_a_gate_passes_scores_or_nothing():
    ot_sender, ot_receiver = transfer_pair("gate")
    scores = np.arange(1, 9, dtype=np.uint64).reshape(4, 2, 1)
    flips, choices = np.array([0, 0, 1, 1], dtype=np.uint64), np.array([0, 1, 0, 1], dtype=np.uint64)
    corrections, t = ot_receiver.session(b"gate").extend(choices.astype(np.uint8))
    q = ot_sender.session(b"gate").extend(corrections, 4)
    share, taken = np.zeros((2, 4, 2, 1), dtype=np.uint64)
    sent = lookups.offer(TweakedHash(b"gate"), q[:, None], ot_sender.delta, lookups.Offered.gate(scores, flips), share)
    lookups.take(TweakedHash(b"gate"), t[:, None], choices, sent, taken)
    assert np.array_equal(lm.add(share, taken), np.where((flips ^ choices)[:, None, None] == 1, scores, 0))


# -- faults --------------------------------------------------------------------------------------------------------------------


REST = ("CodesChosen", "CodesAnswered", "ScoresGated", "SharedTold")


def test_a_party_with_other_facts_is_refused_before_anything_is_sent():
    case = Case()
    others = [
        Case(scope="shared").hidden,
        Case(bound=MIN_BOUND + 1).hidden,
        Case(inner=False).hidden,
    ]
    for other in others:
        outcome = run_in_memory(case.roles(other=other), check=False)
        assert isinstance(outcome.error, PeerProtocolError)
        sent = {kind.__name__ for seen in outcome.transcript.received.values() for kind in seen}
        assert not sent & {"ItemsMasked", "StoreFilled", "CodesChosen"}


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("SeedsChosen", "corrections"),
        ("ItemsMasked", "planes"),
        ("StoreFilled", "cells"),
        ("CodesChosen", "corrections"),
        ("CodesCompared", "tables"),
        ("CodesCompared", "entries"),
        ("CodesCompared", "corrections"),
        ("CodesAnswered", "entries"),
        ("ScoresGated", "entries"),
        ("SharedTold", "bits"),
    ],
)
def test_a_message_of_a_wrong_length_is_refused(kind, name):
    def shorter(message):
        values = {field: getattr(message, field) for field in message.__struct_fields__}
        return type(message)(**(values | {name: values[name][:-1]}))

    fault = Replace(lambda entry: entry.kind.__name__ == kind, shorter)
    outcome = run_in_memory(Case(scope="shared").roles(), faults=[fault], check=False)
    assert isinstance(outcome.error, PeerProtocolError)
    assert outcome.error.party in ("bank", "telecom")
    assert outcome.error.party != outcome.failed


@pytest.mark.parametrize("kind", ["CodesCompared", *(pytest.param(kind, marks=pytest.mark.slow) for kind in REST)])
def test_messages_that_are_lost_doubled_cut_or_of_another_block_are_noticed(kind):
    case = Case(scope="shared")
    whole = run_in_memory(case.roles()).transcript.entries
    found = [entry for entry in whole if entry.kind.__name__ == kind]
    assert len(found) > 1 or kind == "SharedTold"  # several blocks
    first = found[0]

    def otherwise(message):
        values = {field: getattr(message, field) for field in message.__struct_fields__}
        return type(message)(**(values | {"mark": values["mark"] ^ 1}))

    for fault in (
        Drop(first.index),
        Duplicate(first.index),
        Tamper(first.index, lambda frame: frame[: len(frame) // 2]),
        Replace(first.index, otherwise),
    ):
        outcome = run_in_memory(case.roles(), faults=[fault], check=False)
        if isinstance(fault, Duplicate) and first is whole[-1]:  # nobody reads what comes after the last message
            assert np.array_equal(outcome.outputs["bank"], case.expected())
            continue
        assert isinstance(outcome.error, PeerProtocolError | PeerLost), fault
        assert outcome.error.party == first.sender


def test_sets_over_the_bound_are_refused():
    for sizes in ((MIN_BOUND + 1, 10), (10, MIN_BOUND + 1)):
        with pytest.raises(DataError, match="bound"):
            run_in_memory(Case(sizes=sizes, overlap=5).roles())


def test_what_cannot_be_scored_is_refused():
    join = Case().join
    for to, scope in (("nobody", "everybody"), ("bank", "all")):
        with pytest.raises(ConfigError):
            JoinedScoresSetup(join, to, scope)
    many = {"bank": (), "telecom": (Categorical("street", tuple(f"s{at}" for at in range(70_000))),)}
    with pytest.raises(ConfigError, match="too many values"):
        _ = Case("bank", held=many).hidden.shapes
