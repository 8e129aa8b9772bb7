"""What either side of joined_sums sees, beside what a simulator writes that knows public facts alone.

The simulator draws every message uniformly, in the lengths that the public shape gives. A party's role takes such messages
without noticing, and no test below tells its view from the real ones, at no overlap or at full overlap. Each test has a
planted fault that it does see.
"""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from scipy.stats import chi2_contingency

from blindbayes.crypto.bit_planes import to_planes, to_rows
from blindbayes.crypto.garbling.garbling import ROW_WORDS
from blindbayes.crypto.ot.softspoken import correction_words
from blindbayes.crypto.psi.oprf import WIDTH, Asker, codewords, question_words
from blindbayes.errors import IntegrityError
from blindbayes.protocols.core import Receive
from blindbayes.protocols.memory import local_runs, run_in_memory
from blindbayes.protocols.private_join.joined import connect
from blindbayes.protocols.private_join.sums import equal, messages, roles
from blindbayes.protocols.private_join.sums.inputs import Entries
from blindbayes.protocols.private_join.sums.roles import MIN_BOUND, JoinedSumsSetup, label_holder, row_holder
from blindbayes.protocols.two_party.digits import masked_words
from support.two_party import coins, let_proofs_hold, opened_count

SHAPE = JoinedSumsSetup(MIN_BOUND, MIN_BOUND, 2, 2, counted=True)
ALPHA = 1e-6  # of each comparison; there are fewer than forty


def sets(overlap, count=1500):
    source = coins("sets")
    ids = source.words(4 * count).reshape(-1, 2)
    rows = Entries(ids[:count], np.ones((count, SHAPE.words), dtype=np.uint64))
    hot = np.zeros((count, 2), dtype=np.uint64)
    hot[:, 1] = 1  # one class alone: labels that are not hidden would show
    return rows, Entries(ids[count - overlap : 2 * count - overlap], hot)


def simulated(kind, at, source):
    """The simulator: a message of a kind, from the public shape alone."""
    blocks = messages.MatchesChosen, messages.BinsCompared, messages.TagsMasked
    part = list(SHAPE.blocks())[at] if kind in blocks else slice(0, SHAPE.bins)
    count = part.stop - part.start
    digits = SHAPE.bins * equal.levels(SHAPE.tag_bits)[at] if kind in (messages.TagsChosen, messages.DigitsMasked) else 0
    lengths = {
        messages.SeedsChosen: [correction_words(WIDTH)],
        messages.ItemsMasked: [question_words(SHAPE.bins)],
        messages.StoreFilled: [roles.okvs.cells(SHAPE.keys) * SHAPE.payload_words],
        messages.TagsChosen: [correction_words(4 * digits)],
        messages.DigitsMasked: [masked_words(digits, 16)],
        messages.MatchesChosen: [correction_words((1 + SHAPE.planes) * count)],
        messages.BinsCompared: [
            ROW_WORDS * SHAPE.gates(count),
            SHAPE.planes * count * SHAPE.words + count,
            correction_words(count),
        ],
        messages.TagsMasked: [count],
    }[kind]
    return kind(0, *(source.words(length) for length in lengths))


def views(overlap, monkeypatch, name="real"):
    """Real messages that each party received, as (kind, words), and what the row holder decodes; the session."""
    rows, labels = sets(overlap)
    runs = local_runs(["rows", "labels"], coins=coins("run"))
    seen = {"rows": [], "labels": []}
    decoded, sessions = [], []
    receive, digits, agree = roles.receive_marked, roles.digits, roles.agree

    def watching(sender, kind, *place):
        message = yield from receive(sender, kind, *place)
        me = "labels" if sender == "rows" else "rows"
        seen[me].append((kind, [getattr(message, field) for field in message.__struct_fields__ if field != "mark"]))
        return message

    def watched_agree(*given):
        sessions.append((yield from agree(*given)))
        return sessions[-1]

    with monkeypatch.context() as patch:
        for module in (roles, equal):
            patch.setattr(module, "receive_marked", watching)
        patch.setattr(roles, "agree", watched_agree)
        patch.setattr(roles, "digits", lambda words, bits: decoded.append(words.copy()) or digits(words, bits))

        def first():
            links = yield from connect(runs["rows"], "labels", coins("keeper"))
            return (yield from row_holder(runs["rows"], "labels", SHAPE, rows, links.both, coins("r " + name)))

        def second():
            links = yield from connect(runs["labels"], "rows", coins("planter"))
            return (yield from label_holder(runs["labels"], "rows", SHAPE, labels, links.both, coins("l " + name)))

        outcome = run_in_memory({"rows": first(), "labels": second()})
    assert opened_count(outcome.outputs["rows"].matches, outcome.outputs["labels"].matches) == overlap
    return seen, decoded[::-1], sessions[0], (rows, labels)


def histogram(words):
    """Counts of byte values: 4-bit nibbles of every word."""
    raw = np.ascontiguousarray(words).view(np.uint8)
    return np.bincount(np.concatenate([raw & 15, raw >> 4]), minlength=16)


def differs(first, second):
    """Whether two samples of words have other laws: nibbles by chi-square, and words that come twice."""
    if Counter(first.tolist()).most_common(1)[0][1] > 1 or Counter(second.tolist()).most_common(1)[0][1] > 1:
        return True
    return chi2_contingency(np.stack([histogram(first), histogram(second)])).pvalue < ALPHA


@pytest.mark.parametrize("overlap", [0, 1500])
def test_no_message_differs_from_what_the_simulator_writes(overlap, monkeypatch):
    seen, decoded, _, _ = views(overlap, monkeypatch)
    source = coins("simulator")
    compared = 0
    for party in seen.values():
        for at, (kind, fields) in enumerate(party):
            block = sum(other is kind for other, _ in party[:at])
            ideal = simulated(kind, block, source)
            wanted = [getattr(ideal, field) for field in ideal.__struct_fields__ if field != "mark"]
            assert [len(field) for field in fields] == [len(field) for field in wanted], kind
            for real, made in zip(fields, wanted, strict=True):
                assert not differs(real, made), kind
                compared += 1
    assert compared >= 6
    own = decoded[0]  # the row holder's tags and labels, matches and others alike
    assert not differs(own.reshape(-1), source.words(own.size))


def test_the_comparison_sees_labels_that_are_not_masked(monkeypatch):
    """The planted fault: the label holder forgets tags and masks. What the row holder decodes then shows the matches."""
    fill = roles._fill

    def forgetful(session, shape, entries, owner, masked, secret, source):
        secret[:] = 0
        return fill(session, shape, entries, owner, masked, secret, source)

    monkeypatch.setattr(roles, "_fill", forgetful)
    _, decoded, _, _ = views(1500, monkeypatch)
    assert differs(decoded[0].reshape(-1), coins("ideal").words(decoded[0].size))


def recognised(planes, session, entries):
    """How many of its own identifiers the label holder finds by their code words in the questions it was sent."""
    raw = planes.view(np.uint8)
    rows = to_rows(raw[: len(raw) // 512 // 8 * 8 * 512].reshape(512, -1))
    asked = {row.tobytes() for row in rows}
    return sum(code.tobytes() in asked for code in codewords(entries.items))


def test_the_label_holder_recognises_no_identifier_in_the_questions(monkeypatch):
    """Its own code words, which it can compute; with an asker that forgets one of its two pads, it finds every match."""
    seen, _, session, (_, labels) = views(1500, monkeypatch)
    planes = next(fields[0] for kind, fields in seen["labels"] if kind is messages.ItemsMasked)
    assert recognised(planes, session, labels) == 0

    def naked(self, items):
        own = codewords(items)
        rest = np.zeros((question_words(len(items)) - own.size), dtype=np.uint64)
        return np.concatenate([to_planes(own).reshape(-1).view(np.uint64), rest]), own

    monkeypatch.setattr(Asker, "ask", naked)
    with pytest.raises(IntegrityError):  # what is no proof is noticed
        views(1500, monkeypatch)
    let_proofs_hold(monkeypatch)
    with pytest.raises(AssertionError):  # nothing fits any more, and what was sent shows
        views(1500, monkeypatch)
    faulty = Asker.__new__(Asker)
    faulty._session = session
    sent, own = naked(faulty, np.concatenate([labels.items, labels.items[:36]]))
    assert recognised(sent[: own.size], session, labels) == 1500


def drive(role, source):
    """Run a role against the simulator alone; its result."""
    blocks = Counter()
    answer = None
    try:
        while True:
            effect = role.send(answer)
            answer = None
            if isinstance(effect, Receive):
                answer = simulated(effect.kind, blocks[effect.kind], source)
                blocks[effect.kind] += 1
    except StopIteration as end:
        return end.value


def test_a_role_does_not_notice_that_it_talks_to_the_simulator(monkeypatch):
    """Both roles run to their end on uniform messages, and are left with shares that look as real ones do."""
    rows, labels = sets(0)
    runs = local_runs(["rows", "labels"], coins=coins("run"))
    linked = run_in_memory(
        {
            "rows": connect(runs["rows"], "labels", coins("keeper")),
            "labels": connect(runs["labels"], "rows", coins("planter")),
        }
    ).outputs

    def no_agreement(*given):
        return coins("session").bytes(32)
        yield

    for public in ("agree", "commit_coins", "open_coins", "answer_coins", "hear_coins"):
        monkeypatch.setattr(roles, public, no_agreement)
    let_proofs_hold(monkeypatch)
    monkeypatch.setattr("blindbayes.protocols.core.require_mark", lambda *given: None)  # marks name sessions, which are public
    for last in ("ask_equality", "answer_equality"):  # which says that both are the same, and is simulated from that
        monkeypatch.setattr(roles, last, no_agreement)
    source = coins("simulator")
    for role in (
        row_holder(runs["rows"], "labels", SHAPE, rows, linked["rows"].both, coins("r")),
        label_holder(runs["labels"], "rows", SHAPE, labels, linked["labels"].both, coins("l")),
    ):
        share = drive(role, source)
        assert share.sums.shape == (2, SHAPE.words)
        assert len(set(share.sums.reshape(-1).tolist())) == 2 * SHAPE.words
        assert int(share.sums.min()) > 2**40  # uniform words are smaller with probability 2^-22
