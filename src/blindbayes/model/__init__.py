"""From exact statistics to a classifier: parameters, log-likelihoods, explanations, and the file of record."""

from blindbayes.model.explain import Explanation
from blindbayes.model.file import dump_model, parse_model
from blindbayes.model.parameters import Gaussian, Histogram, Parameters, estimate

__all__ = ["Explanation", "Gaussian", "Histogram", "Parameters", "dump_model", "estimate", "parse_model"]
