"""Documents for the privacy officer: leak report, sequence diagram, model card, plots, checksums, signatures.

Every document is computed from the run's transcript and the protocol's SPEC, and returned as text or bytes; `io.files` writes
them. They hold names of parties and columns, labels and counts of messages, and no value from a row.
"""
