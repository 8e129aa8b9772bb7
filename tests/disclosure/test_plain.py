"""Plain words of a disclosure: they follow from its typed fields, promise no more than those, and avoid terms of art."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from blindbayes.codebook import Categorical, Codebook, Numeric
from blindbayes.disclosure.plain import plain_words
from blindbayes.disclosure.value import Answers, Disclosure, Leaving, Overlap, RowSum, SumForm, Withstood
from blindbayes.study.agreement import Holdings
from blindbayes.study.file import Limits, Party, Privacy, StudyFile
from blindbayes.study.study import KINDS

BOOK = Codebook(
    "class", ("ill", "well"), (Categorical("colour", ("red", "blue")), Numeric("age", 0, 120, bins=4)), max_rows=9000
)
TERMS = re.compile(
    r"SPEC|vector|mask|noisy_sum|epsilon|delta|coalition|deviat|semi-honest|P\(|exp\(|hash|oblivious|garbled|quorum",
    re.I,
)


def study_of(kind: str, sites: int, *, limits: Limits | None = None, epsilon: float | None = None, **more: object) -> StudyFile:
    parties = tuple(Party(f"site{n}", f"{n:02x}" * 32) for n in range(1, sites + 1))
    columns = None
    if kind != "rows":
        columns = Holdings({"site1": ("colour",), "site2": ("age",)}, ("site1",), 400 if kind == "columns" else None)
    study = KINDS[kind](BOOK, privacy=Privacy(epsilon=epsilon), limits=limits or Limits(), **more)  # type: ignore[arg-type]
    return StudyFile.make(study, "t", parties, columns=columns)


JOIN = {"bounds": {"site1": 4096, "site2": 4096}, "queries": 900, "min_overlap": 10}
STUDIES = {
    "exact sum": study_of("rows", 3),
    "small cells suppressed": study_of("rows", 3, limits=Limits(min_cell=5)),
    "noisy sum": study_of("rows", 4, epsilon=1.0),
    "model in shares": study_of("rows", 3, protocol="private_ratio", options={"queries": 50}),
    "columns": study_of("columns", 2, limits=Limits(min_cell=10), options={"queries": 50}),
    "join": study_of("join", 2, limits=Limits(min_cell=10), key=("id",), duplicates="first", options=JOIN),
}


@pytest.mark.parametrize("name", STUDIES)
def test_every_kind_of_study_is_said_without_terms_of_art(name: str) -> None:
    words = plain_words(STUDIES[name].task.disclosure)
    lines = (*words.leaves, *words.learns, *words.cheating)
    assert [line for line in lines if TERMS.search(line)] == []
    assert words.leaves
    assert min(len(words.learns), len(words.cheating)) >= 2


def test_the_sentences_follow_from_the_facts() -> None:
    exact = plain_words(STUDIES["exact sum"].task.disclosure)
    assert "exact totals" in exact.learns[0]
    assert any("a total of one shows that such a person exists" in line for line in exact.learns)
    floored = plain_words(STUDIES["small cells suppressed"].task.disclosure)
    assert any("1 to 4 rows are withheld" in line for line in floored.learns)
    noisy = plain_words(STUDIES["noisy sum"].task.disclosure)
    assert "with random noise" in noisy.learns[0]
    assert not any("exact" in line for line in noisy.learns)
    shares = plain_words(STUDIES["model in shares"].task.disclosure)
    assert any("at most 50 answers" in line for line in shares.learns)
    assert any("site1 and site3" in line for line in shares.cheating)
    join = plain_words(STUDIES["join"].task.disclosure)
    assert "Nobody learns which people the sites share." in join.learns
    assert any("at least 10 people" in line for line in join.learns)


def test_nothing_is_promised_that_the_protocol_does_not_claim() -> None:
    opens = STUDIES["noisy sum"].task.disclosure
    assert not any("learn no more" in line for line in plain_words(replace(opens, withstands=None)).cheating)
    weak = plain_words(replace(opens, withstands=Withstood(1, 5, deviating=False, trusted="the aggregator")))
    assert any("Nothing is promised if one changes its software" in line for line in weak.cheating)
    assert any("The aggregator must stay honest" in line for line in weak.cheating)
    none = plain_words(replace(opens, leaving=Leaving.READABLE, withstands=Withstood(0, 3, deviating=False)))
    assert "readable by the site that collects them" in none.leaves[0]
    assert "can read this site's" in none.cheating[0]
    unstated = Disclosure(protocol="p", summary="s", messages=("bits under a cipher",))
    assert plain_words(unstated).leaves == ("Bits under a cipher.",)
    assert plain_words(unstated).cheating[0].startswith("Nothing is promised")


def test_matches_and_unlimited_answers_are_said() -> None:
    opens = Disclosure(
        protocol="p",
        summary="s",
        messages=(),
        answers=Answers(None, ("a", "b")),
        overlap=Overlap(10, matches_to=("a", "b")),
        leaving=Leaving.ENCRYPTED,
    )
    words = plain_words(opens)
    assert any("any number of answers" in line for line in words.learns)
    assert any("which of their people the others have too" in line for line in words.learns)
    assert not any("Nobody learns which people" in line for line in words.learns)
    exact = replace(
        opens, answers=None, overlap=None, row_sum=RowSum(SumForm.EXACT, 3), learners=("a",), leaving=Leaving.HIDDEN
    )
    assert plain_words(exact).learns[0].startswith("a learns the exact totals")
