"""An attribute holder that sends a wrong level sum in class_sums: a row counts wrongly in the classes on that side.

The model was spoilt if the row has such a class, unseen, and noise in the shares does not bound what that tells: the class of
one person for a spoilt model. Now each row counts one in a word whose sums the class holder knows.
"""

import numpy as np
import pytest

from blindbayes.errors import IntegrityError
from blindbayes.protocol import transfer
from blindbayes.protocol.class_sums import ClassSumsSetup, attribute_holder, class_holder
from blindbayes.protocol.class_sums import roles as trees
from blindbayes.transport.memory import local_runs, run_in_memory
from support.two_party import coins

ROWS, WORDS = 100, 3


def train(labels, classes):
    runs = local_runs(["class", "attributes"], coins=coins("run"))
    shape, rows = ClassSumsSetup(ROWS, WORDS, classes), np.ones((ROWS, WORDS), dtype=np.uint64)

    def holder():
        ot_sender = yield from transfer.ot_sender(runs["attributes"], "class", coins("k"))
        return (yield from attribute_holder(runs["attributes"], "class", shape, [rows], ot_sender, coins("a")))

    def chooser():
        ot_receiver = yield from transfer.ot_receiver(runs["class"], "attributes", coins("p"))
        return (yield from class_holder(runs["class"], "attributes", shape, [labels], ot_receiver, coins("c")))

    return run_in_memory({"class": chooser(), "attributes": holder()}, check=False)


@pytest.fixture
def liar(monkeypatch):
    genuine = trees._grow

    def lying(hash_, q, delta, shape):
        leaves, sums = genuine(hash_, q, delta, shape)
        sums[-1, 0, 7, 0] ^= np.uint64(1 << 40)  # the left nodes of the last level, for the row of one person
        return leaves, sums

    monkeypatch.setattr(trees, "_grow", lying)


@pytest.mark.parametrize("classes", [3, 4, 6])
@pytest.mark.parametrize("own", [0, 1])
def test_a_wrong_tree_is_caught_where_the_row_takes_its_wrong_side(classes, own, liar):
    labels = np.arange(ROWS) % classes
    labels[7] = own
    outcome = train(labels, classes)
    if own == 0:  # chose the right side: knows nothing of the left sum
        assert outcome.error is None
        total = outcome.outputs["class"] + outcome.outputs["attributes"]
        assert np.array_equal(total[:, 0], np.bincount(labels, minlength=classes).astype(np.uint64))
    else:
        assert isinstance(outcome.error, IntegrityError)
        assert outcome.error.party == "attributes"


def test_without_the_count_the_model_was_spoilt_and_nobody_saw_it(liar, monkeypatch):
    monkeypatch.setattr(trees, "_require_counts", lambda *given: None)
    labels = np.arange(ROWS) % 3
    outcome = train(labels, 3)
    assert outcome.error is None
    total = outcome.outputs["class"] + outcome.outputs["attributes"]
    assert (total > np.uint64(ROWS)).any()


def test_a_share_of_the_counts_made_to_fit_one_class_does_not_fit_another(monkeypatch):
    genuine = trees.TweakedHash.accumulate

    def lying(self, seeds, domain, at, rows, share, *, minus):
        genuine(self, seeds, domain, at, rows, share, minus=minus)
        share[-1] += np.uint64(minus)  # the attribute holder's

    monkeypatch.setattr(trees.TweakedHash, "accumulate", lying)
    assert isinstance(train(np.arange(ROWS) % 2, 2).error, IntegrityError)
