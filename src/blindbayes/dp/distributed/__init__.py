"""Noise that several parties add together."""
