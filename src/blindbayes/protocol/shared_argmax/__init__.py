"""`shared_argmax`: joint classification with a shared model; only the class is opened. See SPEC.md."""

from blindbayes.protocol.shared_argmax.roles import (
    Query,
    attribute_holder,
    attribute_holder_together,
    class_holder,
    class_holder_together,
)
from blindbayes.protocol.shared_argmax.together import Mesh, connect

__all__ = [
    "Mesh",
    "Query",
    "attribute_holder",
    "attribute_holder_together",
    "class_holder",
    "class_holder_together",
    "connect",
]
