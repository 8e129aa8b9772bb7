"""Codebooks as TOML: round trips, comments, files that are not overwritten."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from blindbayes import Categorical, Codebook, Numeric
from blindbayes.errors import ConfigError
from support.codebooks import FULL


def test_toml_round_trips(tmp_path: Path) -> None:
    path = tmp_path / "codebook.toml"
    text = FULL.to_toml(path)
    assert path.read_text(encoding="utf-8") == text
    back = Codebook.from_toml(path)
    assert (back, back.sha256) == (FULL, FULL.sha256)
    assert "leak" in text.splitlines()[1]
    assert not list(tmp_path.glob("*.part"))


names = st.text(st.characters(exclude_categories=("Cs", "Cc", "Cf", "Zl", "Zp")), min_size=1, max_size=12)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_any_codebook_round_trips_through_toml_and_json(data: st.DataObject) -> None:
    taken = data.draw(st.lists(names, min_size=2, max_size=5, unique_by=str.casefold))
    features = []
    for name in taken[1:]:
        if data.draw(st.booleans()):
            values = data.draw(st.lists(names, min_size=1, max_size=4, unique=True))
            features.append(Categorical(name, tuple(values), optional=data.draw(st.booleans()), description=data.draw(names)))
        else:
            low = data.draw(st.floats(-1e6, 1e6))
            precision = data.draw(st.sampled_from([1, 0.5, 0.01, 1e-6, 10, 3]))
            features.append(Numeric(name, low, low + data.draw(st.floats(0, 1e6)), precision))
    codebook = Codebook(taken[0], tuple(data.draw(st.lists(names, min_size=1, max_size=3, unique=True))), tuple(features))
    import tomllib

    assert Codebook.from_dict(tomllib.loads(codebook.to_toml())).sha256 == codebook.sha256
    assert Codebook.from_dict(json.loads(codebook.canonical())) == codebook
    assert Codebook.from_dict(codebook.to_dict()) == codebook


def test_comments_of_a_file_survive_a_rewrite(tmp_path: Path) -> None:
    path = tmp_path / "codebook.toml"
    FULL.to_toml(path)
    text = path.read_text(encoding="utf-8").replace('name = "age"', '# at admission\nname = "age" # not at birth')
    path.write_text("# agreed on 1 May\n" + text, encoding="utf-8")
    assert Codebook.from_toml(path).sha256 == FULL.sha256
    changed = msgspec.structs.replace(
        FULL,
        variance_floor=None,
        identifier=None,
        features=(*FULL.features[:2], Numeric("new", 0, 1)),
        provenance="data dictionary",
    )
    changed.to_toml(path)
    after = path.read_text(encoding="utf-8")
    assert Codebook.from_toml(path).sha256 == changed.sha256
    for comment in ("# agreed on 1 May", "# at admission", "# not at birth"):
        assert comment in after
    FULL.to_toml(path)
    assert Codebook.from_toml(path).sha256 == FULL.sha256


def test_a_file_that_is_no_toml_is_not_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "notes.toml"
    path.write_text("these = = are my notes", encoding="utf-8")
    with pytest.raises(ConfigError, match="not TOML"):
        FULL.to_toml(path)
    assert path.read_text(encoding="utf-8") == "these = = are my notes"
