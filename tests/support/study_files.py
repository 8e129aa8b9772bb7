"""A study file of three sites over rows, with any change."""

from __future__ import annotations

from typing import Any

from blindbayes.codebook import Categorical, Codebook
from blindbayes.study.file import Party, StudyFile
from blindbayes.testing.loopback import make_study_file

BOOK = Codebook("class", ("a", "b"), (Categorical("colour", ("red", "blue")),))
IDS = {name: f"{number:064x}" for number, name in enumerate(("north", "south", "west", "east"), 1)}


def study(names: tuple[str, ...] = ("north", "south", "west"), **changes: Any) -> StudyFile:
    fields: dict[str, Any] = {
        "title": "t",
        "parties": tuple(Party(name, IDS[name]) for name in names),
        "codebook": BOOK,
        "hosts": {"server": names[0]},
    }
    return make_study_file(**{**fields, **changes})
