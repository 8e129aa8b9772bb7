"""noisy_histograms: the right noise on every count, budgets that add up over the parties, a model at the miner."""

import tomllib
from fractions import Fraction
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import blindbayes_papers.huai2015.noisy_histograms as package
from audits.releases import audit_plan_sensitivity
from blindbayes import Codebook, ColumnStudy, NaiveBayes, Privacy
from blindbayes.codebook import Categorical, Numeric
from blindbayes.dp.accounting.ledger import Ledger
from blindbayes.errors import ConfigError, LocalProtocolError, PeerProtocolError, PrivacyError
from blindbayes.protocols.memory import Replace, local_runs, run_in_memory
from blindbayes_papers.huai2015.histograms import NoisyColumns
from blindbayes_papers.huai2015.noisy_histograms import NoisyHistogramsSetup, contributor, miner
from blindbayes_papers.huai2015.noisy_histograms.messages import HistogramsReleased
from support.studies import make_columns_study
from support.two_party import coins

SPEC = tomllib.loads((Path(package.__file__).parent / "SPEC.md").read_text().split("```toml\n", 1)[1].split("```", 1)[0])
BOOK = Codebook(
    "y",
    ("a", "b"),
    (Categorical("v", ("0", "1")), Categorical("w", ("p", "q", "r"), optional=True), Numeric("x", 0, 9, bins=4)),
)


def frame(rows, seed=1):
    rng = np.random.default_rng(seed)
    label = rng.choice(["a", "b"], rows)
    return pd.DataFrame(
        {
            "v": np.where(rng.random(rows) < 0.8, (label == "b").astype(int), 0).astype(str),
            "w": rng.choice(["p", "q", "r", None], rows),
            "x": np.clip(rng.integers(0, 7, rows) + 3 * (label == "b"), 0, 9),
            "y": label,
        }
    )


def parts(table):
    return {"bank": table[["v", "w", "y"]], "shop": table[["x", "y"]]}


def study(epsilon, **options):
    return make_columns_study(BOOK, protocol="noisy_histograms", **options, epsilon=epsilon)


def test_a_weak_budget_gives_nearly_the_exact_counts_and_the_pooled_classes():
    table = frame(3000)
    result = study(1000.0).simulate(parts(table), coins=coins("s"))
    pooled = NaiveBayes(BOOK).fit(table[["v", "w", "x"]], table["y"])
    for name, counts in pooled.statistics_.counts.items():
        assert np.abs(result.statistics.counts[name] - counts).max() <= 1
    assert (result.model.predict(table[["v", "w", "x"]]) == pooled.predict(table[["v", "w", "x"]])).mean() > 0.999


def test_who_learns_what_and_what_it_costs():
    result = study(1.0).simulate(parts(frame(100)), coins=coins("s"))
    assert result.leakage["miner"].opened == tuple(SPEC["opened"])
    assert result.leakage["bank"].opened == result.leakage["shop"].opened == ()
    assert result.cost.rounds == eval(SPEC["rounds"], {}, {"n": 2})
    assert result.cost.messages == eval(SPEC["messages"], {}, {"n": 2})
    assert result.spent == (1.0, 0.0)
    assert "bank 0.666667, shop 0.333333" in result.statement


def test_every_count_has_laplace_noise_of_scale_all_attributes_over_epsilon(monkeypatch):
    """Exact scale of each party's mechanism, and the spread of many releases: the variance of discrete Laplace of scale 3 is
    17.83; the sample's lies within six standard errors (alpha = 2e-9). A scale of a party's own attributes alone would fail."""
    from blindbayes_papers.huai2015 import histograms as noisy_columns

    scales, released = [], []
    genuine = noisy_columns.DiscreteLaplace.release

    def watched(self, vector, source):
        scales.append(Fraction(self.sensitivity.l1) / self.epsilon)
        found = genuine(self, vector, source)
        released.append(np.asarray(found - vector, dtype=np.float64))
        return found

    monkeypatch.setattr(noisy_columns.DiscreteLaplace, "release", watched)
    table = frame(30)
    for number in range(60):
        study(1.0).simulate(parts(table), coins=coins(f"run {number}"))
    assert set(scales) == {3}
    draws = np.concatenate(released)
    q = np.exp(-1 / 3)
    variance = 2 * q / (1 - q) ** 2
    fourth = np.mean((draws - draws.mean()) ** 4)
    error = np.sqrt((fourth - variance**2) / len(draws))
    assert abs(draws.var() - variance) < 6 * error
    assert abs(draws.var() - 2 * np.exp(-1 / 2) / (1 - np.exp(-1 / 2)) ** 2) > 6 * error


def test_noise_is_fresh_in_every_run():
    table = frame(50)
    one, two = (study(1.0).simulate(parts(table)) for _ in range(2))
    assert not np.array_equal(one.statistics.vector, two.statistics.vector)


def test_what_is_refused():
    table = frame(50)
    with pytest.raises(PrivacyError, match="epsilon"):
        study(None).simulate(parts(table))
    with pytest.raises(PrivacyError, match="delta"):
        study(1.0, delta=1e-6).simulate(parts(table))
    with pytest.raises(ConfigError, match="class column"):
        study(1.0).simulate({"bank": table[["v", "w", "y"]], "shop": table[["x"]]})
    with pytest.raises(ConfigError, match="held by bank and by shop"):
        study(1.0).simulate({"bank": table[["v", "w", "y"]], "shop": table[["x", "v", "y"]]})
    with pytest.raises(ConfigError, match="held by no party"):
        study(1.0).simulate({"bank": table[["v", "y"]], "shop": table[["x", "y"]]})
    with pytest.raises(ConfigError, match="keeps that name"):
        study(1.0).simulate({"miner": table[["v", "w", "y"]], "shop": table[["x", "y"]]})


# -- numbers without bins ---------------------------------------------------------------------------------------------------

GAUSSIAN = Codebook(
    "y",
    ("a", "b"),
    (Categorical("v", ("0", "1")), Numeric("x", 0, 9, 0.1), Numeric("z", 0, 25_000, 1, optional=True)),
    variance_floor=0.01,
    max_rows=10**6,
)


def numbers(rows, seed=2):
    rng = np.random.default_rng(seed)
    b = rng.random(rows) < 0.5
    z = np.clip(rng.normal(9000 + 6000 * b, 3500), 0, 25_000).round()
    frame = {
        "v": np.where(rng.random(rows) < 0.7, b, ~b).astype(int).astype(str),
        "x": np.clip(rng.normal(3 + 2 * b, 1.2), 0, 9).round(1),
        "z": np.where(rng.random(rows) < 0.05, np.nan, z),
        "y": np.where(b, "b", "a"),
    }
    return pd.DataFrame(frame)


def sides(table):
    return {"bank": table[["v", "x", "y"]], "shop": table[["z", "y"]]}


def gaussian_study(epsilon, rows):
    return ColumnStudy(GAUSSIAN, protocol="noisy_histograms", privacy=Privacy(epsilon=epsilon, expected_rows=rows))


@pytest.mark.parametrize(("epsilon", "rows", "least"), [(1.0, 1000, 0.97), (20.0, 40_000, 0.995)])
def test_numbers_without_bins_are_released_and_classify_nearly_as_pooled_training(epsilon, rows, least):
    """In cells, more of them with more signal; the long grid of z as moments. The classes of pooled training, nearly."""
    table, test = numbers(rows), numbers(4000, seed=3)
    names = ["v", "x", "z"]
    result = gaussian_study(epsilon, rows).simulate(sides(table), coins=coins("g"))
    pooled = NaiveBayes(GAUSSIAN).fit(table[names], table["y"])
    scores = [(model.predict(test[names]) == test["y"]).mean() for model in (result.model, pooled)]
    assert scores[0] > least * scores[1]
    cells = 24 if epsilon == 20 else 12
    assert f"x in {cells} cells of equal width; z as sum and sum of squares" in result.statement
    assert result.spent == (epsilon, 0.0)


def party_parts(epsilon, rows):
    owners = {"bank": ("v", "x"), "shop": ("z",)}
    return NoisyColumns(gaussian_study(epsilon, rows), owners)


@pytest.mark.parametrize(("epsilon", "rows"), [(1, 1000), (20, 40_000)])
def test_every_partys_part_passes_the_audit_and_the_parts_add_up(epsilon, rows):
    """Enumeration of small tables against each part's blocks, its loss by its scales, and budgets whose sum is epsilon."""
    noisy = party_parts(epsilon, rows)
    kinds = {name: [item.kind for item in part.items] for name, part in noisy.parts.items()}
    assert kinds == {"bank": ["cells", "cells"], "shop": ["classes", "n", "sum", "square"]}
    assert sum(part.epsilon for part in noisy.parts.values()) == epsilon
    items = sum(len(part.items) for part in noisy.parts.values())
    for name, part in noisy.parts.items():
        assert noisy.mechanisms[name].epsilon == part.epsilon == Fraction(epsilon * len(part.items), items)
        mechanism = noisy.mechanisms[name]
        assert sum(Fraction(mechanism.reach) / scale for scale in mechanism.scales) == part.epsilon  # [laplace], in rationals
        checks = list(audit_plan_sensitivity(part))
        assert checks
        assert all(check.passed for check in checks), [check for check in checks if not check.passed]


def test_the_ledgers_pay_the_parts_and_a_hopeless_budget_is_refused(tmp_path):
    ledgers = {name: Ledger.create(tmp_path / name, epsilon=2).path for name in ("bank", "shop")}
    gaussian_study(1.0, 1000).simulate(sides(numbers(300)), coins=coins("l"), ledgers=ledgers)
    spent = {name: Ledger(path).balance().spent_epsilon for name, path in ledgers.items()}
    assert spent == {"bank": pytest.approx(1 / 3), "shop": pytest.approx(2 / 3)}
    assert spent["bank"] + spent["shop"] >= 1
    with pytest.raises(PrivacyError, match="drown every column"):
        gaussian_study(0.01, 50).simulate(sides(numbers(50)))


def test_a_release_that_does_not_fit_is_refused():
    facts = NoisyHistogramsSetup("miner", {"bank": 3}, {"bank": "hash"})
    runs = local_runs(["bank", "miner"], coins=coins("run"))
    counts = np.array([1, -2, 3])

    def run(**options):
        return run_in_memory(
            {"bank": contributor(runs["bank"], facts, counts), "miner": miner(runs["miner"], facts)}, **options
        )

    assert np.array_equal(run().outputs["miner"]["bank"], counts)
    for change in (
        lambda m: HistogramsReleased(m.codebook, m.counts[:-1]),
        lambda m: HistogramsReleased("another", m.counts),
    ):
        with pytest.raises(PeerProtocolError, match="bank"):
            run(faults=[Replace(0, change)])
    with pytest.raises(LocalProtocolError):
        run_in_memory({"bank": contributor(runs["bank"], facts, counts[:2]), "miner": miner(runs["miner"], facts)})
    with pytest.raises(LocalProtocolError):
        NoisyHistogramsSetup("miner", {"miner": 3})


# -- made-up counts ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("at", range(3))
@pytest.mark.parametrize("number", [2**63 - 1, -(2**63), 2**40, -(2**40), 1_000_500, -500])
def test_counts_that_no_table_gives_with_its_noise_name_their_sender(number, at):
    """The miner made a model of them: numbers beyond 64 bits became negative counts, and others drowned everybody's."""
    facts = party_parts(1.0, 1000).facts
    runs = local_runs((*facts.sizes, "miner"), coins=coins("run"))
    counts = {name: np.zeros(size, np.int64) for name, size in facts.sizes.items()}
    counts["bank"][at] = number
    roles = {name: contributor(runs[name], facts, counts[name]) for name in facts.sizes}
    outcome = run_in_memory({**roles, "miner": miner(runs["miner"], facts)}, check=False)
    assert isinstance(outcome.error, PeerProtocolError)
    assert outcome.error.party == "bank"


@pytest.mark.parametrize("end", ["empty", "full, highest", "full, lowest"])
def test_what_a_party_really_releases_is_never_refused(end):
    """Empty and largest tables, with sums at either end of their range: of 200 releases none lies outside."""
    noisy, source = party_parts(1.0, 1000), coins("honest")
    for name, part in noisy.parts.items():
        mechanism, (low, high) = noisy.mechanisms[name], noisy.facts.ranges[name]
        signs = [-1 if end.endswith("lowest") and item.kind in ("sum", "square") else 1 for item in part.items]
        rows = 0 if end == "empty" else noisy.study.codebook.max_rows
        blocks = zip(signs, mechanism.sensitivity.blocks, strict=True)
        exact = np.concatenate([np.full(block.size, sign * rows * block.bound, np.int64) for sign, block in blocks])
        for counts in mechanism.releases(exact, source, 200):
            assert ((counts >= low) & (counts <= high)).all()
