"""`smooth` and `global` as an estimator and from the command line: what holds for every private fit holds for them."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner
from sklearn.base import clone

from blindbayes import PrivateNaiveBayes, load
from blindbayes.cli import main
from blindbayes.codebook import Categorical, Codebook, Numeric, Text
from blindbayes.dp.accounting.ledger import Ledger
from blindbayes.errors import ConfigError, PrivacyError
from blindbayes_papers.zafarani2020.command import command
from blindbayes_papers.zafarani2020.estimator import SmoothNaiveBayes

BOOK = Codebook(
    "y",
    ("0", "1"),
    (Categorical("c", ("u", "v")), Numeric("x", 0, 9, 1.0), Numeric("z", 0, 9, 1.0, bins=3)),
    max_rows=1000,
)
ROWS, LABELS = [["u", 1, 2], ["v", 2, 3], ["u", 3, 5]], ["0", "1", "1"]
HOSTILE: list[Any] = [None, float("nan"), float("inf"), 1e300, "CANARY", "", True, [1], 10**400, b"x"]
BOTH = pytest.mark.parametrize("mechanism", ["smooth", "global"])


@BOTH
@pytest.mark.parametrize("at", range(4))
def test_no_value_of_a_record_is_an_error(at: int, mechanism: str) -> None:
    for value in HOSTILE:
        record: list[Any] = ["u", 3, 5, "1"]
        record[at] = value
        X, y = [*ROWS[:2], record[:3]], ["0", "1", record[3]]
        model = SmoothNaiveBayes(BOOK, epsilon=1.0, mechanism=mechanism).fit(X, y)
        assert model.predict(X[:2]).shape == (2,)


@BOTH
def test_an_empty_table_is_fitted_like_one_with_a_record(mechanism: str) -> None:
    frame = pd.DataFrame(ROWS, columns=["c", "x", "z"])
    models = [
        SmoothNaiveBayes(BOOK, epsilon=1.0, mechanism=mechanism).fit(frame[:rows], np.array(LABELS)[:rows]) for rows in (0, 1)
    ]
    empty, single = (model._record() for model in models)
    assert (empty.label_kind, empty.privacy) == (single.label_kind, single.privacy)


@BOTH
def test_the_ledger_pays_before_the_noise_and_an_absurd_epsilon_is_refused_first(tmp_path: Path, mechanism: str) -> None:
    ledger = Ledger.create(tmp_path / "ledger.jsonl", epsilon=10)
    with pytest.raises(PrivacyError, match="epsilon lies between"):
        SmoothNaiveBayes(BOOK, epsilon=1e6, mechanism=mechanism, ledger=ledger.path).fit(ROWS, LABELS)
    assert ledger.balance().spent_epsilon == 0
    model = SmoothNaiveBayes(BOOK, epsilon=2.0, mechanism=mechanism, ledger=ledger.path).fit(ROWS, LABELS)
    assert ledger.balance().spent_epsilon == 2
    assert [entry.fields["mechanism"] for entry in ledger.entries() if entry.kind == "charge"] == [mechanism]
    assert model.statement_.epsilon == 2.0
    with pytest.raises(PrivacyError, match="budget exceeded"):
        SmoothNaiveBayes(BOOK, epsilon=9.0, mechanism=mechanism, ledger=ledger.path).fit(ROWS, LABELS)


@pytest.mark.parametrize("gamma", [1.5, 100.0, 2.0000001])
def test_a_gamma_without_a_sampler_is_refused_before_the_ledger_pays(gamma: float, tmp_path: Path) -> None:
    """It was refused by the sampler, when the budget was spent; and not at all without a Gaussian feature."""
    ledger = Ledger.create(tmp_path / "ledger.jsonl", epsilon=10)
    for book in (BOOK, BOOK.with_features(BOOK.features[:1])):
        rows = [row[: len(book.features)] for row in ROWS]
        with pytest.raises(ConfigError, match="gamma must be at least 2"):
            SmoothNaiveBayes(book, epsilon=1.0, gamma=gamma, ledger=ledger.path).fit(rows, LABELS)
    assert ledger.balance().spent_epsilon == 0


def test_the_statement_of_smooth_does_not_deny_its_floating_point() -> None:
    """Means and their sensitivity are floats; the statement said that there were none."""
    smooth, joint = (kind(BOOK, epsilon=1.0).fit(ROWS, LABELS).statement_ for kind in (SmoothNaiveBayes, PrivateNaiveBayes))
    assert "No floating point" not in smooth.side_channels
    assert [(stage.mechanism, stage.floating_point, stage.timing) for stage in smooth.stages] == [("smooth", True, True)]
    assert ("No floating point" in joint.side_channels) == (not any(stage.floating_point for stage in joint.stages))


@BOTH
def test_it_runs_from_the_command_line_to_a_release(mechanism: str, tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    table = pd.DataFrame([["u", 1, 2, 0], ["CANARY", 1e9, 3, 1]] * 10, columns=["c", "x", "z", "y"])
    table.to_csv(path, index=False)
    BOOK.to_toml(tmp_path / "book.toml")
    options = ["--epsilon", "2", "--mechanism", mechanism, "--allocation", "3", "1", "--tuning", "none"]
    options += ["--gamma", "4"] if mechanism == "smooth" else []
    model, release = tmp_path / "model.json", tmp_path / "release"
    kept = ["--out", str(model), "--release", str(release), "--title", "T"]
    found = CliRunner().invoke(command, [str(path), "--codebook", str(tmp_path / "book.toml"), *kept, *options])
    assert found.exit_code == 0, found.output
    facts = load(model).privacy_
    assert (facts["mechanism"], facts["allocation"]) == (mechanism, [3, 1])
    assert facts["gamma"] == (4.0 if mechanism == "smooth" else None)
    assert "epsilon" in (release / "statement.md").read_text()


def test_the_command_is_listed(capsys: pytest.CaptureFixture[str]) -> None:
    with contextlib.suppress(SystemExit):
        main(["--help"])
    assert "train-smooth" in capsys.readouterr().out


@pytest.mark.parametrize(
    "settings",
    [{"mechanism": "global", "gamma": 3.0}, {"allocation": (0, 1)}, {"allocation": (1,)}, {"mechanism": "knorm"}],
)
def test_settings_that_do_not_fit_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        SmoothNaiveBayes(BOOK, epsilon=1.0, **settings).fit(ROWS, LABELS)


@BOTH
def test_there_is_no_form_for_text(mechanism: str) -> None:
    book = Codebook("y", ("0", "1"), (Text("t", words=("a", "b"), max_words=5),), max_rows=100)
    with pytest.raises(ConfigError, match="text"):
        SmoothNaiveBayes(book, epsilon=1.0, mechanism=mechanism).fit(pd.DataFrame({"t": ["a b", "b"]}), ["0", "1"])


def test_a_clone_has_the_same_settings() -> None:
    model = SmoothNaiveBayes(BOOK, epsilon=1.0, gamma=4.0, allocation=(3, 1))
    assert clone(model).get_params() == model.get_params()
