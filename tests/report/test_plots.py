"""Plots of a model."""

from __future__ import annotations

import re

import numpy as np
import pyarrow as pa

from blindbayes import Categorical, Codebook, NaiveBayes, Numeric
from blindbayes.report.plots import evidence_plot, priors_plot

BOOK = Codebook(
    "class",
    ("a", "b"),
    (Categorical("colour", ("red", "blue")), Numeric("age", 0, 100, 1, bins=50), Numeric("level", 0, 10, 0.5, bins=4)),
)


def model() -> NaiveBayes:
    rng = np.random.default_rng(5)
    labels = rng.choice(["a", "b"], 400)
    columns = {
        "colour": np.where(rng.random(400) < np.where(labels == "a", 0.8, 0.3), "red", "blue"),
        "age": np.clip(np.rint(rng.normal(np.where(labels == "a", 30, 60), 15)), 0, 100),
        "level": rng.integers(0, 21, 400) / 2,
    }
    return NaiveBayes(BOOK).fit(pa.table(columns), labels)


def test_plots_are_drawings_with_every_class() -> None:
    parameters = model()._record().parameters
    for plot in (priors_plot(parameters), evidence_plot(parameters)):
        assert plot.startswith("<svg")
        assert all(f">{label}<" in plot for label in parameters.codebook.classes)
    assert len(re.findall(r"colour: ", evidence_plot(parameters))) == 2
