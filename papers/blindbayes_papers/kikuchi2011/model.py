"""The model of both protocols in a simulation."""

from __future__ import annotations

from blindbayes.study.simulation.models import JointModel
from blindbayes_papers.kikuchi2011.task import IntersectionPrediction


class IntersectionModel(JointModel):
    """A model whose shares are not uniform."""

    task = IntersectionPrediction
