"""`shared_argmax`: joint classification with a shared model; only the class is opened. See SPEC.md."""
