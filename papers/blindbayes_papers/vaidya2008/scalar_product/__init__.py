"""`scalar_product`: the paper's own route for columns, under Paillier. See SPEC.md."""

from blindbayes_papers.vaidya2008.scalar_product.channel import Channel, ScalarProductSetup, connect
from blindbayes_papers.vaidya2008.scalar_product.roles import (
    Attribute,
    HeldShare,
    Measured,
    Nominal,
    classify_attribute_holder,
    classify_class_holder,
    score_error,
    train_attribute_holder,
    train_class_holder,
)

__all__ = [
    "Attribute",
    "Channel",
    "HeldShare",
    "Measured",
    "Nominal",
    "ScalarProductSetup",
    "classify_attribute_holder",
    "classify_class_holder",
    "connect",
    "score_error",
    "train_attribute_holder",
    "train_class_holder",
]
