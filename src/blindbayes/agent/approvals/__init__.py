"""Approvals: what staff are shown, who may decide, and what they decided."""
