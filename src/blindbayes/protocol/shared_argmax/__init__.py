"""`shared_argmax`: joint classification with a shared model; only the class is opened. See SPEC.md."""

from blindbayes.protocol.shared_argmax.roles import Query, attribute_holder, class_holder

__all__ = ["Query", "attribute_holder", "class_holder"]
