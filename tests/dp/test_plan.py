"""`blindbayes plan`: forecasts on public and synthetic proxies cost nothing; on the private table they pay first."""

from __future__ import annotations

import csv
import importlib.util
import json
import re
from pathlib import Path

import msgspec
import numpy as np
import pytest
from click.testing import CliRunner, Result
from sklearn.metrics import balanced_accuracy_score, recall_score, roc_auc_score

from blindbayes.cli.commands.plan import command
from blindbayes.codebook import Categorical, Codebook, Numeric
from blindbayes.crypto.coins import Coins
from blindbayes.dp.accounting.ledger import Ledger
from blindbayes.dp.release.forecast import Forecast, Line, Quality, forecast, plan_fits, private_forecast, synthetic_proxy
from blindbayes.errors import ConfigError, PrivacyError
from blindbayes.statistics import CodedRows

CODEBOOK = Codebook(
    "class",
    ("a", "b"),
    (Numeric("length", 0, 10, 0.1), Categorical("colour", ("red", "green", "blue")), Numeric("weight", 0, 5, 1, bins=3)),
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    CODEBOOK.to_toml(tmp_path / "codebook.toml")
    generator = np.random.default_rng(0)
    with (tmp_path / "table.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["length", "colour", "weight", "class"])
        for label in generator.integers(0, 2, 400):
            length = round(float(np.clip(generator.normal(3 + 4 * label, 1), 0, 10)), 1)
            colour = ("red", "green", "blue")[label if generator.random() < 0.8 else 2]
            writer.writerow([length, colour, int(generator.integers(0, 6)), "ab"[label]])
    return tmp_path


def _run(folder: Path, *arguments: str) -> Result:
    return CliRunner().invoke(command, ["--codebook", str(folder / "codebook.toml"), *arguments], catch_exceptions=False)


def test_a_public_proxy_gives_a_table_with_bands_and_the_smallest_epsilon(folder: Path) -> None:
    result = _run(
        folder, "--proxy", str(folder / "table.csv"), "--epsilon", "0.0005", "--epsilon", "10", "--repetitions", "4", "--json"
    )
    told = json.loads(result.output)
    low, high = told["lines"]
    assert (low["epsilon"], high["epsilon"]) == (0.0005, 10.0)
    assert high["mean"] > 0.9 > low["mean"]  # at 0.0005 only the class counts are released: about one half
    assert low["low"] <= low["mean"] <= low["high"]
    assert told["smallest_epsilon_within_one_point"] in (10.0, None)
    assert told["not_private"] > 0.9
    assert 0.3 < told["majority"] < 0.7
    assert told["cost"] is None


def test_files_are_written(folder: Path) -> None:
    out = folder / "out"
    result = _run(folder, "--synthetic", "--expected-rows", "500", "--epsilon", "1", "--repetitions", "2", "--out", str(out))
    assert "made-up data" in result.output
    assert len(list(csv.reader((out / "plan.csv").open()))) == 2
    if importlib.util.find_spec("matplotlib"):
        assert (out / "plan.png").read_bytes().startswith(b"\x89PNG")


def test_a_made_up_table_has_no_more_rows_than_the_codebook_allows(tmp_path: Path) -> None:
    """Below 2,000 rows it ended with an error about a class count."""
    Codebook("class", ("a", "b"), CODEBOOK.features, max_rows=300).to_toml(tmp_path / "codebook.toml")
    result = _run(tmp_path, "--synthetic", "--epsilon", "1", "--repetitions", "2", "--json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.output)["rows"] == 300


def test_exactly_one_proxy_must_be_named(folder: Path) -> None:
    for arguments in ((), ("--synthetic", "--proxy", "x.csv")):
        with pytest.raises(ConfigError, match="choose one"):
            _run(folder, *arguments)


def test_the_private_table_is_never_read_without_a_ledger(folder: Path) -> None:
    with pytest.raises(PrivacyError, match="ledger"):
        _run(folder, "--private", str(folder / "table.csv"), "--epsilon", "1")


def test_the_private_table_pays_the_sum_before_anything_is_said(folder: Path) -> None:
    path = folder / "ledger.jsonl"
    Ledger.create(path, epsilon=2)
    arguments = (
        "--private",
        str(folder / "table.csv"),
        "--ledger",
        str(path),
        "--expected-rows",
        "400",
        "--epsilon",
        "0.5",
        "--epsilon",
        "1",
    )
    result = _run(folder, *arguments)
    assert "cost epsilon = 1.5" in result.output
    assert Ledger(path).balance().left == pytest.approx(0.5)
    with pytest.raises(PrivacyError, match="exceeded"):
        _run(folder, *arguments)


def test_a_person_with_several_rows_pays_for_both_parts() -> None:
    assert private_forecast(CODEBOOK, epsilons=(0.5, 1.0), rows_per_unit=1).price.epsilon == 1.5
    assert private_forecast(CODEBOOK, epsilons=(0.5, 1.0), rows_per_unit=3).price.epsilon == 3.0


def test_the_smallest_epsilon_is_where_the_mean_stays_close() -> None:
    def lines(*means: float) -> tuple[Line, ...]:
        return tuple(Line(10.0**at, mean, mean, mean, "knorm") for at, mean in enumerate(means))

    assert Forecast(lines(0.5, 0.90, 0.895), 0.9, 0.5, 1, "x").smallest == 10.0
    assert Forecast(lines(0.9, 0.5, 0.9), 0.9, 0.5, 1, "x").smallest == 100.0  # a lucky point below does not count
    assert Forecast(lines(0.5, 0.5, 0.5), 0.9, 0.5, 1, "x").smallest is None


def test_more_rows_than_the_proxy_has_are_drawn_from_it() -> None:
    coins = Coins.seeded(bytes(32))
    block = synthetic_proxy(CODEBOOK, 300, coins, strength=2.0)
    small = forecast(plan_fits(CODEBOOK, (0.05,), rows=100), block, repetitions=6, coins=coins)
    large = forecast(plan_fits(CODEBOOK, (0.05,), rows=50_000), block, repetitions=6, coins=coins)
    assert large.lines[0].mean > small.lines[0].mean
    assert large.rows == 50_000


RARE = Codebook("ill", ("no", "yes"), (Categorical("u", ("p", "q")), Categorical("v", ("p", "q"))), max_rows=10_000)


def _rare(rows: int = 2000) -> CodedRows:
    """Five in a hundred are ill, and the features tell it a little: always "no" is more often right."""
    generator = np.random.default_rng(2)
    ill = (generator.random(rows) < 0.05).astype(np.int64)
    columns = {name: (generator.random(rows) < np.where(ill, 0.7, 0.25)).astype(np.int64) for name in ("u", "v")}
    return CodedRows(ill, columns, rows)


def test_other_measures_are_those_of_scikit_learn() -> None:
    generator = np.random.default_rng(3)
    for classes in (2, 3):
        scores, labels = generator.normal(size=(200, classes)), generator.integers(0, classes, 200)
        found = Quality.measure(scores, labels)
        assert found.balanced == pytest.approx(balanced_accuracy_score(labels, scores.argmax(axis=1)))
        assert found.recall == pytest.approx(recall_score(labels, scores.argmax(axis=1), average=None))
        odds = scores - scores.max(axis=1, keepdims=True)
        shares = np.exp(odds) / np.exp(odds).sum(axis=1, keepdims=True)
        expected = roc_auc_score(labels, shares[:, 1] if classes == 2 else shares, multi_class="ovr")
        assert found.auc == pytest.approx(expected)


def test_a_rare_class_shows_in_recall_and_the_majority_is_named() -> None:
    found = forecast(plan_fits(RARE, (0.05, 10.0)), _rare(), repetitions=4, coins=Coins.seeded(bytes(32)))
    assert found.majority is not None
    assert found.majority > 0.9
    assert found.is_below_majority()
    line = found.lines[-1]
    assert line.quality is not None
    assert line.quality.auc > 0.65
    assert line.quality.recall[1] < 0.3 < line.quality.recall[0]
    assert line.quality.balanced < 0.7


def test_the_command_says_when_a_model_is_below_the_majority_class(folder: Path) -> None:
    RARE.to_toml(folder / "codebook.toml")
    block = _rare()
    with (folder / "rare.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["u", "v", "ill"])
        for u, v, ill in zip(block.columns["u"], block.columns["v"], block.known_labels, strict=True):
            writer.writerow(["pq"[u], "pq"[v], RARE.classes[ill]])
    shown = _run(folder, "--proxy", str(folder / "rare.csv"), "--epsilon", "5", "--repetitions", "3").output
    assert "! no more often right than always answering the largest class" in shown
    assert "weigh the classes" in " ".join(shown.split())
    assert "recall yes" in shown
    assert max(map(len, shown.splitlines())) <= 80
    told = json.loads(
        _run(folder, "--proxy", str(folder / "rare.csv"), "--epsilon", "5", "--repetitions", "3", "--json").output
    )
    assert told["below_majority"] == [5.0]
    # a long class name is shortened to fit 80 columns beside the marks, and no number is
    long = {"yes": "yes, ill within thirty days of discharge", "no": "no illness"}
    book = msgspec.structs.replace(RARE, classes=tuple(long[each] for each in RARE.classes))
    book.to_toml(folder / "codebook.toml")
    text = (folder / "rare.csv").read_text()
    for label, words in long.items():
        text = re.sub(rf",{label}(?=[\r\n])", f',"{words}"', text)
    (folder / "rare.csv").write_text(text)
    shown = _run(folder, "--proxy", str(folder / "rare.csv"), "--epsilon", "5", "--repetitions", "3").output
    heading, row = (next(line for line in shown.splitlines() if each in line) for each in ("accuracy", "│ 5 "))
    assert "recall" in heading
    assert "…" in heading
    assert len(heading) <= 80
    assert re.search(r"│ 0\.\d{3} to 0\.\d{3} │ !\*? +│ 0\.\d{3} │ 0\.\d{3} +│ 0\.\d{3} ", row), row
    assert {"auc", "balanced_accuracy", "recall"} <= set(told["lines"][0])
