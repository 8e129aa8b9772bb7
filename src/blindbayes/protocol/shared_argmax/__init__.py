"""`shared_argmax`: joint classification with a shared model; only the class is opened. See SPEC.md."""

from blindbayes.protocol.shared_argmax.audit import Committed, Pledge, commit_tables, look_up_audited, serve_audited
from blindbayes.protocol.shared_argmax.compare_all import UNREADABLE, Mesh, connect
from blindbayes.protocol.shared_argmax.query import MOST_DUMMIES, SharedArgmaxSetup
from blindbayes.protocol.shared_argmax.references import answer_references, ask_references
from blindbayes.protocol.shared_argmax.roles import (
    attribute_holder,
    attribute_holder_compare_all,
    class_holder,
    class_holder_compare_all,
)

__all__ = [
    "MOST_DUMMIES",
    "UNREADABLE",
    "Committed",
    "Mesh",
    "Pledge",
    "SharedArgmaxSetup",
    "answer_references",
    "ask_references",
    "attribute_holder",
    "attribute_holder_compare_all",
    "class_holder",
    "class_holder_compare_all",
    "commit_tables",
    "connect",
    "look_up_audited",
    "serve_audited",
]
