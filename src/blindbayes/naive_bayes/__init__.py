"""Classifiers from exact statistics: estimators, the JSON model file, explanations and exports."""

from blindbayes.naive_bayes.explain import Explanation
from blindbayes.naive_bayes.model_file import dump_model, parse_model
from blindbayes.statistics.parameters import Gaussian, Histogram, Parameters, estimate

__all__ = ["Explanation", "Gaussian", "Histogram", "Parameters", "dump_model", "estimate", "parse_model"]
