"""Protocol 3 of the paper as a study over rows: within its stated error of pooled training, in shares or as printed."""

import json

import numpy as np
import pandas as pd
import pytest

from blindbayes import Codebook, Limits, NaiveBayes, Privacy, RowStudy
from blindbayes.codebook import Categorical, Numeric
from blindbayes.errors import ConfigError, PrivacyError
from blindbayes.statistics.parameters import Gaussian, estimate
from support.two_party import coins

TOY = {"key_bits": 512, "toy_keys": True, "degree": 10}
BOOK = Codebook(
    "y",
    ("a", "b"),
    (Categorical("v", ("p", "q", "r")), Numeric("x", -5, 5, 0.5, optional=True)),
    max_rows=1000,
    variance_floor=0.25,
)


def tables():
    rng = np.random.default_rng(2)
    label = rng.choice(["a", "b"], 90)
    x = np.round(2 * rng.normal(np.where(label == "a", -1, 2), 1)).clip(-10, 10) / 2
    frame = pd.DataFrame({"v": rng.choice(["p", "q"], 90), "x": np.where(rng.random(90) < 0.1, np.nan, x), "y": label})
    return frame, {"north": frame[:40], "south": frame[40:41], "west": frame[41:]}


def run(parts, **options):
    return RowStudy(BOOK, protocol="scalar_product", options={**TOY, **options}).simulate(parts, coins=coins("rows"))


@pytest.mark.parametrize("divisor", ["n", "n-1"])
@pytest.mark.parametrize("opening", ["shares", "printed"])
def test_ratios_are_those_of_pooled_training(opening, divisor):
    frame, parts = tables()
    result = run(parts, opening=opening, divisor=divisor)
    found = result.combine()
    statistics = NaiveBayes(BOOK).fit(frame[["v", "x"]], frame["y"]).statistics_
    exact, off = estimate(statistics, divisor=divisor), 2 * result.relative_error
    assert np.exp(found.log_prior) == pytest.approx(np.exp(exact.log_prior), rel=off)
    assert np.exp(found.terms["v"].log_prob) == pytest.approx(np.exp(exact.terms["v"].log_prob), rel=off)
    ours, theirs = found.terms["x"], exact.terms["x"]
    assert isinstance(ours, Gaussian)
    codes = (theirs.mean + 5) * 2  # grid steps from the lower bound: what the ratios are of, plus 1
    assert ours.mean == pytest.approx(theirs.mean, abs=(codes.max() + 1) * off)
    assert ours.variance == pytest.approx(theirs.variance, abs=3 * (20**2 + 1) * off)
    if opening == "shares":
        assert len(result.shares) == 2
        assert not any(leak.opened for leak in result.leakage.values())
        with pytest.raises(PrivacyError, match="shares"):
            result.parameters()
    else:
        assert {leak.opened for leak in result.leakage.values()} == {("probabilities_and_counts",)}
        assert np.array_equal(result.parameters().log_prior, found.log_prior)


def test_the_release_says_what_was_opened(tmp_path):
    _, parts = tables()
    result = run(parts, opening="printed")
    assert "opens the counts" in result.statement
    assert "TOY KEYS" in result.statement
    where = result.save(tmp_path / "release")
    views = json.loads((where / "leakage.json").read_text("utf-8"))["parties"]
    assert all("probabilities_and_counts" in json.dumps(view) for view in views.values())


def test_what_is_refused():
    _, parts = tables()
    two = {name: parts[name] for name in ("north", "west")}
    for given, options, error in (
        (two, {}, PrivacyError),
        (parts, {"opening": "fine"}, ConfigError),
        (parts, {"queries": 3}, ConfigError),
        (parts, {"divisor": "n+1"}, ConfigError),
    ):
        with pytest.raises(error):
            run(given, **options)
    with pytest.raises(PrivacyError, match="noise"):
        RowStudy(BOOK, protocol="scalar_product", options=TOY, privacy=Privacy(epsilon=1.0)).simulate(parts)
    book = Codebook("y", ("a", "b"), BOOK.features, max_rows=1000)
    with pytest.raises(ConfigError, match="variance_floor"):
        RowStudy(book, protocol="scalar_product", options=TOY).simulate(parts)
    with pytest.raises(PrivacyError, match="rows"):
        RowStudy(BOOK, protocol="scalar_product", options=TOY, limits=Limits(min_rows=5)).simulate(parts)
