"""The model of distorted_intersection in a simulation."""

from __future__ import annotations

from blindbayes.study.simulation.models import JointModel
from blindbayes_papers.kikuchi2011.task import DistortedPrediction


class DistortedModel(JointModel):
    """A model whose shares are the logarithms of thinned sizes."""

    task = DistortedPrediction
