"""Sums over time: what a coalition computes from several releases and its own vectors, by the kit's own algebra.

The site's rule (`site.determined`) is held to it on random histories; and the histories of the review, which a rule that
forgets what a party knows of itself lets pass, are found.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from adversary.knowledge import Form, _functionals
from blindbayes.site import difference
from blindbayes.site.determined import Question, find_determined
from blindbayes.site.policy import Policy


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


def test_no_walk_of_rosters_that_every_site_lets_pass_opens_a_site_to_two_others() -> None:
    """Each site knows the sums that it was in. Before, one colluder was counted for a sum of three, whoever was not in it."""
    rng = np.random.default_rng(5)
    longest = 0
    for _ in range(40):
        past: list[str] = []
        for _ in range(6):
            now = "".join(sorted(rng.choice(list("abcdefg"), rng.integers(3, 8), replace=False)))
            own = {site: frozenset((site,)) for site in now}
            study: Any = SimpleNamespace(setting=SimpleNamespace(contributors=now, quorum_size=len(now)))
            most = difference.colluders(Policy(), study)
            seen = ([frozenset(each) for each in past if site in each] for site in now)
            if all(find_determined(Question(equations, own, {}, len(now), most)) is None for equations in seen):
                past.append(now)
        longest = max(longest, len(set(past)))
        for site, size in itertools.product("abcdefg", range(3)):
            sums = sorted({each for each in past if site in each})
            for who in itertools.combinations("abcdefg", size):
                for read in determined(sums, who):
                    assert any(set(each) <= {read, *who} for each in sums), (past, who, read)  # n - 1 of a sum read the last
    assert longest > 2
