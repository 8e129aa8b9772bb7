"""Recalibrated models: they name their parent, fit better, and do not repeat its statement."""

from __future__ import annotations

import json
from pathlib import Path

from blindbayes import Estimation, Privacy, RowStudy, load
from study.test_study_evaluation import BOOK, TABLES


def test_the_recalibrated_model_names_its_parent_and_fits_better(tmp_path: Path) -> None:
    import hashlib

    study = RowStudy(BOOK, estimation=Estimation(held_out=0.5))
    trained = study.simulate(TABLES)
    result = study.evaluate(trained, TABLES)
    folder = result.save(tmp_path / "evaluation")
    trained.save(tmp_path / "training")
    model = load(folder / "recalibrated.json")
    parent = hashlib.sha256((tmp_path / "training" / "model.json").read_bytes()).hexdigest()
    assert model.parent_ == parent
    again = study.evaluate(model, TABLES)
    for label in BOOK.classes:
        assert again.evaluation.calibration_error(label).low <= result.evaluation.calibration_error(label).value


def test_a_recalibrated_model_does_not_repeat_the_statement_of_its_parent(tmp_path: Path) -> None:
    study = RowStudy(BOOK, privacy=Privacy(epsilon=2.0), estimation=Estimation(held_out=0.5))
    trained = study.simulate(TABLES)
    trained.save(tmp_path / "training")
    folder = study.evaluate(trained, TABLES).save(tmp_path / "evaluation")
    own, parent = (
        json.loads(path.read_text()) for path in (folder / "recalibrated.json", tmp_path / "training" / "model.json")
    )
    assert parent["privacy"]["statement"]["epsilon"] == 2.0
    assert own["privacy"] is None
    load(folder / "recalibrated.json")
