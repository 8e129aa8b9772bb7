"""noisy_histograms: the right noise on every count, budgets that add up over the parties, a model at the miner."""

import tomllib
from fractions import Fraction
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import blindbayes.protocol.noisy_histograms as package
from blindbayes import Codebook, NaiveBayes, Study
from blindbayes.codebook import Categorical, Numeric
from blindbayes.errors import ConfigError, LocalProtocolError, PeerProtocolError, PrivacyError
from blindbayes.protocol.noisy_histograms import NoisyHistogramsSetup, contributor, miner
from blindbayes.protocol.noisy_histograms.messages import HistogramsReleased
from blindbayes.transport.memory import Replace, local_runs, run_in_memory
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
    return Study(BOOK, partition="columns", protocol="noisy_histograms", epsilon=epsilon, **options)


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
    from blindbayes.scheme import histograms as noisy_columns

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
    wide = Codebook("y", ("a", "b"), (Categorical("v", ("0", "1")), Numeric("x", 0, 9)), variance_floor=1.0)
    with pytest.raises(ConfigError, match="bins"):
        Study(wide, partition="columns", protocol="noisy_histograms", epsilon=1.0).simulate(
            parts(table[["v", "x", "y"]].assign(w="p"))
        )


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
