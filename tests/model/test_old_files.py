"""Files that the package wrote before schemes, in format1/, with what they said then: they load, and say the same."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from blindbayes import Codebook, load

FOLDER = Path(__file__).parent / "format1"
SAID = json.loads((FOLDER / "said.json").read_text())


def test_an_old_codebook_has_the_hash_that_it_had() -> None:
    assert Codebook.from_toml(FOLDER / "codebook.toml").sha256 == SAID["codebook"]


@pytest.mark.parametrize("name", ["model", "private"])
def test_an_old_model_answers_as_it_did(name: str) -> None:
    model = load(FOLDER / f"{name}.json")
    rows = pd.DataFrame(SAID["rows"])[list(model.codebook_.names)]
    assert np.allclose(model.predict_proba(rows), SAID[name], rtol=1e-12, atol=0)
    assert hasattr(model, "statement_") == (name == "private")
