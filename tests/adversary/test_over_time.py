"""Sums over time: what a coalition computes from several releases and its own vectors, by the kit's own algebra.

The site's rule (`site.determined`) is held to it on random histories; and the histories of the review, which a rule that
forgets what a party knows of itself lets pass, are found.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Sequence

import numpy as np
import pytest

from adversary.knowledge import Form, _functionals
from blindbayes.site.determined import Question, find_determined


def determined(sums: Sequence[str], coalition: Collection[str]) -> set[str]:
    """The sites whose own vector follows from these sums for whoever knows the vectors of the coalition."""
    forms: list[Form] = [{("x", site): 1 for site in each} for each in sums]
    found = _functionals(forms, lambda atom: atom[1] in coalition)
    return {next(iter(each)) for each in found if len(each) == 1}


def opened(past: Sequence[str], now: str, most: int) -> set[tuple[str, tuple[str, ...]]]:
    """(site, coalition) for what the new sum opens and the past ones did not."""
    sites = sorted(set("".join((*past, now))))
    coalitions = [each for size in range(most + 1) for each in itertools.combinations(sites, size)]
    return {(site, who) for who in coalitions for site in determined((*past, now), who) - determined(past, who)}


REVIEW = [(("abc",), "abd"), (("abc", "abd"), "acd"), (("abcd",), "abce"), (("abcdeg",), "abcdef")]


@pytest.mark.parametrize(("past", "now"), REVIEW)
def test_the_histories_of_the_review_open_a_site_to_one_other(past: tuple[str, ...], now: str) -> None:
    assert opened(past, now, 1)
    if past != ("abc", "abd"):
        assert not opened(past, now, 0)  # to nobody who forgets its own vector: what the rule asked before


def test_the_sites_rule_sees_what_the_kit_sees() -> None:
    """Random histories of up to five sums over six sites, everybody surviving; one and two colluders."""
    rng = np.random.default_rng(12)
    seen = {True: 0, False: 0}
    for _ in range(150):
        rosters = [
            "".join(sorted(rng.choice(list("abcdef"), rng.integers(3, 7), replace=False))) for _ in range(rng.integers(2, 6))
        ]
        *past, now = rosters
        for colluders in (1, min(2, len(now) - 2)):
            own = {site: frozenset((site,)) for site in now}
            question = Question([frozenset(each) for each in past], own, {}, len(now), colluders)
            expected = bool(opened(past, now, colluders))
            assert (find_determined(question) is not None) == expected, (rosters, colluders)
            seen[expected] += 1
    assert min(seen.values()) > 20
