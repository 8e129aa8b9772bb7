"""`shared_model`: shares of log-probabilities and Gaussian coefficients, by garbled circuits, once per cell. See SPEC.md."""

from blindbayes.protocols.shared_training.shared_model.field_sums import Noise
from blindbayes.protocols.shared_training.shared_model.roles import attribute_holder, class_holder
from blindbayes.protocols.shared_training.shared_model.score_layout import NO_GUARD, Guard, ScoreLayout
from blindbayes.protocols.shared_training.shared_model.tables import Tables, score

__all__ = ["NO_GUARD", "Guard", "Noise", "ScoreLayout", "Tables", "attribute_holder", "class_holder", "score"]
