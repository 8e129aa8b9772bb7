"""Small counts: hidden after the noise, never before it, and never in an exact sum."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from blindbayes import Estimation, Limits, Privacy, RowStudy
from blindbayes.codebook import Categorical, Codebook, Numeric
from blindbayes.crypto.coins import Coins
from blindbayes.data import count_table
from blindbayes.errors import ConfigError
from blindbayes.study.tasks.sum_plan import Sum
from support.studies import make_study

BOOK = Codebook(
    "class",
    ("ill", "well", "rare"),
    (Categorical("colour", ("red", "blue", "green", "grey")), Numeric("age", 0, 120)),
    max_rows=100_000,
)
LEAST = 60


def sources() -> dict[str, pd.DataFrame]:
    """Three parties; `green` is rare in every class, and so is the class `rare`."""
    rng = np.random.default_rng(5)
    frames = {}
    for name in ("north", "south", "west"):
        label = rng.choice(BOOK.classes, 500, p=(0.5, 0.49, 0.01))
        colour = rng.choice(("red", "blue", "green", "grey"), 500, p=(0.4, 0.4, 0.02, 0.18))
        frames[name] = pd.DataFrame({"class": label, "colour": colour, "age": rng.integers(0, 121, 500).astype(float)})
    return frames


def test_noisy_counts_below_the_least_are_published_as_zero(tmp_path: Path) -> None:
    found = {
        least: RowStudy(BOOK, privacy=Privacy(epsilon=4.0, expected_rows=1500), limits=Limits(min_cell=least)).simulate(
            sources(), coins=Coins.seeded(bytes(32))
        )
        for least in (0, LEAST)
    }
    plain, hidden = found[0].statistics, found[LEAST].statistics
    assert 0 < plain.counts["colour"][0, 2] < LEAST  # the case is there
    assert 0 < plain.class_counts[2] < LEAST
    assert list(hidden.counts["colour"][:2, 2]) == [0, 0]
    assert hidden.class_counts[2] == 0
    assert not hidden.counts["colour"][2].any()
    assert hidden.class_counts[:2] == pytest.approx(plain.class_counts[:2], rel=0.1)
    for count in (*hidden.class_counts, *hidden.counts["colour"].ravel()):
        assert count == 0 or count >= LEAST
    large = plain.counts["colour"][:2, (0, 1, 3)]
    assert hidden.counts["colour"][:2, (0, 1, 3)] == pytest.approx(large, rel=0.2)
    predicted = found[LEAST].model.predict_proba(sources()["north"].drop(columns="class"))
    assert np.isfinite(predicted).all()
    assert f"Noisy counts below {LEAST}" in found[LEAST].statement
    assert "Noisy counts below" not in found[0].statement
    assert (found[LEAST].save(tmp_path / "release") / "model.json").exists()


def test_what_each_party_sends_does_not_know_of_it() -> None:
    frame = sources()["north"]
    vectors = []
    for least in (0, LEAST):
        study = RowStudy(BOOK, privacy=Privacy(epsilon=4.0, expected_rows=1500), limits=Limits(min_cell=least))
        planned = Sum.make(study, ("north", "south", "west"))
        statistics = count_table(frame, planned.counting)
        vectors.append(planned.contribution(statistics, Coins.seeded(bytes(32))))
    assert np.array_equal(*vectors)


@pytest.mark.parametrize(
    "fields", [{"epsilon": 1.0, "protocol": "opened_ratio"}, {"kind": "columns", "protocol": "noisy_histograms"}]
)
def test_min_cell_of_a_protocol_without_a_floor_is_refused(fields: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match="min_cell"):
        make_study(BOOK, **fields, min_cell=5)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="min_cell"):
        RowStudy(BOOK, privacy=Privacy(epsilon=1.0), limits=Limits(min_cell=-1))


@pytest.mark.parametrize("estimation", [Estimation(held_out=0.2), Estimation(folds=3)])
def test_no_evaluation_opens_small_cells_of_a_study_with_a_floor(estimation: Estimation) -> None:
    """The sums of an evaluation and of every fold are exact: nothing in them is suppressed."""
    with pytest.raises(ConfigError, match="with min_cell leave both out"):
        RowStudy(BOOK, limits=Limits(min_cell=5), estimation=estimation)


def test_a_number_of_a_small_class_is_hidden_with_its_count() -> None:
    book = Codebook("class", BOOK.classes, (Numeric("income", 0, 20_000),), max_rows=100_000)
    frames = {
        name: frame.assign(income=frame["age"] * 100).drop(columns=["colour", "age"]) for name, frame in sources().items()
    }
    study = RowStudy(book, privacy=Privacy(epsilon=4.0, expected_rows=1500), limits=Limits(min_cell=LEAST))
    plan = Sum.make(study, tuple(frames)).plan
    assert plan is not None
    (cut,) = plan.tables.encodings
    assert cut.kind == "cells"
    found = study.simulate(frames, coins=Coins.seeded(bytes(32)))
    cells = np.add.reduceat(found.statistics.counts["income"], cut.edges[:-1], axis=1)
    assert found.statistics.class_counts[2] == 0
    assert not cells[2].any()
    assert ((cells[:2] == 0) | (cells[:2] >= LEAST)).all()
    assert (cells[:2] > 0).sum() > 4
    assert np.isfinite(found.model.predict_proba(frames["north"].drop(columns="class"))).all()
