"""The comparison by one-of-n transfers: the same classes as the garbled one, in fewer bytes."""

import numpy as np
import pytest

from blindbayes.codebook import Categorical, Numeric
from blindbayes.errors import LocalProtocolError, PeerProtocolError, ProtocolError
from blindbayes.primitives import limbs as lm
from blindbayes.protocol.shared_argmax import query as argmax_query
from blindbayes.protocol.shared_argmax.by_transfers import levels
from blindbayes.protocol.shared_argmax.messages import LevelCompared, OutputsShared
from blindbayes.protocol.shared_model import score
from blindbayes.transport.memory import Drop, Duplicate, Replace
from support.argmax import Setup, with_classes
from support.columns import MIXED, book, to_scores

WIDE = book([Numeric("x", -1e6, 1e6, 0.001), Categorical("v", ("0", "1", "2"))], floor=1e-9)


def narrow(book, rows, **options):
    return Setup(book, rows, by_transfers=True, **options)


@pytest.mark.parametrize("classes", [2, 3, 4, 5, 6, 9, 18])
def test_the_class_is_that_of_the_plain_scores(classes):
    setup = narrow(with_classes(classes), 60)
    outcome, expected = setup.run(), setup.expected()
    assert len(set(expected.tolist())) > 1
    for party in setup.parties:
        assert np.array_equal(outcome.outputs[party], expected)
        assert outcome.opened[party] == ("class",)


@pytest.mark.parametrize("classes", [2, 3, 7])
def test_ties_go_to_the_class_listed_first(classes):
    setup = narrow(with_classes(classes), 120, small=True)
    setup.local = lambda: np.zeros((120, classes - 1, setup.plan.limbs), dtype=np.uint64)
    total = to_scores(score(setup.plain, setup.block.columns, setup.plan, 120), setup.plan)
    best = np.maximum(total.max(axis=1), 0)
    assert sum((np.append(row, 0) == top).sum() > 1 for row, top in zip(total, best, strict=True)) > 5  # ties do occur
    assert np.array_equal(setup.run().outputs["class"], setup.expected())


@pytest.mark.parametrize("rows", [1, 33])
def test_scores_wider_than_64_bits(rows):
    setup = narrow(WIDE, rows)
    assert setup.plan.limbs == 2
    assert np.array_equal(setup.run().outputs["attributes"], setup.expected())


def test_every_kind_of_feature_several_holders_and_chunks(monkeypatch):
    setup = narrow(MIXED, 50, holders=("attributes", "more"))
    whole = setup.run()
    assert np.array_equal(whole.outputs["more"], setup.expected())
    monkeypatch.setattr(argmax_query, "_MAX_CHUNK", 7)
    cut = setup.run()
    assert np.array_equal(cut.outputs["class"], setup.expected())
    assert cut.cost.rounds == whole.cost.rounds
