"""`shared_argmax`: joint classification with a shared model; only the class is opened. See SPEC.md."""

from blindbayes.protocol.shared_argmax.audit import Committed, commit_tables
from blindbayes.protocol.shared_argmax.query import MOST_DUMMIES, SharedArgmaxSetup
from blindbayes.protocol.shared_argmax.roles import (
    attribute_holder,
    attribute_holder_together,
    class_holder,
    class_holder_together,
)
from blindbayes.protocol.shared_argmax.together import Mesh, connect

__all__ = [
    "MOST_DUMMIES",
    "Committed",
    "Mesh",
    "SharedArgmaxSetup",
    "attribute_holder",
    "attribute_holder_together",
    "class_holder",
    "class_holder_together",
    "commit_tables",
    "connect",
]
