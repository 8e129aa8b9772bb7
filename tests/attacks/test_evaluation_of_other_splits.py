"""What two exact sums show of one person if their studies split the same table by other identifiers.

A row is held out by a keyed hash of its person's identifier, or, if it has none, of its columns. A study whose identifier is
normalised in another way, or that has other columns, hashes other texts: of those persons alone whose identifier is written so
that the two rules differ, or who have none. With the same `held_out` the sums then differ by such a person, whose values their
difference shows.
"""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from blindbayes import Categorical, Codebook, Estimation, Numeric
from blindbayes.codebook.features import IdPart, IdRecipe
from blindbayes.data.split import Split
from blindbayes.data.table import count_table
from blindbayes.errors import PrivacyError
from support.sites import Office, bounded

NAMES = ("north", "south", "west")


def book(rule: str | None, columns: int = 1) -> Codebook:
    recipe = None if rule is None else IdRecipe((IdPart("id", rule),))  # type: ignore[arg-type]
    features = tuple(Categorical(f"f{at}", ("u", "v")) for at in range(columns))
    return Codebook("y", ("a", "b"), (*features, Numeric("n", 0, 100)), max_rows=1000, identifier=recipe)


def rows(odd: str | None) -> pd.DataFrame:
    """Return rows of which one has an identifier that is not made of digits, or none, and a class of its own."""
    frame = pd.DataFrame({"id": [str(1000 + at) for at in range(60)], "y": "a", "f0": "u", "f1": "u", "n": range(60)})
    frame.loc[len(frame)] = [odd, "b", "v", "v", 60]
    return frame


def test_the_difference_of_two_splits_is_one_person() -> None:
    salt = bytes(32)
    shown = []
    for at in range(20):
        frame = rows(f"P {at}")
        counted = [
            count_table(frame, book(rule), split=Split(0.3, False, salt), extra_columns="ignore") for rule in ("exact", "text")
        ]
        shown.append((counted[0].class_counts - counted[1].class_counts).tolist())
    assert {tuple(each) for each in shown} == {(0, 0), (0, 1), (0, -1)}  # nobody else moves


def test_the_difference_of_two_sets_of_columns_is_a_person_without_an_identifier() -> None:
    shown = []
    for at in range(20):
        frame = rows(None).assign(n=[*range(60), at])
        books = book("exact"), book("exact", columns=2)
        counted = [count_table(frame, each, split=Split(0.3, False, bytes(32)), extra_columns="ignore") for each in books]
        shown.append((counted[0].class_counts - counted[1].class_counts).tolist())
    assert {tuple(each) for each in shown} == {(0, 0), (0, 1), (0, -1)}


@pytest.mark.parametrize(
    ("first", "later", "estimation"),
    [
        (book("exact"), book("text"), Estimation(held_out=0.3)),
        (book("exact"), book(None), Estimation(held_out=0.3)),
        (book(None), book(None, columns=2), Estimation(held_out=0.3)),
        (book("exact"), book("exact", columns=2), Estimation(held_out=0.3)),
    ],
)
def test_a_site_refuses_an_exact_sum_of_another_split(
    first: Codebook, later: Codebook, estimation: Estimation, tmp_path: Path
) -> None:
    sources: dict[str, str | None] = {}
    for name in NAMES:
        rows(f"P {name}").to_csv(tmp_path / f"{name}.csv", index=False)
        sources[name] = str(tmp_path / f"{name}.csv")

    async def scenario() -> None:
        made = Office(tmp_path / "office", NAMES, rows=sources)
        for site in made.net.sites.values():
            path = site.home.folder / "site.toml"
            path.write_text(path.read_text().replace('extra_columns = "refuse"', 'extra_columns = "ignore"'))
            site.home.reload()
        async with made as office:
            ended = []
            for codebook in (first, later):
                study = office.net.make_study(codebook, title=codebook.sha256[:8], estimation=estimation)
                office.net.approve(study, runs=1)
                ended.append(await office.run(study))
            assert {run.error for run in ended[0].values()} == {None}
            refused = ended[1]["north"].error
            assert isinstance(refused, PrivacyError)
            assert "may differ by one person" in str(refused)

    bounded(scenario)
