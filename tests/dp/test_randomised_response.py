"""Randomised response on labels: exact coins, whole weights, and draws that are the same for the same labels."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from scipy.stats import chisquare

from blindbayes.codebook import Categorical, Codebook
from blindbayes.dp.noise import randomised_response
from blindbayes.dp.noise.randomised_response import RandomisedLabels
from blindbayes.errors import ConfigError, LocalProtocolError, PrivacyError
from blindbayes.protocols.shared_training.shared_model import Guard
from support.two_party import coins

SECRET = bytes(range(32))
ALPHA = 1e-6


def book(classes, target="risk"):
    return Codebook(target, tuple(classes), (Categorical("job", ("a", "b")),))


class Words:
    """Coins that give one word after the other."""

    def __init__(self, words):
        self._words = iter(words)

    def words(self, count):
        return np.array([next(self._words) for _ in range(count)], dtype=np.uint64)


@pytest.mark.parametrize("classes", [2, 3, 5])
@pytest.mark.parametrize("epsilon", [0.01, 0.1, 0.5, 1.0, 2.0, 6.0, 12.0])
def test_whole_weights_stay_below_epsilon_and_close_to_it(epsilon, classes):
    law = RandomisedLabels.make(epsilon, classes)
    assert 0.985 * epsilon < math.log(Fraction(law.keep, law.other)) <= epsilon
    assert law.keep > law.other > 0
    assert law.whole == law.keep + (classes - 1) * law.other


@pytest.mark.parametrize("classes", [2, 3, 5])
def test_the_law_of_a_randomised_label_is_exact(classes):
    """Every word of one period of the weights, once: each outcome comes out as often as its weight says."""
    law = RandomisedLabels.make(1.0, classes)
    for label in range(classes):
        found = law.draw(np.full(law.whole, label), Words(range(law.whole)))
        counts = np.bincount(found, minlength=classes)
        assert counts[label] == law.keep
        assert set(np.delete(counts, label)) == {law.other}


def test_words_beyond_the_last_whole_period_are_drawn_again():
    law = RandomisedLabels.make(1.0, 2)
    beyond = (1 << 64) // law.whole * law.whole
    assert beyond < 1 << 64
    kept, again = law.draw(np.array([0, 0]), Words([0, beyond, law.whole - 1]))
    assert (kept, again) == (0, 1)


def test_drawn_labels_fit_their_law_and_no_other():
    law = RandomisedLabels.make(1.0, 3)
    found = np.bincount(law.draw(np.ones(60_000, dtype=np.int64), coins("law")), minlength=3)
    weights = np.array([law.other, law.keep, law.other])
    assert chisquare(found, 60_000 * weights / law.whole).pvalue > ALPHA
    for wrong in (1, -1):
        off = weights + np.array([0, wrong, 0])
        assert chisquare(found, 60_000 * off / off.sum()).pvalue < ALPHA


@pytest.mark.parametrize("classes", [2, 3, 5])
def test_debiasing_is_unbiased_over_all_draws_of_a_table(classes):
    """Every outcome of every row, weighted exactly: the mean of debiased sums is that of the true labels, in whole numbers."""
    law = RandomisedLabels.make(0.5, classes)
    truth, values = [0, 1, classes - 1, 0][: 4 if classes < 5 else 3], [3, -2, 7, 1]
    mean = np.zeros(classes, dtype=object)
    for drawn in itertools.product(range(classes), repeat=len(truth)):
        sums = np.zeros(classes, dtype=object)
        weight = 1
        for true, label, value in zip(truth, drawn, values, strict=False):
            sums[label] += value
            weight *= law.keep if true == label else law.other
        mean += weight * Guard(odds=law.odds).debiased(sums)
    expected = [sum(v for t, v in zip(truth, values, strict=False) if t == k) for k in range(classes)]
    assert list(mean) == [law.units * total * law.whole ** len(truth) for total in expected]


def test_the_same_labels_get_the_same_coins_in_every_study_and_others_do_not():
    law, labels = RandomisedLabels.make(1.0, 3), np.arange(3000) % 3
    first = law.randomise(labels, book("abc"), SECRET)
    again = law.randomise(labels, book("abc"), SECRET)
    assert first.name == again.name
    assert np.array_equal(first.labels, again.labels)
    renamed = law.randomise((labels + 1) % 3, book("cab"), SECRET)  # the same classes in another order
    assert renamed.name == first.name
    assert np.array_equal((renamed.labels - 1) % 3, first.labels)
    turned = labels.copy()
    turned[0] = 1
    others = {
        "another label": law.randomise(turned, book("abc"), SECRET),
        "another secret": law.randomise(labels, book("abc"), bytes(32)),
        "another target": law.randomise(labels, book("abc", "churn"), SECRET),
        "other classes": law.randomise(labels, book("abd"), SECRET),
        "another epsilon": RandomisedLabels.make(1.1, 3).randomise(labels, book("abc"), SECRET),
    }
    changed = first.labels != labels
    for why, other in others.items():
        assert other.name != first.name, why
        both = ((other.labels != labels) & changed).mean()
        assert abs(both - changed.mean() ** 2) < 0.06, why  # independent, within 6 deviations


@pytest.mark.parametrize("epsilon", [0, -1, 12.5, float("nan"), float("inf"), 1e-6])
def test_a_label_epsilon_that_protects_nothing_is_refused(epsilon):
    with pytest.raises((PrivacyError, ConfigError)):
        RandomisedLabels.make(epsilon, 2)


def test_a_label_that_is_no_class_is_refused():
    with pytest.raises(LocalProtocolError):
        RandomisedLabels.make(1.0, 2).draw(np.array([0, 2]), coins("x"))


def test_the_series_lies_below_the_exponential():
    for exact in (Fraction(1, 10_000), Fraction(1), Fraction(12)):
        low = randomised_response._exp_floor(exact)
        assert 0 <= math.exp(exact) - float(low) <= 1e-9 * math.exp(exact)
