"""Plots of a model."""

from __future__ import annotations

import re

from blindbayes.report.plots import evidence_plot, priors_plot
from support.two_classes import model


def test_plots_are_drawings_with_every_class() -> None:
    parameters = model()._record().parameters
    for plot in (priors_plot(parameters), evidence_plot(parameters)):
        assert plot.startswith("<svg")
        assert all(f">{label}<" in plot for label in parameters.codebook.classes)
    assert len(re.findall(r"colour: ", evidence_plot(parameters))) == 2
