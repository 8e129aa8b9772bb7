"""Protocol 3 of the paper as a study over rows: within its stated error of pooled training, in shares or as printed."""

import json
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest

from blindbayes import Codebook, Limits, NaiveBayes, Privacy, RowStudy
from blindbayes.codebook import Categorical, Numeric
from blindbayes.errors import ConfigError, PeerProtocolError, PrivacyError
from blindbayes.protocols.memory import Replace, local_runs, run_in_memory
from blindbayes.statistics.parameters import Gaussian, estimate
from blindbayes_papers.vaidya2008.scalar_product import ScalarProductSetup, ratio
from blindbayes_papers.vaidya2008.scalar_product.messages import LogarithmShareSent, RatiosAnnounced
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


@pytest.mark.parametrize("opening", ["shares", "printed"])
@pytest.mark.parametrize(("high", "refused"), [(46_340, False), (46_341, True)])
def test_numbers_whose_mean_squares_do_not_fit_are_refused(opening, high, refused):
    """Shares were capped, and gave a variance of 0; printed ratios ended in an error of Python."""
    book = Codebook("y", ("a", "b"), (Numeric("x", 0, high, 1.0),), max_rows=100, variance_floor=0.01)
    x = [high, high - 9000, high - 18_000, high - 4000, high, high - 12_000]
    frame = pd.DataFrame({"x": np.array(x, dtype=float), "y": list("ababab")})
    parts = {"north": frame[:2], "south": frame[2:4], "west": frame[4:]}
    study = RowStudy(book, protocol="scalar_product", options={**TOY, "opening": opening})
    if refused:
        with pytest.raises(ConfigError, match="feature 'x' has 46,342 grid points"):
            study.simulate(parts, coins=coins("wide"))
        return
    result = study.simulate(parts, coins=coins("wide"))
    exact = estimate(NaiveBayes(book).fit(frame[["x"]], frame["y"]).statistics_).terms["x"]
    off = 3 * (high**2 + 1) * 2 * result.relative_error
    assert result.combine().terms["x"].variance == pytest.approx(exact.variance, abs=off)


@pytest.mark.parametrize(
    ("kind", "change"),
    [
        (LogarithmShareSent, lambda m: LogarithmShareSent(m.mark, m.shares + np.uint64(1 << 62))),
        (RatiosAnnounced, lambda m: RatiosAnnounced(m.ratios * np.uint64(0))),
    ],
    ids=["logarithms of no ratio", "ratios of 0"],
)
def test_what_no_sums_give_names_its_sender(kind, change):
    """The one was an overflow of Python at the starter, the other a model with infinite logarithms."""
    names, senders = ("north", "south", "west"), []
    runs = local_runs(names, coins=coins("run"))
    terms = ScalarProductSetup(1, 2, key_bits=512, toy_keys=True, degree=10)
    ratios = replace(ratio.nominal_ratios(2, Fraction(1), 100)[0], opening="printed")
    roles = {name: ratio.party(runs[name], ratios, terms, np.array([1, 2, 3], np.uint64), coins(name)) for name in names}

    def at(header):
        if header.kind is kind:
            senders.append(header.sender)
        return header.kind is kind

    outcome = run_in_memory(roles, faults=[Replace(at, change)], check=False)
    assert isinstance(outcome.error, PeerProtocolError)
    assert outcome.error.party == senders[0]
