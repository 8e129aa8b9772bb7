"""A class holder that garbles another comparison, and learns the class: it got a wire per class but one, and read as many bits.

Now the outputs are the bits of the class's position, and an evaluator that learns the class too refuses what is none.
"""

import numpy as np
import pytest

from blindbayes.crypto import kernels
from blindbayes.crypto.garbling import circuits as c
from blindbayes.crypto.garbling.garbling import Garbler, Plain
from blindbayes.errors import IntegrityError
from blindbayes.protocols.shared_inference import comparing as roles
from blindbayes.protocols.shared_inference.messages import LabelsReturned
from support.argmax import Setup, with_classes


class Other(Garbler):
    """Takes one wire for its opposite where class 0 is decided, which no evaluator sees. Where 0 lies behind 1, the outputs
    then say how both stand to class 2: an order of all classes in place of the best."""

    read_bits: list = []
    turned = False

    def and_(self, left, right):
        if left.shape[0] == 1 and not self.turned:  # the first gate behind the signs
            self.turned, left = True, left ^ self._delta
        return super().and_(left, right)

    def read(self, wires, returned, party=None):
        self.read_bits.append(super().read(wires, returned, party))
        return self.read_bits[-1]


@pytest.fixture
def liar(monkeypatch):
    monkeypatch.setattr(roles, "Garbler", Other)
    monkeypatch.setattr(Other, "read_bits", [])
    with kernels.using("off"):  # they garble a comparison in one call: its software would have none
        yield


def a_wire_per_class(g, behind, classes):
    """The outputs as they were, for three classes: whether 0 wins, whether 1 does."""
    zero = g.and_(g.not_(behind[:1]), g.not_(behind[1:2]))
    return np.concatenate([zero, g.and_(behind[:1], g.not_(behind[2:]))])


def test_the_attack_on_a_wire_per_class_tells_who_is_last(liar, monkeypatch):
    monkeypatch.setattr(c, "argmax_by_pairs", a_wire_per_class)
    monkeypatch.setattr(roles, "classes_of", lambda bits, *_: np.concatenate([bits, bits[:1] | 1]).argmax(axis=0))
    assert Setup(with_classes(3), 200).run(check=False).error is None  # nobody noticed
    patterns = {tuple(column) for bits in Other.read_bits for column in bits.T.tolist()}
    assert (1, 1) in patterns  # both win: the class holder knows the order of all three


def test_an_answer_that_is_no_class_ends_the_run_before_the_class_holder_sees_it(liar):
    outcome = Setup(with_classes(3), 200).run(check=False)
    assert isinstance(outcome.error, IntegrityError)
    assert outcome.error.party == "class"
    assert LabelsReturned not in [entry.kind for entry in outcome.transcript.entries]
    assert not Other.read_bits


@pytest.mark.parametrize("classes", range(2, 12))
def test_no_comparison_has_more_outputs_than_it_takes_to_name_a_class(classes):
    setup = Setup(with_classes(classes), 5)
    lanes = len(c.pairs_of(classes)) if classes <= c.PAIRWISE_CLASSES else classes - 1
    zeros = np.zeros((setup.plan.bits, 5 * lanes), dtype=np.uint8)
    assert len(roles.circuit(Plain(), zeros, zeros, setup.query())) == (classes - 1).bit_length()
