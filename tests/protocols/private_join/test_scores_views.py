"""What either side of joined_scores sees, beside what a simulator writes that knows public facts alone.

The simulator draws every message uniformly, in the lengths that the public facts give. A helper, who learns nothing, runs to
its end on such messages without noticing; no test below tells its real messages from them, at no overlap or at full overlap.
The same holds of all that the scorer receives before the comparison, whose outcome it learns. A planted fault is seen.
"""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from scipy.stats import chi2_contingency

from blindbayes.crypto.garbling.garbling import ROW_WORDS
from blindbayes.crypto.ot.base import bits_for
from blindbayes.crypto.ot.softspoken import correction_words
from blindbayes.crypto.psi.okvs import cells
from blindbayes.crypto.psi.oprf import WIDTH, question_words
from blindbayes.protocols.core import Open, Receive, Send
from blindbayes.protocols.memory import run_in_memory
from blindbayes.protocols.private_join.scores import bins
from blindbayes.protocols.private_join.scores import roles as joined_scores
from blindbayes.protocols.private_join.scores.messages import (
    BinsCommitted,
    BinsFixed,
    BinsOffered,
    CodesAnswered,
    CodesChosen,
    CodesCompared,
    ScoresGated,
)
from blindbayes.protocols.private_join.sums.messages import ItemsMasked, SeedsChosen, StoreFilled
from blindbayes.protocols.shared_inference.messages import ArgmaxGarbled, EntriesChosen, EntriesMasked, ScoresChosen
from blindbayes.protocols.two_party import lookups
from blindbayes.protocols.two_party.transfer.messages import SessionOffered
from blindbayes.wire import decode
from blindbayes.wire.transcript import Keep
from support.hidden import Case
from support.two_party import coins, let_proofs_hold

ALPHA = 1e-7  # of each comparison; there are fewer than two hundred
MOST = 1 << 15  # words of a field that are compared


def lengths(case, kind, at):
    """Words of each field of the message number `at` of a kind, from public facts alone."""
    hidden, shape = case.hidden, case.hidden.shapes[case.other]
    counts = [part.stop - part.start for part in hidden.parts()]
    if kind in (CodesChosen, CodesCompared, CodesAnswered, ScoresGated):
        count = counts[at]
        return {
            CodesChosen: [correction_words((shape.tag_bits + shape.planes) * count)],
            CodesCompared: [
                ROW_WORDS * count * (shape.tag_bits - 1 + shape.planes),
                count * shape.entry_words * shape.both,
                correction_words(count * (shape.planes + shape.shared)),
            ],
            CodesAnswered: [count * shape.entry_words],
            ScoresGated: [count * shape.width],
        }[kind]
    if kind in (EntriesChosen, EntriesMasked):
        chunks = [part.stop - part.start for count in counts for part in hidden.own_query(count).chunks()]
        plans = [case.plan.features[name] for name in hidden.own]
        if kind is EntriesChosen:
            return [correction_words(chunks[at] * sum(own.selectors * bits_for(own.entries) for own in plans))]
        return [chunks[at] * sum(own.selectors * (own.entries - 1) for own in plans) * shape.width]
    if kind in (ScoresChosen, ArgmaxGarbled):
        chunk = hidden.query(shape.bins).chunks()[at]
        count, bits = chunk.stop - chunk.start, case.plan.bits
        return [correction_words(bits * count)] if kind is ScoresChosen else [ROW_WORDS * (bits - 1) * count, 0]
    return {
        SeedsChosen: [correction_words(WIDTH)],
        ItemsMasked: [question_words(shape.bins)],
        StoreFilled: [cells(shape.keys) * shape.payload_words],
    }[kind]


def views(case):
    """Per party: (kind, fields of words) of all that it received after the sessions were agreed on; the classes."""
    outcome = run_in_memory(case.roles(), keep=Keep.FRAMES)
    seen = {case.to: [], case.other: []}
    for entry in outcome.transcript.entries:
        if entry.kind.__name__ in (
            "SessionOffered",
            "PointsChosen",
            "TreesPlanted",
            "BinsCommitted",
            "BinsOffered",
            "BinsFixed",
        ):
            continue
        message = decode(entry.frame, entry.kind)
        fields = [getattr(message, field) for field in message.__struct_fields__ if field != "mark"]
        seen[entry.to].append((entry.kind, fields))
    return seen, outcome.outputs[case.to]


def histogram(words):
    raw = np.ascontiguousarray(words).view(np.uint8)
    return np.bincount(np.concatenate([raw & 15, raw >> 4]), minlength=16)


def differs(first, second):
    """Whether two samples of words have other laws: nibbles by chi-square, and words that come twice."""
    first, second = first[:MOST], second[:MOST]
    if any(len(np.unique(words)) < len(words) for words in (first, second)):
        return True
    return chi2_contingency(np.stack([histogram(first), histogram(second)])).pvalue < ALPHA


def compare(case, seen, source):
    """Hold every message against the simulator's; how many fields were compared."""
    at, compared = Counter(), 0
    for kind, fields in seen:
        wanted = lengths(case, kind, at[kind])
        at[kind] += 1
        assert [len(field) for field in fields] == wanted, kind
        for field in fields:
            if len(field) >= 64:
                assert not differs(field, source.words(len(field))), kind
                compared += 1
    return compared


@pytest.mark.parametrize("overlap", [0, 400])
@pytest.mark.parametrize(("to", "scope"), [("bank", "shared"), ("telecom", "everybody")])
def test_no_message_differs_from_what_the_simulator_writes(to, scope, overlap):
    case, source = Case(to, scope, sizes=(400, 400), overlap=overlap), coins("simulator")
    seen, classes = views(case)
    assert np.array_equal(classes, case.expected())
    assert compare(case, seen[case.other], source) > 10
    before = {SeedsChosen, StoreFilled, CodesChosen, CodesAnswered, EntriesMasked, ScoresGated}
    assert compare(case, [item for item in seen[to] if item[0] in before], source) > 8


def test_the_comparison_sees_entries_that_are_not_masked(monkeypatch):
    """The planted fault: senders forget the pads of the entries that they send."""
    case = Case("bank", sizes=(50, 50), overlap=20)
    offer = lookups.offer

    def naked(hash_, q, delta, offered, total, out=None):
        sent = offer(hash_, q, delta, offered, total, out)
        bare = np.stack(
            [
                np.broadcast_to(offered.entry(value), (len(total), *offered.table[0, :, 0].shape))
                for value in range(1, offered.entries)
            ]
        )
        assert bare.size == sent.size
        sent[:] = bare.reshape(-1)
        return sent

    monkeypatch.setattr(lookups, "offer", naked)
    seen, classes = views(case)
    assert not np.array_equal(classes, case.expected())
    for party, kind in ((case.other, "CodesCompared"), (case.to, "CodesAnswered")):
        with pytest.raises(AssertionError, match=kind):
            compare(case, seen[party], coins("simulator"))


def drive(case, role, source):
    """Run a role against the simulator alone; what it returned and what it opened."""
    at, opened, answer, offered = Counter(), [], None, None
    try:
        while True:
            effect = role.send(answer)
            answer = None
            if isinstance(effect, Open):
                opened.append(effect.label)
                answer = effect.value
            elif isinstance(effect, Send) and isinstance(effect.message, SessionOffered):
                offered = effect.message
            elif isinstance(effect, Send) and isinstance(effect.message, BinsOffered):
                seeds = source.bytes(32), effect.message.seed
            elif isinstance(effect, Receive) and effect.kind is BinsCommitted:
                answer = BinsCommitted(0, bytes(32))
            elif isinstance(effect, Receive) and effect.kind is BinsFixed:
                answer = BinsFixed(0, *seeds)
            elif isinstance(effect, Receive) and effect.kind is SessionOffered:
                answer = SessionOffered(source.bytes(16), offered.digest)  # public facts
            elif isinstance(effect, Receive):
                fields = [source.words(length) for length in lengths(case, effect.kind, at[effect.kind])]
                at[effect.kind] += 1
                answer = effect.kind(0, *fields) if "mark" in effect.kind.__struct_fields__ else effect.kind(*fields)
    except StopIteration as end:
        return end.value, opened, at


@pytest.mark.parametrize(("to", "scope"), [("bank", "shared"), ("telecom", "shared"), ("telecom", "everybody")])
def test_a_helper_does_not_notice_that_it_talks_to_the_simulator(to, scope, monkeypatch):
    """It runs to its end on uniform messages and has opened nothing: whatever it holds, it could have made alone."""
    case = Case(to, scope, sizes=(40, 40), overlap=40)
    helped, links, run = case.helper()
    let_proofs_hold(monkeypatch)
    monkeypatch.setattr(bins, "_commitment", lambda seed: bytes(32))  # public randomness
    monkeypatch.setattr("blindbayes.protocols.core.require_mark", lambda *given: None)  # marks name sessions, which are public
    role = joined_scores.helper(run, case.hidden, helped, links, coins("h"))
    value, opened, read = drive(case, role, coins("simulator"))
    assert (value, opened) == (None, [])
    assert read[CodesCompared] == len(case.hidden.parts())
    assert read[ScoresGated] == (len(case.hidden.parts()) if scope == "shared" else 0)
    assert read[ArgmaxGarbled if to == "bank" else ScoresChosen] > 0
