"""Labels that are randomised once, before anything is counted.  [labels]

    law = RandomisedLabels.make(epsilon=2.0, classes=3)           # public facts only
    drawn = law.randomise(labels, codebook, secret)               # what the class holder enters, the same in every training

The class holder keeps each label with probability a / (a + (K - 1) b) and turns it into each other class with probability
b / (a + (K - 1) b), a / b <= e^epsilon. Whatever is computed from these labels afterwards, by anybody, with any program and
any number of times, moves the odds between two classes of one row by a factor of at most a / b. Weights are whole numbers, so
both the coin and the debiasing (`Guard.debiased`) are exact.

Coins are keyed by a secret of the site, by all labels of the table and, where it has them, by all identifiers. The same labels
of the same people in the same order get the same coins in every training and every study. A table in which any label changed
gets new ones, which are independent and charged anew: coins that stayed with a person while its label changed would show the
change, and a person that moved to another row of its class would get another coin, unpaid.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np
import numpy.typing as npt

from blindbayes.codebook import Codebook
from blindbayes.crypto.coins import Coins
from blindbayes.dp.noise.exact_events import Number, budget_floor
from blindbayes.errors import LocalProtocolError, PrivacyError

Labels = npt.NDArray[np.int64]
LARGEST = 12
"""Largest label_epsilon: beyond, odds of 160,000 to 1 protect nobody and cost width in every circuit."""
SMALLEST = Fraction(1, 10_000)
_CLOSE = Fraction(99, 100)  # of epsilon that the whole weights reach at least
_TERMS = 80  # of the exponential's series: below 2^-60 of its value for arguments up to LARGEST
_AT_ONCE = 1 << 16


@dataclass(frozen=True, slots=True)
class DrawnLabels:
    """The labels that a class holder enters, and the name of the draw: the same name, the same labels."""

    labels: Labels
    name: str


@dataclass(frozen=True)
class RandomisedLabels:
    """Randomised response among K classes, with whole weights. Make it with `make`."""

    epsilon: Fraction
    classes: int
    keep: int  # a
    other: int  # b

    @classmethod
    def make(cls, epsilon: Number, classes: int) -> RandomisedLabels:
        """Return the smallest integer weights whose odds are at most e^epsilon and cost at least 99% of epsilon."""
        exact = budget_floor(epsilon, "label_epsilon")
        if not SMALLEST <= exact <= LARGEST:
            raise PrivacyError(
                f"label_epsilon lies between {float(SMALLEST):g} and {LARGEST}: below, nothing is left to learn from labels; "
                "above, they are not protected. false counts labels as they are"
            )
        high, low = _exp_floor(exact), _exp_floor(exact * _CLOSE)
        other = 1
        while (keep := other * high.numerator // high.denominator) < other * low or keep == other:
            other += 1
        return cls(exact, classes, keep, other)

    @property
    def odds(self) -> tuple[int, int]:
        """Weights (a, b) of the own class and of each other one."""
        return self.keep, self.other

    @property
    def whole(self) -> int:
        """The sum a + (K - 1) b: what the weights of all classes add up to."""
        return self.keep + (self.classes - 1) * self.other

    @property
    def units(self) -> int:
        """Weight of one row after `debiased`."""
        return self.keep - self.other

    @cached_property
    def keeps(self) -> float:
        """The probability that a label stays as it is."""
        return self.keep / self.whole

    # -- drawing ---------------------------------------------------------------------------------------------------------

    def randomise(self, labels: Labels, codebook: Codebook, secret: bytes, people: bytes = b"") -> DrawnLabels:
        """Randomise the labels of a whole table, with coins keyed by the secret and the labels; classes are ordered by name.

        `people` are the identifiers in the order of the rows, if rows have them.
        """
        order = np.argsort(np.array(codebook.classes, dtype=object)).astype(np.int64)  # classes in the order of their names
        place = np.empty_like(order)
        place[order] = np.arange(len(order))
        named = place[labels]
        facts = repr((codebook.target, sorted(codebook.classes), self.keep, self.other, len(labels))).encode()
        digest = hashlib.blake2b(key=secret[:64], digest_size=64, person=b"bb labels")
        digest.update(len(facts).to_bytes(8, "big") + facts)
        digest.update(np.ascontiguousarray(named, dtype="<i8").data)
        digest.update(people)
        seed, name = digest.digest()[:32], digest.digest()[32:48].hex()
        return DrawnLabels(order[self.draw(named, Coins.seeded(seed))], name)

    def draw(self, labels: Labels, coins: Coins) -> Labels:
        """Keep or change each label, by its own coin."""
        if labels.size and not 0 <= int(labels.min()) <= int(labels.max()) < self.classes:
            raise LocalProtocolError("every row needs one of the classes")
        out = np.empty_like(labels)
        for low in range(0, len(labels), _AT_ONCE):
            part = labels[low : low + _AT_ONCE]
            turned = self._uniform(coins, len(part)) - self.keep  # below 0: kept
            out[low : low + len(part)] = (part + np.where(turned < 0, 0, 1 + turned // self.other)) % self.classes
        return out

    def _uniform(self, coins: Coins, count: int) -> Labels:
        """Draw uniform integers below `whole`; words in the last, incomplete stretch are drawn again."""
        limit = (1 << 64) // self.whole * self.whole
        words = coins.words(count)
        while (again := np.flatnonzero(words > np.uint64(limit - 1))).size:
            words[again] = coins.words(again.size)
        return np.asarray(words % np.uint64(self.whole)).astype(np.int64)


def _exp_floor(exact: Fraction) -> Fraction:
    """Return a number just below e^exact: its truncated series."""
    term, total = Fraction(1), Fraction(1)
    for at in range(1, _TERMS):
        term = Fraction(term.numerator * exact.numerator, term.denominator * exact.denominator * at)
        total += term
    return Fraction(total.numerator * (1 << 80) // total.denominator, 1 << 80)
