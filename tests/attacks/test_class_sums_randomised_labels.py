"""Strings that no row has, against randomised labels: an attribute holder whose changed program lets one person fill a cell.

One training at any epsilon told it the class of as many people as the study has cells. Labels that are randomised once bound
the odds of each guess by e^label_epsilon, in all trainings together; coins drawn afresh in each training would not.
"""

import math

import numpy as np
import pandas as pd
import pytest
from scipy.stats import binomtest

from blindbayes import JoinStudy, Privacy
from blindbayes.codebook import Categorical, Codebook
from blindbayes.crypto import limbs as lm
from blindbayes.crypto.coins import Coins
from blindbayes.data.columns import open_columns
from blindbayes.dp.noise.randomised_response import RandomisedLabels
from blindbayes.protocols.shared_training import columns as roles
from blindbayes.study.tasks.labels import randomised
from support.plain_model import to_floats
from support.studies import make_columns_study
from support.two_party import coins

TARGETS, ROWS = 100, 2000
ALPHA = 1e-4


def study(classes, **facts):
    book = Codebook("hiv", tuple("abcde"[:classes]), tuple(Categorical(f"x{at}", ("0", "1")) for at in range(TARGETS)))
    return make_columns_study(book, options={"queries": 10}, **facts, min_rows=1000)


@pytest.fixture
def filling(monkeypatch):
    """An attribute holder that lets person i count a thousand times in a cell of feature i."""
    genuine = roles.class_sums.attribute_holder

    def lying(run, other, shape, blocks, *rest):
        blocks = list(blocks)
        layout = blocks[0].layout
        words = np.concatenate([block.layout.encode(block.block) for block in blocks])
        for at in range(TARGETS):
            field = next(each for each in layout.fields if each.feature.name == f"x{at}").counts[1]
            words[at, field.word] += np.uint64(ROWS // 2 << field.shift)
        return (yield from genuine(run, other, shape, [words], *rest))

    monkeypatch.setattr(roles.class_sums, "attribute_holder", lying)


def read(made, labels, seat, seed=None):
    """What the model says of each target: the class whose score at the filled cell is the largest. The strongest reading: all
    answers together tell no more than the tables."""
    classes = made.codebook.classes
    clinic = pd.DataFrame({"hiv": np.array(classes)[labels]})
    gym = pd.DataFrame({f"x{at}": ["0"] * ROWS for at in range(TARGETS)})
    frames = {"clinic": clinic, "gym": gym} if seat == "first" else {"gym": gym, "clinic": clinic}
    joint = made.simulate(frames, coins=seed)
    plan, both = joint.model.columns.plan, [next(iter(share.tables.values())) for share in joint.model.shares.values()]
    whole = {name: lm.cut(lm.add(*(each[name] for each in both)), plan.bits) for name in both[0]}
    cells = to_floats(whole, plan)
    return np.array([np.concatenate([[0.0], cells[f"x{at}"][0, 2]]).argmax() for at in range(TARGETS)])


def lost(guesses, labels):
    """The epsilon that guesses show, with confidence: how much more often class 0 is guessed of those who have it."""
    ill = labels[: len(guesses)] == 0
    said = guesses == 0
    low = binomtest(int(said[ill].sum()), int(ill.sum())).proportion_ci(1 - ALPHA).low
    high = binomtest(int(said[~ill].sum()), int((~ill).sum())).proportion_ci(1 - ALPHA).high
    return math.log(low / high)


def people(classes, at):
    return np.random.default_rng(100 * classes + at).integers(0, classes, ROWS)


@pytest.mark.parametrize("seat", ["first", "last"])
def test_without_randomised_labels_one_training_tells_every_class(filling, seat):
    labels = people(2, 0)
    guesses = read(study(2, epsilon=0.5, label_epsilon=False), labels, seat)
    assert (guesses == labels[:TARGETS]).mean() > 0.9
    assert lost(guesses, labels) > 1.0  # twice epsilon is what the noise promises for rows that are rows


@pytest.mark.parametrize(
    ("classes", "facts"),
    [
        (2, {"epsilon": 0.5}),
        (3, {"label_epsilon": 1.0}),
        pytest.param(5, {"label_epsilon": 1.0}, marks=pytest.mark.slow),
    ],
    ids=["noise and labels", "three classes", "five classes"],
)
def test_words_that_no_row_has_tell_no_more_than_label_epsilon_in_any_number_of_trainings(filling, classes, facts):
    made, seen, told = study(classes, **facts), [], []
    for at in range(4):
        labels = people(classes, at)
        trainings = [read(made, labels, "first" if again else "last") for again in range(3)]
        votes = np.stack([(np.stack(trainings) == label).sum(axis=0) for label in range(classes)])
        seen.append(votes.argmax(axis=0))
        told.append(labels[:TARGETS])
    guesses, labels = np.concatenate(seen), np.concatenate(told)
    assert lost(guesses, labels) <= made.label_budget
    keeps = RandomisedLabels.make(made.label_budget, classes).keeps
    right = (guesses == labels).mean()
    assert right < keeps + 5 * math.sqrt(keeps * (1 - keeps) / len(labels))  # the randomised label itself, and nothing more
    assert right > 1 / classes  # which the attack does read


def test_fresh_coins_in_every_training_are_refuted(filling, monkeypatch):
    """A planted fault: the vote of many trainings then tells the class."""
    made, labels = study(2, label_epsilon=1.0), people(2, 9)
    genuine = RandomisedLabels.randomise

    def fresh(self, own, codebook, secret, people=b""):
        return genuine(self, own, codebook, Coins.system().bytes(32), people)

    monkeypatch.setattr(RandomisedLabels, "randomise", fresh)
    trainings = np.stack([read(made, labels, "first") for _ in range(15)])
    guesses = (trainings == 1).sum(axis=0) > 7
    assert lost(guesses.astype(int), labels) > made.label_budget


def test_the_site_s_secret_decides_the_coins(filling):
    made, labels = study(2, label_epsilon=1.0), people(2, 3)
    assert not np.array_equal(read(made, labels, "first", coins("a")), read(made, labels, "first", coins("b")))


def test_people_who_move_among_the_rows_of_their_class_are_another_draw_that_is_paid_for():
    """Sorted by class, in another order within: coins by row let 25 trainings tell 98% of classes for one payment."""
    book = Codebook("risk", ("no", "yes"), (Categorical("x", ("0", "1")),))
    made = JoinStudy(book, key="id", duplicates="first", privacy=Privacy(label_epsilon=1.0))
    risk, votes, draws = np.repeat([0, 1], 200), np.zeros(400), []
    for at in [*range(25), 0]:
        rng = np.random.default_rng(at)
        order = np.concatenate([rng.permutation(200), 200 + rng.permutation(200)])
        bank = pd.DataFrame({"id": [f"p{i}" for i in order], "risk": np.array(["no", "yes"])[risk[order]]})
        source, draw = randomised(made, open_columns(bank, book, ignore=("id",)), b"k" * 32)
        votes[order] += source.randomised
        draws.append(draw)
    assert ((votes > 13) == (risk == 1)).mean() > 0.9  # so many draws tell the class: each has its price
    assert len(set(draws)) == 25
    assert draws[-1] == draws[0]
