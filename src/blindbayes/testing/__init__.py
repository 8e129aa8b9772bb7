"""Consortia on loopback, for the demos and for trials."""
