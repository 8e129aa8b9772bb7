"""Site policy fails closed; the difference rule is compared with brute force."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from blindbayes.codebook import Categorical, Codebook
from blindbayes.errors import LedgerError, PrivacyError
from blindbayes.site.audit_log import AuditLog
from blindbayes.site.determined import Question, find_determined
from blindbayes.site.difference import Data, PastSum, require_independent
from blindbayes.site.policy import Policy, require_rate, require_rows, require_study
from blindbayes.storage.chain import GENESIS
from blindbayes.study.file import Party, Privacy, StudyFile, Thresholds
from support.sites import paper_policy

BOOK = Codebook("class", ("a", "b"), (Categorical("colour", ("red", "blue")),))
IDS = {name: f"{number:064x}" for number, name in enumerate(("north", "south", "west", "east"), 1)}


def study(names: tuple[str, ...] = ("north", "south", "west"), **changes: Any) -> StudyFile:
    fields: dict[str, Any] = {
        "title": "t",
        "parties": tuple(Party(name, IDS[name]) for name in names),
        "codebook": BOOK.to_dict(),
        "hosts": {"server": names[0]},
    }
    return StudyFile(**{**fields, **changes})


def state(
    data: str = "d0", classes: str = "c0", codebook: str = BOOK.sha256, columns: tuple[str, ...] = ("class", "colour")
) -> Data:
    return Data(codebook, frozenset(columns), data, classes)


def past(*names: str, data: Data | None = None) -> PastSum:
    return PastSum(frozenset(IDS[name] for name in names), data or state())


@pytest.mark.parametrize(
    ("policy", "change", "message"),
    [
        (Policy(protocols=("ring_sum",)), {}, "does not allow"),
        (Policy(), {"protocol": "reference", "hosts": {"collector": "north"}}, "does not allow"),
        (
            paper_policy(),
            {"protocol": "chain_sum", "hosts": {"builder": "north"}, "options": {"toy_keys": True, "key_bits": 256}},
            "toy keys",
        ),
        (Policy(exact_sums=False), {}, "no exact sum"),
        (Policy(min_parties=4), {}, "at least 4"),
        (Policy(max_epsilon_per_run=0.5), {"privacy": Privacy(epsilon=1.0)}, "at most 0.5"),
        (Policy(require_all_signatures=True), {}, "signatures"),
        (Policy(), {"privacy": Privacy(epsilon=1.0, delta=1e-3)}, "delta"),
    ],
)
def test_what_no_rule_allows_is_refused(policy: Policy, change: dict[str, Any], message: str) -> None:
    with pytest.raises(PrivacyError, match=message):
        require_study(policy, study(**change))


def test_the_strict_defaults_allow_the_default_study() -> None:
    require_study(Policy(), study())
    require_rows(Policy(), study(), 10)


def test_too_few_rows_and_too_many_runs_are_refused() -> None:
    with pytest.raises(PrivacyError, match="fewer rows") as caught:
        require_rows(Policy(), study(), 7)
    assert "7" not in str(caught.value)
    with pytest.raises(PrivacyError, match="fewer rows"):
        require_rows(Policy(), study(thresholds=Thresholds(min_rows=100)), 50)
    require_rate(Policy(max_runs_per_day=2), [0.0, 99_000.0], 100_000.0)
    with pytest.raises(PrivacyError, match="runs a day"):
        require_rate(Policy(max_runs_per_day=2), [99_000.0, 99_001.0], 100_000.0)
    with pytest.raises(PrivacyError, match="runs a day"):
        require_rate(Policy(max_runs_per_day=2), [99_000.0, 900_000.0], 100_000.0)  # a clock that was set back


def independent(new: StudyFile, *earlier: PastSum, policy: Policy | None = None, data: str = "d0") -> None:
    require_independent(policy or Policy(), new, IDS["north"], state(data), earlier)


def test_the_same_sum_again_is_harmless() -> None:
    independent(study(), past("north", "south", "west"))


def test_a_sum_with_one_site_less_or_more_is_refused() -> None:
    four = study(("north", "south", "west", "east"), thresholds=Thresholds(quorum=4))
    with pytest.raises(PrivacyError, match="single site"):
        independent(four, past("north", "south", "west"))
    with pytest.raises(PrivacyError, match="single site"):
        independent(study(), past("north", "south", "west", "east"))


def test_a_quorum_that_would_allow_it_is_refused() -> None:
    names = ("north", "south", "west", "east")
    independent(study(names, thresholds=Thresholds(quorum=3)))
    with pytest.raises(PrivacyError, match="quorum of all"):
        independent(study(names, thresholds=Thresholds(quorum=3)), past(*names))
    independent(study(names, thresholds=Thresholds(quorum=4)), past(*names))


def test_noise_is_accounted_elsewhere() -> None:
    independent(study(privacy=Privacy(epsilon=1.0)), past("north", "south", "west", "east"))


def test_changed_data_would_open_the_change() -> None:
    with pytest.raises(PrivacyError, match="single site"):
        independent(study(), past("north", "south", "west"), data="d1")
    with pytest.raises(PrivacyError, match="a change in the data of"):  # where all of a sum may collude, too
        independent(study(), past("north", "south", "west"), data="d1", policy=Policy(difference_colluders=5))
    independent(study(), past("north", "south", "west"), data="d1", policy=Policy(changed_data=True))
    with pytest.raises(PrivacyError, match="one exact sum"):
        independent(study(), past("north", "south", "west"), policy=Policy(repeated_exact_sums=False))


def test_another_codebook_over_the_same_columns_counts_and_over_others_does_not() -> None:
    four = ("north", "south", "west", "east")
    other = state("d7", "c0", "another", ("class", "age"))
    independent(study(), past("north", "south", "west", data=other))  # the same rows, asked otherwise
    with pytest.raises(PrivacyError, match="single site"):
        independent(study(), past(*four, data=other))
    with pytest.raises(PrivacyError, match="single site"):
        independent(study(), past("north", "south", "west", data=state("d7", "c1", "another", ("class", "age"))))
    independent(study(), past(*four, data=state("d7", "c1", "another", ("income", "age"))))


def test_of_a_run_whose_end_is_not_known_every_set_it_allowed_counts() -> None:
    names = ("north", "south", "west", "east")
    unsure = PastSum(frozenset(IDS[name] for name in names), state(), quorum_size=3, run="ab" * 16)
    with pytest.raises(PrivacyError, match=r"run abababababababab settled \(`blindbayes site unsettled`\)"):
        independent(study(names, thresholds=Thresholds(quorum=4)), unsure)
    with pytest.raises(PrivacyError, match="single site"):
        independent(study(), unsure)  # it may have been all four
    far = PastSum(frozenset(f"{number:064x}" for number in (1, 9, 10, 11, 12)), state(), quorum_size=4)
    independent(study(), far)  # whoever was in it: too little in common for a difference
    many = PastSum(frozenset(f"{number:064x}" for number in range(1, 30)), state(), quorum_size=20)
    with pytest.raises(PrivacyError, match="site unsettled"):
        independent(study(), many)


def parties(names: str, **thresholds: Any) -> StudyFile:
    """Sites a, b, c ...; a quorum of all unless said otherwise."""
    found = tuple(Party(name, f"{ord(name):064x}") for name in names)
    return study(parties=found, hosts={"server": names[0]}, thresholds=Thresholds(**({"quorum": len(names)} | thresholds)))


def refusal(me: str, now: str, *earlier: str, policy: Policy | None = None, **thresholds: Any) -> str | None:
    before = [PastSum(frozenset(f"{ord(name):064x}" for name in sites), state()) for sites in earlier]
    known = {f"{ord(name):064x}": name for name in "abcdefghij"}
    try:
        require_independent(policy or Policy(), parties(now, **thresholds), f"{ord(me):064x}", state(), before, names=known)
    except PrivacyError as error:
        return str(error)
    return None


@pytest.mark.parametrize(
    ("now", "earlier"),
    [
        ("abd", ["abc"]),
        ("acd", ["abc", "abd"]),
        ("abce", ["abcd"]),
        ("abcdef", ["abcdeg"]),
        ("abcdf", ["abcde"]),
        ("ghjxyz", ["abcdef", "defghi", "abcxyz"]),  # no two of them tell anything of one site; all four do
    ],
)
def test_a_member_that_is_replaced_is_not_opened_to_the_one_that_came(now: str, earlier: list[str]) -> None:
    """The review's a3: S1 - S2 = c - d, and d knows d. Under the rule before only equations counted, not what a party knows."""
    for me in now:
        assert refusal(me, now, *earlier) is not None
        assert refusal(me, now, *earlier, policy=Policy(difference_colluders=0)) is None  # what the rule before saw


def test_the_refusal_says_who_would_read_whom_and_what_to_change() -> None:
    said = refusal("a", "abd", "abc")
    assert said is not None
    assert "d could compute the statistics of c" in said
    assert "exactly the sites of an earlier sum (a, b, c)" in said
    assert "an epsilon" in said
    said = refusal("a", "abcd", "abcd", quorum=3)
    assert said is not None
    assert "a quorum of all 4 sites" in said


def test_two_colluders_count_in_a_small_consortium_or_where_the_policy_says_so() -> None:
    assert refusal("a", "abcdg", "abcdef") is not None  # g - e - f: e and f read g
    assert refusal("a", "abcdg", "abcdef", policy=Policy(difference_colluders=1)) is None
    # However small the new sum is: who reads need not be in it.
    assert refusal("a", "abc", "abdx") is not None  # c and x read d
    assert refusal("a", "abc", "abcdef") is not None  # d and e read f
    assert refusal("a", "abc", "abcdef", policy=Policy(difference_colluders=1)) is None
    assert refusal("a", "abc", "abcdefg") is None
    assert refusal("a", "abcdefghijkn", "abcdefghijklm") is None
    assert refusal("a", "abcdefghijkn", "abcdefghijklm", policy=Policy(difference_colluders=2)) is not None


def test_nothing_new_is_allowed_even_where_the_past_opened_too_much() -> None:
    """Sums that an older rule let through are done; the same again adds nothing."""
    assert refusal("a", "abd", "abc", "abd") is None
    assert refusal("a", "abc", "abc", "abd") is None
    assert refusal("a", "abe", "abc", "abd") is not None


def test_too_many_sets_to_compare_are_refused_with_a_way_out() -> None:
    names = "abcdefghijklmnopqrstuvwx"
    before = ["".join(name for at, name in enumerate(names) if at >> bit & 1) for bit in range(5)]
    said = refusal(names[1], "".join(names), *before, quorum=16)
    assert said is not None
    assert "a quorum of all 24 sites" in said
    assert refusal(names[1], "".join(names), *before) is None


def brute_force(equations: list[frozenset[str]], others: list[str], quorum_size: int, colluders: int) -> bool:
    """Over the rationals, every set and every coalition: does an allowed sum add a vector on few sites to the row space, other
    than itself?"""
    names = sorted({name for equation in equations for name in equation} | set(others) | {"me"})

    def rank(rows: list[list[float]]) -> int:
        return int(np.linalg.matrix_rank(np.array(rows))) if rows else 0

    def unit(which: str) -> list[float]:
        return [float(other == which) for other in names]

    old = [[float(name in equation) for name in names] for equation in equations]
    for size in range(quorum_size, len(others) + 2):
        for chosen in itertools.combinations([*others, "me"], size):
            new = [float(name in chosen) for name in names]
            if rank([*old, new]) == rank(old):
                continue
            for few in itertools.chain(*(itertools.combinations(names, few + 1) for few in range(colluders + 1))):
                if set(chosen) <= set(few):
                    continue
                beside = [*old, *(unit(name) for name in few)]
                if rank([*beside, new]) == rank(beside):
                    return True
    return False


@given(
    st.lists(st.frozensets(st.sampled_from(["a", "b", "c", "d", "x", "y", "me"]), min_size=2), max_size=4),
    st.integers(2, 5),
    st.integers(0, 3),
    st.integers(1, 4),
)
@settings(max_examples=150, deadline=None)
def test_the_difference_rule_equals_brute_force(
    equations: list[frozenset[str]], quorum_size: int, colluders: int, many: int
) -> None:
    others = ["a", "b", "c", "d"][:many]
    quorum_size = min(quorum_size, many + 1)
    adds = {name: frozenset([name]) for name in [*others, "me"]}
    found = find_determined(Question(equations, adds, {}, quorum_size, colluders))
    assert (found is not None) == brute_force(equations, others, quorum_size, colluders)


def test_the_audit_log_chains_and_notices_every_change(tmp_path: Path) -> None:
    log = AuditLog(tmp_path / "audit.log")
    assert log.head == GENESIS
    heads = [log.append("approved", study="ab"), log.append("joined", run="r1"), log.append("ended", run="r1", code=0)]
    assert log.head == heads[-1]
    assert [entry["event"] for entry in log.entries()] == ["approved", "joined", "ended"]
    assert log.verify(must_hold=heads[1]) == 3
    lines = log.path.read_text().splitlines()
    for damaged in (
        [lines[0], lines[2]],
        [lines[1], lines[0], lines[2]],
        [lines[0].replace("approved", "refused!"), *lines[1:]],
        [json.dumps({**json.loads(lines[0]), "hash": "00"}), *lines[1:]],
        ["nonsense", *lines[1:]],
    ):
        log.path.write_text("\n".join(damaged) + "\n")
        with pytest.raises(LedgerError):
            log.verify()
    log.path.write_text("\n".join(lines[:2]) + "\n")
    assert log.verify() == 2
    with pytest.raises(LedgerError, match="cut or replaced"):
        log.verify(must_hold=heads[2])  # another site has seen more


def test_a_torn_line_of_the_audit_log_is_recorded_and_does_not_count(tmp_path: Path) -> None:
    log = AuditLog(tmp_path / "audit.log")
    log.append("approved", study="ab")
    with log.path.open("ab") as file:
        file.write(b'{"number": 1, "ev')
    log.append("joined", run="r1")
    assert [entry["event"] for entry in log.entries()] == ["approved", "torn", "joined"]
    assert log.verify() == 3


@pytest.mark.parametrize("change", ["one row", "another precision", "other names"])
def test_no_change_of_its_own_data_lets_a_site_help_to_read_another(change: str) -> None:
    """East takes west's place among them: it had west's statistics up to the row, or the grid, that changed at north."""
    later = {
        "one row": state("d1", "c1"),
        "another precision": replace(state("d1", "c0", "another"), tables={"colour": "t1"}),
        "other names": state("d1", "c0", "another", ("outcome", "hue")),
    }[change]
    replaced, first = study(("north", "south", "east")), replace(state(), tables={"colour": "t0"})
    with pytest.raises(PrivacyError, match="single site"):
        require_independent(Policy(), replaced, IDS["north"], later, [past("north", "south", "west", data=first)])
    elsewhere = state("d1", "c7", "another", ("outcome", "hue"))
    require_independent(Policy(), replaced, IDS["north"], elsewhere, [past("north", "south", "west")])
