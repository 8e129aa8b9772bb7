"""One table, one set: the rule by itself, and by brute force over everything that anybody can pool."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from blindbayes.disclosure.checks import CHECKS, RunRequest, require_all
from blindbayes.disclosure.one_set import ExactSum
from blindbayes.disclosure.policy import Policy
from blindbayes.errors import PrivacyError
from blindbayes.testing.loopback import open_policy
from support.disclosure import bound_by, exact_sum, identity, past

CHANGES = open_policy(changed_data=True)
RULE = [check for check in CHECKS if check.scope == "exact_sum"]


FOLDER = tempfile.TemporaryDirectory()  # an empty log: the binding is given


def study(names: Sequence[str], quorum: int | None = None, codebook: str = "c0") -> RunRequest:
    """A quorum of all unless said otherwise."""
    return exact_sum(names, quorum=quorum, codebook=codebook)


def refusal(
    now: RunRequest,
    *earlier: ExactSum,
    me: str = "a",
    rows: str = "d0",
    table: str = "rows",
    policy: Policy | None = None,
    **bound: Any,
) -> str | None:
    request = replace(now, identity=identity(me), vector=replace(now.exact_sum, rows=rows, table=table))
    try:
        require_all(request, bound_by(Path(FOLDER.name), *earlier, policy=policy, **bound), RULE)
    except PrivacyError as error:
        return str(error)
    return None


def test_the_first_exact_sum_may_be_over_any_sites_and_with_any_quorum() -> None:
    assert refusal(study("abcd")) is None
    assert refusal(study("abcd", quorum=3)) is None


@pytest.mark.parametrize("codebook", ["c0", "c1"])
def test_the_same_sites_may_sum_unchanged_rows_again_under_any_codebook(codebook: str) -> None:
    for times in range(1, 5):
        assert refusal(study("abc", codebook=codebook), *[past("abc")] * times) is None


ELEVEN = tuple(f"x{at}" for at in range(9))


@pytest.mark.parametrize(
    ("earlier", "now"),
    [
        ("abc", "abd"),  # a member is replaced
        ("abc", "abcd"),
        ("abcd", "abc"),
        ("abcdefg", "abc"),  # four leave together
        ("abc", "abcdefg"),  # four come together
        ("abc", "axyz"),
        ((*ELEVEN, "v"), (*ELEVEN, "m1")),
        ((*ELEVEN, "v"), (*ELEVEN, "m1", "m2")),  # an eleventh site made the old rule count one colluder less
    ],
)
@pytest.mark.parametrize("policy", [open_policy(), CHANGES], ids=["strict", "changed data allowed"])
def test_every_other_set_is_refused_and_the_refusal_names_the_ways_out(
    earlier: Sequence[str], now: Sequence[str], policy: Policy
) -> None:
    for rows in ("d0", "d1"):  # a table that changed by a few rows is the same table
        said = refusal(study(now), past(earlier), me=now[0], rows=rows, policy=policy)
        assert said is not None
        assert f"a quorum of all {len(earlier)}" in said
        assert 'unit = "record" it hides a row and not a site' in said
        assert 'unit = "party" hides a whole site' in said
        assert "another table" in said


def test_later_sums_need_a_quorum_of_all() -> None:
    assert refusal(study("abcd", quorum=3), past("abcd")) is not None
    assert refusal(study("abcd", quorum=4), past("abcd")) is None


def test_the_survivors_of_the_first_run_are_the_set() -> None:
    """d was lost in the first run of four: the survivors are bound to each other, d to nobody."""
    survived = past("abc")
    assert refusal(study("abc"), survived) is None
    assert refusal(study("abcd"), survived) is not None
    assert refusal(study("dxy"), survived, me="d") is None


def test_a_run_whose_set_is_not_known_blocks_every_exact_sum_until_it_is_settled() -> None:
    unknown = past("abcd", quorum_size=3)
    for now in ("abc", "abcd", "axyz"):
        said = refusal(study(now), unknown, policy=CHANGES)
        assert said is not None
        assert "site unsettled" in said
    assert refusal(study("axyz"), past("axyz"), unknown) is not None  # also where the table is bound already


def test_changed_rows_need_the_same_set_and_the_policys_consent() -> None:
    said = refusal(study("abc"), past("abc"), rows="d1")
    assert said is not None
    assert "changed_data" in said
    assert refusal(study("abc"), past("abc"), rows="d1", policy=CHANGES) is None
    assert refusal(study("abc"), past("abc", rows=None), rows="d1") is not None  # an older version kept no digest
    later = (past("abc"), past("abc", rows="d1"))
    assert refusal(study("abc"), *later, rows="d1") is None
    assert refusal(study("abc"), *later, rows="d0") is not None  # each change is consented to, back again too


def test_other_rows_may_be_declared_another_table_and_the_same_rows_may_not() -> None:
    assert refusal(study("axy"), past("abc"), table="year-2", rows="d1") is None
    said = refusal(study("axy"), past("abc"), table="year-2", rows="d0", policy=CHANGES)
    assert said is not None
    assert "are those of the table 'rows'" in said


def test_after_a_restore_an_unbound_table_is_in_no_exact_sum_and_a_bound_one_keeps_its_set() -> None:
    said = refusal(study("abc"), lost_at=9)
    assert said is not None
    assert "came back from a backup" in said
    assert refusal(study("abc"), past("abc"), lost_at=9) is not None  # whether the rows changed is not known
    assert refusal(study("abc"), past("abc"), lost_at=9, policy=CHANGES) is None
    assert refusal(study("abd"), past("abc"), lost_at=9, policy=CHANGES) is not None
    assert refusal(study("abc"), past("abc"), past("abc", number=10), lost_at=9) is None


def test_a_new_identity_of_a_site_is_the_same_site_where_staff_said_so() -> None:
    assert refusal(study("abz"), past("abc")) is not None
    same = {identity("c"): "south", identity("z"): "south"}
    assert refusal(study("abz"), past("abc"), same_site=same) is None
    assert refusal(study("abcz"), past("abc"), same_site=same) is not None
    assert refusal(study("abcz", quorum=3), past("abc"), same_site=same) is not None
    own = {identity("a"): "this site", identity("new"): "this site"}
    assert refusal(study(("new", "b", "c")), past("abc"), me="new", same_site=own) is None
    assert refusal(study(("new", "b", "d")), past("abc"), me="new", same_site=own) is not None


# -- by brute force --------------------------------------------------------------------------------------------------------

Rule = Callable[[str, list[frozenset[str]], frozenset[str]], bool]


def shipped(me: str, mine: list[frozenset[str]], now: frozenset[str]) -> bool:
    return refusal(study(sorted(now)), *(past(sorted(each)) for each in mine), me=me) is None


def pairs_that_differ_much(me: str, mine: list[frozenset[str]], now: frozenset[str]) -> bool:
    """A rule that looks at differences of the site's own sums, as the one before did: four or more come or leave together."""
    return all(len(now ^ each) == 0 or len(now ^ each) >= 4 for each in mine)


def ran(rule: Rule, asked: list[frozenset[str]], deviating: frozenset[str]) -> list[frozenset[str]]:
    """The studies that run: every honest member agrees, by the sums that it was in; the others agree to anything."""
    found: list[frozenset[str]] = []
    for now in asked:
        if all(rule(me, [each for each in found if me in each], now) for me in now - deviating):
            found.append(now)
    return found


def determined(sums: list[frozenset[str]], coalition: frozenset[str], sites: list[str]) -> list[str]:
    """Honest sites whose own vector follows from all sums and the coalition's vectors, where no sum holds it alone."""
    known = [[float(site in each) for site in sites] for each in sums]
    rows = np.array(known + [[float(site == other) for site in sites] for other in sorted(coalition)]).reshape(-1, len(sites))
    rank, found = np.linalg.matrix_rank(rows) if len(rows) else 0, []
    for at, site in enumerate(sites):
        if site in coalition or any(each - coalition == {site} for each in sums):
            continue
        if np.linalg.matrix_rank(np.vstack([rows, np.eye(len(sites))[at]])) == rank:
            found.append(site)
    return found


def histories(rng: random.Random, count: int) -> list[tuple[list[frozenset[str]], frozenset[str], list[str]]]:
    """Studies of disjoint groups, each with some of those who deviate; parts and unions of them; random ones; repeats."""
    found = []
    for _ in range(count):
        sites = [f"s{at}" for at in range(rng.randint(8, 14))]
        deviating = frozenset(rng.sample(sites, rng.randint(0, 4)))
        honest = rng.sample(sites, len(sites))
        groups = [frozenset(honest[at : at + 3]) - deviating for at in range(0, len(honest), 3)]
        asked = [each | set(rng.sample(sorted(deviating), rng.randint(0, len(deviating)))) for each in groups]
        asked = [each for each in asked if len(each) >= 3]
        for _ in range(12):
            if asked and rng.random() < 0.5:
                whole = sorted(rng.choice(asked))
                part = frozenset(rng.sample(whole, rng.randint(min(3, len(whole)), len(whole))))
                asked.append(part | deviating if rng.random() < 0.3 else part)
            else:
                asked.append(frozenset(rng.sample(sites, rng.randint(3, len(sites)))))
        found.append((asked, deviating, sites))
    return found


def test_whatever_is_pooled_no_honest_site_is_determined() -> None:
    """The argument of SPEC.md, over random histories in which deviating sites agree to every study; and what it replaces."""
    rng = random.Random(11)
    sums = open_before = 0
    for asked, deviating, sites in histories(rng, 120):
        done = ran(shipped, asked, deviating)
        sums += len(set(done))
        assert determined(done, deviating, sites) == []
        before = ran(pairs_that_differ_much, asked, deviating)
        open_before += bool(determined(before, deviating, sites))
    assert sums > 250
    assert open_before > 20  # the brute force sees what a rule over a site's own history misses


def test_three_sums_of_regions_and_a_nation_do_not_all_run() -> None:
    nation, north, south = frozenset("vabcxyz"), frozenset("abc"), frozenset("xyz")
    sites = sorted(nation)
    assert determined(ran(pairs_that_differ_much, [nation, north, south], frozenset()), frozenset(), sites) == ["v"]
    assert ran(shipped, [nation, north, south], frozenset()) == [nation]
    assert ran(shipped, [north, south, nation, north], frozenset()) == [north, south, north]
