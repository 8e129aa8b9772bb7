"""A column with a value for each person, honest software and no noise: one answer each tells everybody's class.

Sites refuse such a study by default: without an epsilon they ask for a least cell, which hides counters of few people.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from blindbayes.agent import preview
from blindbayes.agent.approvals.summary import require_study
from blindbayes.codebook import Categorical, Codebook
from blindbayes.errors import PrivacyError
from blindbayes.study import Study
from blindbayes.study.agreement import Holdings
from blindbayes.study.file import StudyFile
from blindbayes.study.roster import Party
from blindbayes.testing.loopback import open_policy
from support.studies import make_columns_study
from support.two_party import coins

PEOPLE, ROWS = 60, 1200


def book_of(classes: int) -> Codebook:
    rooms = tuple(f"r{at}" for at in range(PEOPLE + 1))
    features = (Categorical("room", rooms), Categorical("ward", ("0", "1")))
    return Codebook("hiv", tuple(f"c{at}" for at in range(classes)), features)


def study_of(classes: int, way: str, **fields: Any) -> Study:
    """The author's weights offset the class counts, so that one person decides an answer."""
    options: dict[str, Any] = {"queries": 1000}
    if way != "aligned":
        options |= {"join": way, "min_overlap": 10}
        fields |= {"kind": "join", "key": "id", "duplicates": "first"}
    sizes = {f"c{at}": ROWS // 8 if at else ROWS - ROWS // 8 * (classes - 1) for at in range(classes)}
    weights = {name: (size + PEOPLE + 1) / size for name, size in sizes.items()}
    return make_columns_study(book_of(classes), options=options, **fields, class_weight=weights)


def as_file(study: Study, way: str) -> StudyFile:
    parties = tuple(Party(name, (bytes([at]) * 32).hex()) for at, name in enumerate(("clinic", "gym"), 1))
    held = Holdings({"clinic": (), "gym": ("room", "ward")}, ("clinic",), ROWS if way == "aligned" else None)
    if way != "aligned":
        study = study.replace(options={**study.options, "bounds": {"clinic": 4096, "gym": 4096}})
    return StudyFile.make(study, "rooms", parties, columns=held)


def read(classes: int, way: str, holder: str, **fields: Any) -> tuple[int, float]:
    """How many of `PEOPLE` classes the gym reads with one charged instance each, and what the largest share would give."""
    rng = np.random.default_rng(1)
    label = np.array(["c0"] * ROWS, dtype=object)
    others = rng.choice(ROWS, ROWS // 8 * (classes - 1), replace=False)
    label[others] = [f"c{1 + at % (classes - 1)}" for at in range(len(others))]
    groups = [np.flatnonzero(label == f"c{at}") for at in range(classes)]
    people = np.concatenate([rng.choice(group, PEOPLE // classes, replace=False) for group in groups])
    room = np.array(["r0"] * ROWS, dtype=object)
    room[people] = [f"r{at + 1}" for at in range(len(people))]
    tables = {"clinic": pd.DataFrame({"hiv": label}), "gym": pd.DataFrame({"room": room, "ward": rng.choice(["0", "1"], ROWS)})}
    if way != "aligned":
        tables = {name: frame.assign(id=[f"p{at}" for at in range(ROWS)]) for name, frame in tables.items()}
    tables = tables if holder == "first" else dict(reversed(tables.items()))
    model = study_of(classes, way, **fields).simulate(tables, coins=coins(f"{way} {classes}")).model
    asked = pd.DataFrame({"room": [f"r{at + 1}" for at in range(len(people))], "ward": None})
    found = np.asarray(model.predict({"clinic": pd.DataFrame(index=range(len(people))), "gym": asked}))
    return int((found == label[people]).sum()), len(people) / classes


CASES = [(2, "aligned", "first"), (3, "aligned", "last"), (2, "left", "first"), (2, "inner", "last")]


@pytest.mark.parametrize(("classes", "way", "holder"), CASES)
def test_a_least_cell_leaves_the_reader_of_answers_at_chance(classes: int, way: str, holder: str) -> None:
    exact, chance = read(classes, way, holder)
    assert exact > 1.4 * chance  # the attack: without noise or a least cell
    assert read(classes, way, holder, min_cell=10)[0] == chance  # one answer for all, whatever their classes


@pytest.mark.parametrize("way", ["aligned", "left", "inner"])
def test_a_site_refuses_a_study_without_noise_or_a_least_cell_and_names_both_ways_out(way: str) -> None:
    with pytest.raises(PrivacyError, match=r"an epsilon, of at most 3, or for limits\.min_cell of at least 10"):
        require_study(open_policy(), as_file(study_of(2, way), way))
    for fields in ({"min_cell": 10}, {"epsilon": 1.0}, {"epsilon": 10.0, "min_cell": 10}):
        require_study(open_policy(), as_file(study_of(2, way, **fields), way))
    require_study(open_policy(min_cell=0), as_file(study_of(2, way), way))  # a site may decide otherwise


def test_an_epsilon_that_hides_nobody_does_not_stand_in_place_of_a_least_cell() -> None:
    """Ten, the most that a site allows by default, is an epsilon by name: it gave nearly all classes away."""
    exact, chance = read(2, "aligned", "first", epsilon=10.0)
    assert exact > 1.4 * chance
    assert read(2, "aligned", "first", epsilon=10.0, min_cell=10)[0] <= 1.2 * chance
    with pytest.raises(PrivacyError, match="of at most 3"):
        require_study(open_policy(), as_file(study_of(2, "aligned", epsilon=10.0), "aligned"))


def test_study_check_names_fine_columns_and_the_authors_weights() -> None:
    told = preview.check(as_file(study_of(2, "aligned", min_cell=10), "aligned"))["read_closely"]
    assert [line.split(":")[0].split(" ")[0] for line in told] == ["room", "class_weight"]
    assert "ward" not in told[0]
    assert "read_closely" not in preview.check(as_file(study_of(2, "aligned", epsilon=1.0), "aligned"))
