"""Papers for the privacy officer, made from a run: leak report, sequence diagram, model card, checksums.

Everything is computed from the run's transcript and the protocol's SPEC; no number is typed by hand. Pages are plain HTML
without scripts, and hold names of parties and columns, labels and counts of messages, never a value.
"""

from blindbayes.report.card import model_card
from blindbayes.report.leakage import Flow, LeakReport, PartyView, Received, leak_report
from blindbayes.report.page import leak_page, model_page

__all__ = ["Flow", "LeakReport", "PartyView", "Received", "leak_page", "leak_report", "model_card", "model_page"]
