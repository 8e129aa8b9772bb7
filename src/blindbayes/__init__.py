"""Naive Bayes on data that nobody may pool."""

__version__ = "0.1.0"
