"""Vaidya et al. 2008: rows and columns."""
