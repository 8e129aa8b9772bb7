"""`class_sums`: additive shares of all class-conditional sums of another party's columns. See SPEC.md."""

from blindbayes.protocols.shared_training.class_sums.layout import RowLayout
from blindbayes.protocols.shared_training.class_sums.roles import ClassSumsSetup, Coded, attribute_holder, class_holder

__all__ = ["ClassSumsSetup", "Coded", "RowLayout", "attribute_holder", "class_holder"]
