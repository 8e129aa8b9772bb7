"""A party of an inner join, with columns on both sides, that brings other people to the second run than to the first.

All tables of a training share the noise of their class counts. Before, if the tables of the second run counted somebody whom
those of the first did not, that noise fell out of the difference of what they add up to. Now a cell for missing values has
noise of its own, and both runs must count the same rows of every class: one identifier asked for in several bins of one run,
which counts several times there, shows by that.
"""

import numpy as np
import pandas as pd
import pytest

from blindbayes.codebook import Categorical, Codebook
from blindbayes.crypto.psi import cuckoo
from blindbayes.errors import IntegrityError
from blindbayes.protocols.private_join.sums import roles
from blindbayes.protocols.private_join.sums.inputs import Entries
from blindbayes.protocols.shared_training.shared_model import roles as model
from blindbayes.study.tasks import joined as scheme
from support.columns import without_missing_cells
from support.studies import make_columns_study, make_study
from support.two_party import coins

MANY, CHOSEN = 3000, 40
BOOK = Codebook("y", ("no", "yes"), (Categorical("plan", ("s", "m")), Categorical("own", ("0", "1"))))
TELECOM = pd.DataFrame({"id": [f"p{at}" for at in range(MANY)], "plan": ["s", "m"] * (MANY // 2)})
BANK = pd.DataFrame({"id": TELECOM["id"], "own": "0", "y": ["yes"] * CHOSEN + ["no", "yes"] * ((MANY - CHOSEN) // 2)})


def train(telecom=TELECOM, **options):
    facts = {"key": "id", "kind": "join", "duplicates": "first", "epsilon": 0.05, "label_epsilon": False}  # noise alone
    study = make_columns_study(BOOK, **facts, options=options)
    return study.simulate({"bank": BANK, "telecom": telecom}, coins=coins("train"))


@pytest.fixture
def noisy_rows(monkeypatch):
    """Of each feature, how many rows of class yes its table adds up to, with the noise of both: words as both enter them."""
    entered, genuine = {}, model.with_noise

    def watched(share, noise, layout):
        words = genuine(share, noise, layout)
        name = layout.fields[0].feature.name
        total = entered[name] = entered.get(name, np.uint64(0)) + words
        fields = layout.fields[0].counts
        cells = [int(total[1, field.word]) >> field.shift & (1 << field.width) - 1 for field in fields]
        half = [1 << field.width - 1 for field in fields]
        found[name] = sum((cell + middle) % (2 * middle) - middle for cell, middle in zip(cells, half, strict=True))
        return words

    found = {}
    monkeypatch.setattr(model, "with_noise", watched)
    return found


def left_out(monkeypatch, liar, first, second):
    """A party that brings its chosen people to one of the two runs only."""
    genuine = scheme._entries

    def lying(join, party, source, digests):
        brought = genuine(join, party, source, digests)
        if party != liar:
            return brought
        chosen = {digests[at] for at in range(CHOSEN)}

        def without(entries):
            kept = [bytes(item.tobytes()) not in chosen for item in entries.items]
            return Entries(entries.items[kept], entries.words[kept])

        return tuple(without(each) if lacks else each for each, lacks in zip(brought, (first, second), strict=True))

    monkeypatch.setattr(scheme, "_entries", lying)


def unchecked(monkeypatch):
    def silent(*given):
        return None
        yield

    for name in ("ask_equality", "answer_equality"):
        monkeypatch.setattr(roles, name, silent)


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("planned", [True, False])
def test_without_the_comparison_only_a_cell_for_missing_values_hides_who_joined(known, planned, noisy_rows, monkeypatch):
    """People who are left out of one run are as if their values were missing there."""
    unchecked(monkeypatch)
    left_out(monkeypatch, "bank", first=True, second=False)
    if not planned:
        without_missing_cells(monkeypatch)
    train(TELECOM if known else TELECOM[CHOSEN:])
    off = abs(noisy_rows["own"] - noisy_rows["plan"] - CHOSEN * known)
    assert (off > 4) == planned  # roundings alone stay below; noise has a deviation above 50


@pytest.mark.parametrize(("liar", "lacks"), [("bank", "first"), ("telecom", "second")])
def test_whoever_brings_other_people_to_the_second_run_is_caught_before_anything_is_used(liar, lacks, noisy_rows, monkeypatch):
    left_out(monkeypatch, liar, first=lacks == "first", second=lacks == "second")
    with pytest.raises(IntegrityError):
        train()
    assert not noisy_rows


def test_people_who_are_in_no_join_may_be_left_out_of_a_run(noisy_rows, monkeypatch):
    left_out(monkeypatch, "bank", first=True, second=False)
    assert train(TELECOM[CHOSEN:]).model


def test_whoever_gives_people_another_class_in_the_second_run_is_caught(monkeypatch):
    genuine = scheme._entries

    def lying(join, party, source, digests):
        first, second = genuine(join, party, source, digests)
        if party == "bank":
            first.words[:CHOSEN] = [0, 1]
        return first, second

    monkeypatch.setattr(scheme, "_entries", lying)
    with pytest.raises(IntegrityError):
        train()


@pytest.mark.parametrize("liar", ["bank", "telecom"])
def test_one_person_asked_for_in_three_bins_of_a_run_is_caught(liar, monkeypatch):
    genuine = roles._placed

    def thrice(session, shape, entries, source):
        items, table = genuine(session, shape, entries, source)
        if (shape.labels == 1) == (liar == "bank"):  # the run in which it brings rows
            three = cuckoo.bins_of(session, entries.items, shape.bins)
            at = np.flatnonzero((table[three] == len(entries)).sum(axis=1) == 2)[0]  # nobody else stands there
            items[three[at]], table[three[at]] = entries.items[at], at
        return items, table

    monkeypatch.setattr(roles, "_placed", thrice)
    with pytest.raises(IntegrityError):
        train()


LEFT = {"minimum": {"min_overlap": 10}, "estimate": {"overlap_epsilon": 1.0}, "noise": {"epsilon": 0.05}}


@pytest.mark.parametrize("class_alone", [False, True], ids=["left", "inner, class alone"])
@pytest.mark.parametrize("why", LEFT)
@pytest.mark.parametrize("bins", [2, 3])
def test_a_row_holder_that_asks_for_everybody_in_several_bins_is_caught(why, class_alone, bins, monkeypatch):
    """Before, where the class holder brought no columns to share, a person counted three times for the minimum and in noise."""
    genuine = roles._placed

    def tripled(session, shape, entries, source):
        items, table = genuine(session, shape, entries, source)
        if shape.labels == 2:  # the telecom's rows
            for at, three in enumerate(cuckoo.bins_of(session, entries.items, shape.bins)):
                items[three[:bins]], table[three[:bins]] = entries.items[at], at
        return items, table

    monkeypatch.setattr(roles, "_placed", tripled)
    fields = dict(LEFT[why])
    book = Codebook("y", ("no", "yes"), (Categorical("plan", ("s", "m")), *(() if class_alone else BOOK.features[1:])))
    bank = BANK[:60].drop(columns="own") if class_alone else BANK[:60]
    noise = {"epsilon": 5.0} if fields.pop("epsilon", None) else {}
    options = {"join": "inner" if class_alone else "left", **fields}
    study = make_study(book, kind="join", key="id", duplicates="first", options=options, **noise)
    with pytest.raises(IntegrityError):
        study.simulate({"bank": bank, "telecom": TELECOM[:60]}, coins=coins("tripled"))
    monkeypatch.setattr(roles, "_placed", genuine)
    assert study.simulate({"bank": bank, "telecom": TELECOM[:60]}, coins=coins("tripled")).model


def test_whoever_leaves_out_as_many_as_it_counts_twice_more_is_caught_by_their_classes(monkeypatch):
    """A left join has a second run where an estimate of the joined identifiers is opened. Their number alone would be right."""
    genuine, brought, classes = roles._placed, scheme._entries, {}

    def watched(join, party, source, digests):
        found = brought(join, party, source, digests)
        if party == "bank":
            classes.update(zip(map(bytes, found[0].items), found[0].words.argmax(axis=1), strict=True))
        return found

    def thrice(session, shape, entries, source):
        items, table = genuine(session, shape, entries, source)
        if shape.labels == 2:  # the telecom's rows
            three = cuckoo.bins_of(session, entries.items, shape.bins)
            at = np.flatnonzero((table[three] == len(entries)).sum(axis=1) == 2)[0]
            own = classes[bytes(entries.items[at])]
            others = [row for row in range(len(entries)) if classes[bytes(entries.items[row])] != own][:2]
            left = np.flatnonzero(np.isin(table, others))
            assert len(left) == 2
            items[left], table[left] = source.words(4).reshape(2, 2), len(entries)
            items[three[at]], table[three[at]] = entries.items[at], at
        return items, table

    monkeypatch.setattr(scheme, "_entries", watched)
    monkeypatch.setattr(roles, "_placed", thrice)
    with pytest.raises(IntegrityError):
        train(join="left", overlap_epsilon=1.0)
