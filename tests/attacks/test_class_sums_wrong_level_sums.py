"""An attribute holder that sends a wrong level sum in class_sums: a row counts wrongly in the classes on that side.

The model was spoilt if the row has such a class, unseen, and noise in the shares does not bound what that tells: the class of
one person for a spoilt model. Now each row counts one in a word whose sums the class holder knows.
"""

import numpy as np
import pytest

from blindbayes.crypto.ot import trees
from blindbayes.errors import IntegrityError
from blindbayes.protocols.memory import local_runs, run_in_memory
from blindbayes.protocols.shared_training.class_sums import ClassSumsSetup, attribute_holder, class_holder, roles
from blindbayes.protocols.two_party.transfer import roles as transfer
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
    genuine = trees.grow

    def lying(hash_, q, delta, classes):
        leaves, sums = genuine(hash_, q, delta, classes)
        # The left nodes of the last level, or of three classes the sum that tells the third both of the others; of one person.
        sums[max(0, len(sums) - 2), 7, 0] ^= np.uint64(1 << 40)
        return leaves, sums

    monkeypatch.setattr(trees, "grow", lying)


@pytest.mark.parametrize(
    ("classes", "own", "unseen"),
    [(3, 0, True), (3, 1, True), (3, 2, False), (4, 0, True), (4, 1, False), (6, 0, True), (6, 1, False)],
)
def test_a_wrong_tree_is_caught_where_the_row_takes_its_wrong_side(classes, own, unseen, liar):
    labels = np.arange(ROWS) % classes
    labels[7] = own
    outcome = train(labels, classes)
    if unseen:  # chose the other side: knows nothing of that sum
        assert outcome.error is None
        total = outcome.outputs["class"] + outcome.outputs["attributes"]
        assert np.array_equal(total[:, 0], np.bincount(labels, minlength=classes).astype(np.uint64))
    else:
        assert isinstance(outcome.error, IntegrityError)
        assert outcome.error.party == "attributes"


def test_without_the_count_the_model_was_spoilt_and_nobody_saw_it(liar, monkeypatch):
    monkeypatch.setattr(roles, "_require_counts", lambda *given: None)
    labels = np.arange(ROWS) % 3
    labels[7] = 2
    outcome = train(labels, 3)
    assert outcome.error is None
    total = outcome.outputs["class"] + outcome.outputs["attributes"]
    assert (total > np.uint64(ROWS)).any()


def test_a_share_of_the_counts_made_to_fit_one_class_does_not_fit_another(monkeypatch):
    genuine = trees.mask

    def lying(hash_, leaves, masked, share):
        genuine(hash_, leaves, masked, share)
        share[:, -1] += np.uint64(1)

    monkeypatch.setattr(trees, "mask", lying)
    assert isinstance(train(np.arange(ROWS) % 2, 2).error, IntegrityError)
