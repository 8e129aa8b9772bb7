"""Exact integer samplers and the mechanisms made of them."""
