"""Every label that a SPEC lets a run open has plain words in the leak report, and every label with words stands in a SPEC."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from blindbayes.report.leakage import LABEL_WORDS, PartyView, describe_label
from blindbayes.report.spec import added_labels, protocols, read_spec

DERIVED = {"noisy_sum"}  # what "sum" reads in a study with epsilon


def labels(table: Mapping[str, Any]) -> Iterator[str]:
    """Labels of all `opened...` lists, those of tables within the table too."""
    for key, value in table.items():
        if isinstance(value, Mapping):
            yield from labels(value)
        elif key.startswith("opened"):
            yield from value


WORDS = {**added_labels(), **LABEL_WORDS}
FOUND = {name: set(labels(read_spec(name).table)) for name in protocols()}


@pytest.mark.parametrize("name", protocols())
def test_every_label_of_a_spec_has_plain_words(name: str) -> None:
    assert FOUND[name] - set(WORDS) == set()


def test_no_words_for_labels_that_nothing_opens() -> None:
    assert set(WORDS) - DERIVED == set().union(*FOUND.values())


def test_lists_in_tables_of_a_spec_are_read_too() -> None:
    assert set(labels({"opened": ["sum"], "maximum": {"opened": ["maximum"]}})) == {"sum", "maximum"}
    assert (FOUND["oblivious_sum"], FOUND["private_maximum"]) == ({"sum"}, {"maximum"})
    assert FOUND["opened_ratio"] > {"probabilities_and_counts", "noisy_probabilities"}
    assert FOUND["class_sums"] == set()


@pytest.mark.parametrize("label", sorted(WORDS))
def test_the_report_says_the_words_and_not_the_label(label: str) -> None:
    assert PartyView("bank", (), (label,)).plain == (f"It learned {WORDS[label]}.",)
    assert describe_label(label) != label.replace("_", " ")
    assert len(set(WORDS.values())) == len(WORDS)
