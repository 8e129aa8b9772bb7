"""Sensitivity, composition, the privacy statement and the ledger."""
