"""Studies and codebooks from forms: every rule at its field."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from blindbayes.agent.writing import WrittenDraft, compose, edited_codebook, is_wordy, read_codebook
from blindbayes.codebook import Categorical, Codebook, Numeric, Text
from blindbayes.data.infer import draft_codebook
from blindbayes.errors import BlindbayesError
from blindbayes.net.identity import Identity
from blindbayes.study import checks
from blindbayes.study.form import fields_of
from support.sites import BOOK

NAMES = ("north", "south", "west")


CARDS = [Identity.generate(name).card for name in NAMES]


BINNED = Codebook(
    "class", ("ill", "well"), (Categorical("colour", ("red", "blue")), Numeric("age", 0, 120, bins=4)), max_rows=9000
)


WORDS = Codebook("class", ("ill", "well"), (Text("note", words=("a", "b"), model="multinomial"),), max_rows=9000)


def draft(kind: str = "rows", book: Codebook = BOOK, sites: tuple[str, ...] = NAMES, **texts: str) -> WrittenDraft:
    given = {f"party__{name}": "yes" for name in sites} | texts
    return WrittenDraft(title="Readmission", kind=kind, codebook=book.to_toml(), texts=given)  # type: ignore[arg-type]


SPLIT = {"holder__0": "north", "holder__1": "south", "columns__labelled": "north", "options__queries": "500"}


RULES: dict[Any, tuple[WrittenDraft, str, str]] = {
    checks._require_types: (draft(deadlines__join="soon"), "deadlines__join", "a number"),
    checks._require_protocol: (draft(protocol="class_sums"), "protocol", "protocols of this kind"),
    checks._require_features: (
        draft("columns", WORDS, NAMES[:2], columns__n_rows="9", **SPLIT),
        "codebook",
        "feature 'note' is text",
    ),
    checks._require_label_epsilon: (
        draft("columns", BINNED, NAMES[:2], columns__n_rows="400", privacy__label_epsilon="-1", **SPLIT),
        "privacy__label_epsilon",
        "epsilon",
    ),
    checks._require_delta: (
        draft(privacy__epsilon="1", privacy__delta="0.5", privacy__expected_rows="900"),
        "privacy__delta",
        "delta",
    ),
    checks._require_declared_codebook: (
        draft(privacy__epsilon="1", book=Codebook("class", ("a", "b"), BOOK.features, max_rows=90, provenance="inferred")),
        "codebook",
        "inferred from training data",
    ),
    checks._require_persons: (draft(privacy__rows_per_person="3"), "privacy__rows_per_person", "does not apply"),
    checks._require_weights: (draft(estimation__class_weight="dead = 2"), "estimation__class_weight", "not a class"),
    checks._require_duplicates: (draft("join", study__duplicates="twice"), "study__duplicates", "one of join, first, reject"),
    checks._require_min_cell: (
        draft(protocol="private_ratio", options__queries="9", limits__min_cell="7"),
        "limits__min_cell",
        "does not apply to private_ratio",
    ),
    checks._require_held_out: (
        draft(protocol="private_ratio", options__queries="9", estimation__held_out="0.2"),
        "estimation__held_out",
        "does not apply to private_ratio",
    ),
    checks._require_options: (
        draft("columns", BINNED, NAMES[:2], columns__n_rows="400", **{**SPLIT, "options__queries": "0"}),
        "options__queries",
        "at least 1",
    ),
}


NOT_OFFERED = {checks._require_quorum: ("columns", "limits__quorum")}  # the form lacks a field that never applies


@pytest.mark.parametrize("rule", checks.CHECKS, ids=lambda rule: rule.__name__)
def test_every_rule_of_a_study_is_an_error_at_its_field(rule: Any) -> None:
    if rule in NOT_OFFERED:
        kind, field = NOT_OFFERED[rule]
        assert field not in fields_of(kind)
        return
    written, field, text = RULES[rule]
    _, errors = compose(written, CARDS)
    assert any(text in each for each in errors[field]), errors


def test_all_that_is_wrong_is_said_at_once() -> None:
    texts = {"privacy__epsilon": "-1", "limits__min_rows": "x", "estimation__alpha": "0", "deadlines__step": "-4"}
    _, errors = compose(draft(sites=("north",), **texts), CARDS)
    assert {"privacy__epsilon", "limits__min_rows", "estimation__alpha", "deadlines__step", "parties"} <= set(errors)
    _, errors = compose(draft("columns", BINNED, NAMES[:2]), CARDS)
    assert {"columns__labelled", "columns__n_rows", "holds"} <= set(errors)


def test_the_value_other_of_a_draft_can_be_removed_like_any_value() -> None:
    """A draft from the table lists `other` for rare values; without it in the list the form refused the column."""
    book = Codebook("class", ("ill", "well"), (Categorical("colour", ("red", "blue", "other"), other="other"),))
    for listed, other in (("red\nblue\ngreen", None), ("red\nother", "other")):
        made = read_codebook(edited_codebook(book.to_toml(), {"column__0__keep": "yes", "column__0__values": listed}))
        assert made.features == (Categorical("colour", tuple(listed.split()), other=other),)


def test_a_draft_leaves_formulas_out_and_points_at_free_text(tmp_path: Path) -> None:
    notes = ["", '=HYPERLINK("http://x.example")', "red", "@SUM(A1)"] * 10
    remarks = ["fell in the bath at night again", "no", "yes", "call 0170 5554321"] * 10
    table = pa.table({"class": ["ill", "well"] * 20, "note": notes, "remark": remarks, "colour": ["red", "blue"] * 20})
    made = draft_codebook(table, "class", max_rows=1000)
    assert "formulas" in made.left_out["note"]
    with pytest.raises(BlindbayesError, match="may be a formula"):
        Codebook("class", ("ill", "well"), (Categorical("note", ("=f(x)", "red")),))
    assert [any(map(is_wordy, each.values)) for each in made.codebook.features] == [True, False]
