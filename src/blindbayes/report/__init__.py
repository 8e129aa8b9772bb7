"""Papers for the privacy officer, made from a run: leak report, sequence diagram, model card, plots, checksums.

Everything is computed from the run's transcript and the protocol's SPEC; no number is typed by hand. Pages are plain HTML
without scripts, and hold names of parties and columns, labels and counts of messages, never a value. Nothing here touches a
disk: every paper is text or bytes, and `storage.folder` writes them.
"""
