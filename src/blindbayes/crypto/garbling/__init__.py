"""Garbled circuits."""
